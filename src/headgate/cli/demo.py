"""`headgate demo`: run the shipped deployment with readers for everybody, watch it, and sum up."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from headgate.cli import options as o
from headgate.cli.quantities import milliseconds
from headgate.cli.sheets import Sheet
from headgate.private import make_private


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    as_json: o.AsJson = False,
    state_dir: o.StateDir = o.STATE_DIR / "demo",
    file: Annotated[Path | None, typer.Option(help="Another deployment file than the shipped one.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long, also if sources go on.")] = None,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]",
) -> None:
    """Run the main job on embedded defaults: about a minute of rows, then a summary. Starts afresh each time."""
    from headgate.cli.deployment import read_deployment
    from headgate.service.demo.baselines import NETWORK_NOTE
    from headgate.service.demo.links import DelayedLinks
    from headgate.service.demo.run import demo_file
    from headgate.service.settings import Settings

    deployment = read_deployment(file or demo_file())
    if (state_dir / "demo").exists():
        shutil.rmtree(state_dir)
    make_private(state_dir)
    (state_dir / "demo").touch(0o600)
    console = Console(stderr=as_json)
    summary = o.run(
        _demo(
            Settings(state_dir=state_dir, master=master, links=DelayedLinks.of, http=True), deployment, console, seconds
        )
    )
    for table in summary_tables(summary):
        console.print(table)
    console.print(NETWORK_NOTE)
    wrong = summary["ledger_difference"] or summary["in_flight"]
    colour = "bold red" if wrong else "bold green"
    console.print(
        f"ledger: matched {summary['matched']:,} = delivered {summary['delivered']:,} + reduced "
        f"{summary['reduced']:,} + expired {summary['expired']:,} + in flight {summary['in_flight']:,}; "
        f"[{colour}]difference {summary['ledger_difference']}[/]"
    )
    if as_json:
        figures = {key: value for key, value in summary.items() if key not in ("status", "deliveries")}
        typer.echo(json.dumps(figures))
    if wrong:
        raise typer.Exit(1)


async def _demo(settings: Any, deployment: Any, console: Console, seconds: float | None) -> dict[str, Any]:
    from headgate.cli.up import invitation
    from headgate.cli.view import View
    from headgate.service.demo.run import run_demo
    from headgate.service.runtime import open_runtime

    with View(console, f"Headgate demo: {_size(deployment)}") as view:
        view.tell("starting NATS and the catalog")
        async with open_runtime(settings, deployment) as runtime:
            if runtime.face is not None:
                console.print(invitation(runtime.face.address, settings.state_dir), markup=False, soft_wrap=True)
            return await run_demo(runtime, view.show, view.tell, seconds)


def _size(deployment: Any) -> str:
    return (
        f"{len(deployment.streams)} streams, {len(deployment.sites)} sites, "
        f"{len(deployment.subscriptions)} subscriptions"
    )


def summary_tables(summary: dict[str, Any]) -> list[Sheet]:
    """The closing summary."""
    status = summary["status"]
    rows = Sheet("rows", "stream", "in", "dead", "shed", "evaluated")
    for name, each in status["streams"].items():
        rows.add_row(name, *(f"{each[key]:,}" for key in ("rows_in", "dead", "shed", "evaluated")))
    busiest = summary["busiest_site"]
    network = Sheet("megabytes on links", "", "in all", "from the roots", "busiest site")
    for label, total, root, site, name in (
        ("this plan", summary["link_bytes"], summary["root_bytes"], summary["per_site_bytes"][busiest], busiest),
        ("one copy per site", *[summary["site_copy_bytes"]] * 2, summary["site_copy_busiest"], "a root"),
        ("one copy per subscriber", *[summary["unicast_bytes"]] * 2, summary["unicast_busiest"], "a root"),
    ):
        network.add_row(label, f"{total / 1e6:,.2f}", f"{root / 1e6:,.2f}", f"{site / 1e6:,.2f} ({name})")
    people = Sheet("subscribers", "subscription", "site", "matched", "deliv'd", "p50 ms", "p99 ms", "from event")
    for name, each in status["subscriptions"].items():
        commit, event = each.get("commit_delay_ms") or {}, each.get("event_delay_ms") or {}
        people.add_row(
            name, each["site"], f"{each['matched']:,}", f"{each['delivered']:,}",
            milliseconds(commit.get("p50")), milliseconds(commit.get("p99")), milliseconds(event.get("p50")),
        )  # fmt: skip
    return [people, rows, network]
