"""`headgate parts`: which sites serve which parts of a gridded stream, and sites that join and leave."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from headgate.cli import options as o
from headgate.cli.groups import Program
from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.service.served_parts import part_lines, read_parts


def register(app: typer.Typer) -> None:
    """Add the commands."""
    parts = Program(help="Parts of gridded streams that sites serve.", no_args_is_help=True)
    parts.command("show")(show)
    parts.command("join")(join)
    parts.command("leave")(leave)
    app.add_typer(parts, name="parts")


Stream = Annotated[str, typer.Argument(help="The gridded stream.")]
Site = Annotated[str, typer.Argument(help="The site.")]


def show(
    as_json: Annotated[bool, typer.Option("--json", help="Print what sites report as JSON.")] = False,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Show who serves what, with its load."""

    async def work() -> dict[str, Any]:
        async with await at.connect() as client:
            return await read_parts(client.fabric, await client.snapshot())

    found = o.run(work())
    for line in [json.dumps(found)] if as_json else part_lines(found):
        typer.echo(line)


def join(
    stream: Stream,
    site: Site,
    bandwidth: Annotated[str, typer.Option(help="What the site may send to readers, such as `2 Mbit/s`.")],
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Let a site take half of the largest part; the first one takes all of the grid."""
    from headgate.service.parting import join_parts

    typer.echo(json.dumps(o.run(_changed(at, lambda client: join_parts(client, stream, site, bandwidth)))))


def leave(stream: Stream, site: Site, at: o.ConnectionOptions = o.HERE) -> None:
    """Hand the parts of a site on: to who has the other half, or else to the neighbour with least."""
    from headgate.service.parting import leave_parts

    typer.echo(json.dumps(o.run(_changed(at, lambda client: leave_parts(client, stream, site)))))


async def _changed(at: o.ConnectionOptions, work: Any) -> dict[str, Any]:
    async with await at.connect() as client:
        if not isinstance(client, Client):
            raise HeadgateError("only a connection to a deployment changes it")
        return dict(await work(client))
