"""`headgate invite`, `join` and `leave`: a site as a host of its own, from another machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from headgate.cli import options as o
from headgate.cli.relay import Certificate, HostPlace, Key, Listen, run_relay
from headgate.cli.stopping import Teller
from headgate.client import Client
from headgate.diagnostics import configure
from headgate.errors import HeadgateError
from headgate.fabric.environment import nats_options
from headgate.fabric.membership import Invitation, Membership, accept, leave, server_directory
from headgate.fabric.server import running_url

UNITS: Final = Path("/etc/systemd/system")
_UNIT: Final = """[Unit]
Description=Headgate: site {site}
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
WorkingDirectory={directory}
{environment}ExecStart={command}
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec=30
Restart=always
RestartSec=5
NoNewPrivileges=yes
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("invite")(invite)
    app.command("join")(join)
    app.command("leave")(leave_site)


def invite(
    site: Annotated[str, typer.Argument(help="A site with `nats` in the deployment file.", metavar="SITE")],
    expires: Annotated[str, typer.Option(help="How long the invitation holds.")] = "1 h",
    address: Annotated[
        str | None, typer.Option(help="Where the other host reaches home, tls://HOST:PORT; default: where it listens.")
    ] = None,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Print a token with which another host becomes a site, by `headgate join TOKEN` there. It works once."""
    found = at.ask("invite", site=site, expires=expires, address=address)
    typer.echo(found["token"])


def join(
    token: Annotated[
        str | None,
        typer.Argument(help="What `headgate invite` has printed; not needed again later.", metavar="TOKEN"),
    ] = None,
    state_dir: o.StateDir = o.STATE_DIR,
    service: Annotated[
        bool, typer.Option("--service", help="Install it as a service of systemd, instead of running it here.")
    ] = False,
    units: Annotated[Path, typer.Option("--units", help="Where --service writes the unit.")] = UNITS,
    listen: Listen = None,
    tls_cert: Certificate = None,
    tls_key: Key = None,
    logs: o.Logging = o.WARNINGS,
) -> None:
    """Be a site of a deployment that runs elsewhere: run its NATS server and its relay until stopped (Ctrl-C)."""
    configure(logs.log_level, logs.log_format)
    tell = Teller(logs.log_format)
    options = nats_options(None)
    member = Membership.read(state_dir)
    if token is not None:
        invitation = Invitation.parse(token)
        if member is not None and member.site != invitation.site:
            raise HeadgateError(
                f"{state_dir} is that of site {member.site!r}, and the invitation is of {invitation.site!r}",
                hint="give another --state-dir, or `headgate leave` first",
            )
        member = asyncio.run(accept(invitation, state_dir, options))
        tell(f"this host is site {member.site} now; its state is in {state_dir}")
    if member is None:
        raise HeadgateError(
            f"no host has joined with {state_dir}", hint="`headgate join TOKEN`, from `headgate invite`"
        )
    place = HostPlace(state_dir, listen, tls_cert, tls_key, options)
    if service:
        _install(member.site, place, units, tell)
        return
    asyncio.run(run_relay(member.site, _connect(member, state_dir, options), place, tell))


async def _connect(member: Membership, state_dir: Path, options: dict[str, Any]) -> Client:
    given = {**options, **member.options(state_dir)}
    return await Client.connect(member.url, namespace=member.namespace, **given)


def _install(site: str, place: HostPlace, units: Path, tell: Teller) -> None:
    """Write the unit, and start it where systemd runs."""
    directory = place.state_dir.absolute()
    command = [sys.executable, "-m", "headgate.cli", "join", "--state-dir", str(directory), "--log-format", "json"]
    for option, value in (("--listen", place.listen), ("--tls-cert", place.certificate), ("--tls-key", place.key)):
        if value is not None:
            command += [option, str(value.absolute() if isinstance(value, Path) else value)]
    plain = os.environ.get("HEADGATE_PLAIN_NATS")
    environment = f"Environment=HEADGATE_PLAIN_NATS={plain}\n" if plain else ""
    name = f"headgate-site-{site}.service"
    quoted = " ".join(f'"{each}"' if " " in each else each for each in command)
    try:
        (units / name).write_text(
            _UNIT.format(site=site, directory=directory, environment=environment, command=quoted), encoding="utf-8"
        )
    except OSError as error:
        raise HeadgateError(
            f"the unit cannot be written: {error}", hint="be root, or give --units DIRECTORY"
        ) from error
    tell(f"wrote {units / name}")
    if units == UNITS and Path("/run/systemd/system").exists() and (systemctl := shutil.which("systemctl")):
        subprocess.run([systemctl, "daemon-reload"], check=True)
        subprocess.run([systemctl, "enable", "--now", name], check=True)
    else:
        tell(f"start it with `systemctl daemon-reload` and `systemctl enable --now {name}`")


def leave_site(
    state_dir: o.StateDir = o.STATE_DIR,
    force: Annotated[bool, typer.Option("--force", help="Also where the site still has subscriptions.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the files of the site's server where they are.")] = False,
) -> None:
    """Be a site no more: give the credentials back and delete the site's state. Stop `headgate join` first."""
    member = Membership.read(state_dir)
    if member is None:
        raise HeadgateError(f"no host has joined with {state_dir}", hint="give --state-dir")
    directory = server_directory(state_dir, member.site)
    if running_url(directory) is not None:
        raise HeadgateError(
            f"site {member.site!r} still runs here", hint="stop it first (Ctrl-C, or `systemctl disable --now`)"
        )
    asyncio.run(leave(member, state_dir, nats_options(None), force=force))
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)
    typer.echo(f"this host is no longer site {member.site}")
