"""`headgate device`: who may speak MQTT to a running deployment, and about what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.cli import options as o
from headgate.cli.groups import Program
from headgate.cli.sheets import Sheet, day_of
from headgate.errors import HeadgateError
from headgate.fabric.place import write_whole

device = Program(help="Devices that speak MQTT: let them in, list them, put them out.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The device's name; it is its user name too.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(device, name="device")


@device.command("add")
def add(
    name: Name,
    read: Annotated[
        list[str] | None,
        typer.Option("--read", help="A subscription whose topic `headgate/NAME` it may read, or `*`; repeatable."),
    ] = None,
    publish: Annotated[
        list[str] | None,
        typer.Option("--publish", help="A stream that it may publish into, on `headgate-in/STREAM`, or `*`."),
    ] = None,
    expires: Annotated[str | None, typer.Option(help="How long the password holds, such as `90 d`.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write the password; default: NAME.mqtt.")] = None,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Make a device and write its password into a file that only you can read. It is not kept anywhere else."""
    place = out or Path(f"{name}.mqtt")
    if place.exists():
        raise HeadgateError(f"there is a file {place}", hint="move it away, or give another one with --out")
    given: dict[str, Any] = {"name": name, "reads": read or [], "publishes": publish or [], "expires": expires}
    answer = at.ask("device-add", **given)
    write_whole(place, answer["password"])
    typer.echo(f"device {name} may connect: user name {name}, password in {place}", err=True)


@device.command("list")
def list_devices(
    as_json: o.AsJson = False,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """List devices and what they may do."""
    found = at.ask("device-list")["devices"]
    if as_json:
        typer.echo(json.dumps(found))
        return
    sheet = Sheet("devices", "device", "reads", "publishes into", "issued", "expires")
    for each in found:
        rights = (" ".join(each[key]) or "-" for key in ("reads", "publishes"))
        sheet.add_row(each["name"], *rights, day_of(each["issued_s"]), day_of(each["expires_s"]))
    o.wide_console().print(sheet)


@device.command("revoke")
def revoke(
    name: Name,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Put a device out at once: its connection ends."""
    at.ask("device-revoke", name=name)
    typer.echo(f"device {name} is out", err=True)
