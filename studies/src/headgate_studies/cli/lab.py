"""`headgate lab`: the sites of a deployment file as hosts of their own on this machine (Linux, root)."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from headgate.catalog import load_deployment
from headgate.errors import HeadgateError
from headgate.model import parse_bandwidth, parse_duration
from headgate_studies.lab import hosts, laboratory
from headgate_studies.lab.network import LabNetwork
from headgate_studies.lab.running import RunningDeployment, home_of

lab = typer.Typer(help="Run every site of a deployment as a host of its own on this machine.", no_args_is_help=True)
Name = Annotated[str, typer.Option(help="The laboratory, where there are several.")]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(lab, name="lab")


@lab.command("up")
def up(
    file: Annotated[Path, typer.Argument(help="The deployment file.", metavar="FILE")],
    name: Name = "lab",
    home: Annotated[str | None, typer.Option(help="The site with the service; else the first stream's root.")] = None,
    jitter: Annotated[float, typer.Option(help="Delays vary by up to this part of each.")] = 0.0,
    loss: Annotated[float, typer.Option(help="The part of packets that is lost.")] = 0.0,
    bare: Annotated[bool, typer.Option("--bare", help="Make the hosts and start nothing on them.")] = False,
    option: Annotated[
        list[str] | None, typer.Option("--up", help="An option for `headgate up`, such as --up=--http.")
    ] = None,
) -> None:
    """Make the hosts of a file, run the deployment on them until Ctrl-C, and remove them."""
    from headgate.pipeline.sources import GENERATOR_SCHEMAS  # it brings Spark, which no other command here needs

    deployment = load_deployment(file, GENERATOR_SCHEMAS)
    home = home or home_of(deployment)
    if home not in deployment.sites:
        raise HeadgateError(f"there is no site {home!r} in {file}", hint=f"it has {', '.join(deployment.sites)}")
    ended: list[int] = []
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: ended.append(number))
    with laboratory.Laboratory(deployment, name, jitter=jitter, loss=loss) as made:
        for host in made.hosts.values():
            typer.echo(f"{host.site:<16} {host.address:<14} {host.namespace}" + ("  home" if host.site == home else ""))
        sys.stdout.flush()
        if bare:
            while not ended:
                signal.pause()
        else:
            RunningDeployment(made, file, home, option or ()).watch(lambda: bool(ended))


@lab.command("down")
def down(name: Name = "lab") -> None:
    """Remove a laboratory with everything that runs in it, also one that was killed."""
    typer.echo(json.dumps({"lab": name, "removed": laboratory.clear(name)}))


@lab.command("exec", context_settings={"ignore_unknown_options": True})
def execute(
    site: Annotated[str, typer.Argument(help="The host.", metavar="SITE")],
    command: Annotated[list[str], typer.Argument(help="What to run there.", metavar="COMMAND...")],
    name: Name = "lab",
) -> None:
    """Run a program on a host of the laboratory."""
    inside = hosts.namespace(name, site)
    if inside not in hosts.namespaces(name):
        raise HeadgateError(f"there is no host {site!r} in the laboratory {name!r}", hint="`headgate lab up FILE`")
    os.execvp("ip", ["ip", "netns", "exec", inside, *command])  # noqa: S606, S607 # what the operator asked for


@lab.command("link")
def link(
    one: Annotated[str, typer.Argument(help="A site.")],
    other: Annotated[str, typer.Argument(help="Another site.")],
    name: Name = "lab",
    rate: Annotated[str | None, typer.Option(help="Such as `20 Mbit/s`.")] = None,
    delay: Annotated[str | None, typer.Option(help="One way, such as `25 ms`.")] = None,
    loss: Annotated[float | None, typer.Option(help="The part of packets that is lost.")] = None,
    cut: Annotated[bool | None, typer.Option("--cut/--mend", help="Let nothing through, or end that.")] = None,
) -> None:
    """Change the path between two hosts of a running laboratory, in both directions, or show it; one JSON object."""
    directory = laboratory.ROOT / name
    listed = json.loads((directory / "hosts.json").read_text()) if directory.exists() else []
    numbers = {each["namespace"]: int(each["number"]) for each in listed}
    ends = [numbers.get(hosts.namespace(name, site)) for site in (one, other)]
    if None in ends:
        raise HeadgateError(f"the laboratory {name!r} does not have both {one!r} and {other!r}")
    document = json.loads((directory / "network.json").read_text())
    given = {
        "rate_bytes_per_s": None if rate is None else parse_bandwidth(rate),
        "delay_s": None if delay is None else parse_duration(delay),
        "loss": loss,
        "cut": cut,
    }
    figures = {key: value for key, value in given.items() if value is not None}
    shown = {}
    for path in document["paths"]:
        if set(path[:2]) == set(ends):
            path[2].update(figures)
            shown = path[2]
    if figures:
        LabNetwork.parse(document)
        (directory / "network.json").write_text(json.dumps(document))
        os.kill(int((directory / "carrier.pid").read_text()), signal.SIGHUP)
    typer.echo(json.dumps({"link": [one, other], **shown}))
