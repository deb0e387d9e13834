"""`headgate unreadable`: messages that could not be read, by log, subject and sequence, and how to take one out."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from headgate.cli import options as o
from headgate.cli.status import reading
from headgate.errors import HeadgateError
from headgate.wire.logs import Log


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("unreadable")(unreadable)


def unreadable(
    drop: Annotated[
        str | None, typer.Option("--drop", metavar="LOG:SEQUENCE", help="Delete that message from its log.")
    ] = None,
    as_json: o.AsJson = False,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Show messages that could not be read and what was done without them; with --drop delete one.

    A commit that cannot be read stops its stream, as nobody can say which rows it had. If it was put there by another
    program, drop it and the stream goes on. If it was damaged, restore the log from a backup: when it is dropped, the
    commits after it do not follow the ones before, and the ledger says so.
    """

    async def work() -> dict[str, Any]:
        from headgate.service.status import read_status

        async with reading(at) as client:
            found: dict[str, Any] = (await read_status(client.fabric, client.tables))["quarantine"]
            if drop is not None:
                log, sequence = _chosen(drop, found["messages"])
                await client.fabric.remove(Log(log, (), -1), sequence)
            return found

    found = o.run(work())
    if drop is not None:
        typer.echo(f"{drop} is deleted")
        return
    if as_json:
        typer.echo(json.dumps(found))
        return
    for each in found["messages"]:
        gone = "" if each["there"] else " (gone from the log)"
        typer.echo(f"{each['log']}:{each['sequence']}{gone} on {each['subject']}: {each['cause']}")
        typer.echo(f"    {each['action']}; met by {each['process']}")
    typer.echo(f"{found['count']} message{'' if found['count'] == 1 else 's'} could not be read")


def _chosen(text: str, messages: list[dict[str, Any]]) -> tuple[str, int]:
    """The message that was named on the command line; only one that cannot be read is deleted."""
    names = {f"{each['log']}:{each['sequence']}": each for each in messages if each["there"]}
    if text not in names:
        hint = f"there are {', '.join(names)}" if names else "there are none"
        raise HeadgateError(f"no unreadable message {text!r} is in a log", hint=hint)
    return names[text]["log"], names[text]["sequence"]
