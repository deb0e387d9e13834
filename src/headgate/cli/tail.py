"""`headgate tail`: a subscription's rows as they come, and while none come, what they wait for."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable
from typing import Annotated, Any, Final

import typer

from headgate.cli import options as o
from headgate.cli.quantities import span
from headgate.client import Client
from headgate.client.delivery import Inbox, closing
from headgate.client.merged import MergedInbox
from headgate.diagnostics import CLIENT, noted
from headgate.errors import HeadgateError
from headgate.fabric import Crew
from headgate.model.roots import members_named
from headgate.service.heartbeat import read_pulse
from headgate.wire.message import json_value

_FIRST_S: Final = 2.0
_THEN_S: Final = 60.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tail")(tail)


def tail(
    name: Annotated[str, typer.Argument(help="The subscription's name.")],
    as_json: o.AsJson = False,
    count: Annotated[int | None, typer.Option("--count", "-n", help="Stop after so many rows.", min=1)] = None,
    peek: Annotated[
        bool, typer.Option("--peek", help="Read along: acknowledge nothing, take nothing from another reader.")
    ] = False,
    after_loss: Annotated[
        bool, typer.Option("--after-loss", help="Read on although the stream began anew: rows in between are lost.")
    ] = False,
    member: Annotated[
        str | None, typer.Option("--member", help="Be the member of this name of a group subscription.")
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option("--value", help="A value of the member for the group's `deal`, as NAME=YAML; repeatable."),
    ] = None,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Print a subscription's rows as they come, and what was given up at its place.

    Rows that were printed are acknowledged: the next `tail` goes on after them. A subscription has one reader at a
    time; a second one takes over, unless it says --peek. A group has several: each --member gets rows of its own.
    """
    if member is not None:
        import yaml

        if peek or after_loss:
            raise HeadgateError("a member of a group takes rows of its own", hint="leave --peek and --after-loss out")
        context = {key: yaml.safe_load(text) for key, text in o.key_values(value or []).items()}
        o.run(_tail_as_member(at.connect(), name, member, context, count, as_json=as_json))
        return
    if value:
        raise HeadgateError("--value is for members of a group", hint="give --member too")
    connecting = at.connect()
    o.run(_tail(connecting, name, count, as_json=as_json, peek=peek, after_loss=after_loss))


async def _tail(
    connecting: Awaitable[Client], name: str, count: int | None, *, as_json: bool, peek: bool, after_loss: bool
) -> None:
    async with await connecting as client:
        inbox = await client.subscribe(name, peek=peek, max_rows=count, after_loss=after_loss)
        if isinstance(inbox, MergedInbox) and count is not None:
            inbox.limit(1)  # one row at a time, since every root reads ahead
        waiting = WaitingNotice(client, name)
        async with Crew() as crew, closing(inbox) as deliveries:
            crew.spawn(waiting.run())
            async for delivery in deliveries:
                waiting.heard()
                for seq, row in zip(delivery.seqs.tolist(), delivery.to_pylist(), strict=True):
                    _print_row(seq, row, as_json)
                if delivery.given_up:
                    note = {"given_up": dict(delivery.given_up), "after": delivery.after, "upto": delivery.upto}
                    typer.echo(json.dumps(note) if as_json else f"-- given up: {note}", err=not as_json)
                if delivery.unsent:
                    note = {"unsent": delivery.unsent_digest, "after": delivery.after, "upto": delivery.upto}
                    typer.echo(json.dumps(note) if as_json else f"-- given up by senders: {note}", err=not as_json)
                if count is not None:
                    count -= len(delivery)
                    if isinstance(inbox, Inbox):
                        inbox.max_rows = count
                    if count == 0:
                        inbox.done()
                        return


async def _tail_as_member(
    connecting: Awaitable[Client], name: str, member: str, context: dict[str, Any], count: int | None, *, as_json: bool
) -> None:
    async with await connecting as client:
        room = 256 if count is None else min(count, 256)
        async with Crew() as crew, client.join(name, member, context=context, max_rows=room) as joined:
            waiting = WaitingNotice(client, name)
            crew.spawn(waiting.run())
            async for delivery in joined:
                waiting.heard()
                for seq, row in zip(delivery.seqs.tolist(), delivery.to_pylist(), strict=True):
                    _print_row(seq, row, as_json)
                for given_up in delivery.notes:
                    note = {"given_up": given_up.reasons, "after": given_up.after, "upto": given_up.upto}
                    typer.echo(json.dumps(note) if as_json else f"-- given up: {note}", err=not as_json)
                if count is not None:
                    count -= len(delivery)
                    joined.max_rows = min(max(count, 1), 256)
                    if count <= 0:
                        joined.done()
                        return


def _print_row(seq: int, row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"_seq": seq, **row}, default=json_value) + "\n")
    else:
        sys.stdout.write(f"{seq:>8}  " + "  ".join(f"{key}={_show(value)}" for key, value in row.items()) + "\n")
    sys.stdout.flush()


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


class WaitingNotice:
    """Says on standard error that no rows come, and what they wait for: at first soon, then now and then."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._patience_s = _FIRST_S
        self._heard_s = time.monotonic()

    def heard(self) -> None:
        """Rows have come."""
        self._heard_s = time.monotonic()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            quiet_s = time.monotonic() - self._heard_s
            if quiet_s < self._patience_s:
                await asyncio.sleep(self._patience_s - quiet_s)
                continue
            with noted(CLIENT, "could not find out what the rows wait for", HeadgateError):
                typer.echo(await self._reason(), err=True)
            self._patience_s = _THEN_S
            self.heard()

    async def _reason(self) -> str:
        snapshot = await self._client.snapshot()
        members = members_named(snapshot.deployment.streams, snapshot.subscription_ids, self._name) or [self._name]
        found = snapshot.deployment.subscriptions.get(members[0])
        now_ms = int(time.time() * 1000)
        pulse = await read_pulse(self._client.fabric, now_ms)
        if found is None:
            return f"-- waiting: subscription {self._name} has ended, no more rows come (Ctrl-C ends)"
        if pulse["state"] in ("stopped", "silent"):
            ago = span((now_ms - (pulse["time_ms"] or now_ms)) / 1000)
            return f"-- waiting: the deployment stopped {ago} ago, rows come when it is started again (Ctrl-C ends)"
        which = "" if found.where == "true" else f" with {found.where}"
        return f"-- waiting for the next rows of stream {found.stream}{which} (Ctrl-C ends)"
