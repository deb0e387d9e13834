"""`headgate view`: a picture of what a subscriber of a gridded stream has."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.cli import options as o
from headgate.client import Client
from headgate.client.fields import empty_field
from headgate.errors import HeadgateError, nearest
from headgate.fabric import FabricError
from headgate.grid import Field, GridError, layout_of
from headgate.model.roots import members_named
from headgate.protocol.acks import read_tally
from headgate.relay.repair import fetch_history, fetch_range
from headgate.wire.block import Block
from headgate.wire.ledger import Tally
from headgate.wire.message import block_version, decode_block

if TYPE_CHECKING:
    from headgate.model import Stream, Subscription
    from headgate.wire.snapshot import Snapshot

_STEPS = 24
_BACK_ROWS = 200_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("view")(view)


def view(
    names: Annotated[list[str], typer.Argument(help="A subscription of a gridded stream; several make one field.")],
    png: Annotated[Path, typer.Option(help="The picture to write.")],
    value: Annotated[str | None, typer.Option(help="The column to draw; default: the first that is no place.")] = None,
    zarr: Annotated[Path | None, typer.Option(help="Also write the field to this Zarr store.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to read what comes in.")] = 5.0,
    state_dir: o.StateDir = o.STATE_DIR,
    nats: o.Nats = None,
    namespace: o.Namespace = "hg",
    creds: o.Credentials = None,
) -> None:
    """Draw what a subscriber of a running deployment has, and what comes in meanwhile. Nothing is acknowledged.

    What it has read before comes again from the log of the stream's root: its part of the last 200,000 rows, or of
    two whole time steps where those are more. What waits for it comes from its inbox.
    """

    async def work() -> dict[str, Any]:
        async with await o.connect(nats, state_dir, namespace, creds) as client:
            field = await read_field(client, names, value, seconds)
        draw(field, ", ".join(names), png)
        if zarr is not None:
            field.to_zarr(zarr)
        shown = field.values[0]
        return {"png": str(png), "value": shown, "rows": field.points, "share": round(field.share(shown), 4)}

    typer.echo(json.dumps(o.run(work())))


async def read_field(client: Client, names: Sequence[str], value: str | None, seconds: float) -> Field:
    """What subscriptions have and get for so long, as one field; their readers' own positions stay."""
    snapshot = await client.snapshot()
    streams, found = snapshot.deployment.streams, []
    for name in names:
        own = [name] if name in snapshot.subscription_ids else None
        members = own or members_named(streams, snapshot.subscription_ids, name)
        if not members:
            close = nearest(name, snapshot.subscription_ids)
            raise HeadgateError(f"no subscription {name!r}", hint=f"did you mean {close!r}?" if close else None)
        found += members
    subscription = snapshot.deployment.subscriptions[found[0]]
    stream = streams[subscription.stream]
    layout = layout_of(stream)
    if layout is None:
        raise GridError(f"stream {stream.name!r} has no grid to draw", hint="give it a `grid:`")
    shown = choose_value(value, layout, stream.schema.select(subscription.select))
    field = empty_field(snapshot, found, (shown,), _STEPS)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(_fill(client, field, snapshot, each) for each in found))
    return field


async def _fill(client: Client, field: Field, snapshot: Snapshot, name: str) -> None:
    """Put what one subscription has and gets into a field, without end."""
    logs, wanted = client.fabric.logs, snapshot.deployment.subscriptions[name]
    identity = snapshot.subscription_ids[name]
    tally = await read_tally(client.fabric, identity)
    with contextlib.suppress(FabricError):  # no relay at the root: what waits is drawn all the same
        await _fill_read(client, field, snapshot, name, tally)
    subject = logs.delivery(wanted.site, identity, wanted.stay)
    async for stored in client.fabric.follow(logs.inbox(wanted.site), subject, tally.place(wanted.stay)):
        for message in stored:
            await _add(client, field, wanted, message.data, tally.mark)


async def _fill_read(client: Client, field: Field, snapshot: Snapshot, name: str, tally: Tally) -> None:
    """Put what the subscriber has acknowledged of the last time steps into a field, from the root's log."""
    wanted, layout = snapshot.deployment.subscriptions[name], field.layout
    stream = snapshot.deployment.streams[wanted.stream]
    after = max(tally.starts or 0, tally.mark - max(2 * layout.x.size * layout.y.size, _BACK_ROWS))
    while tally.starts is not None and after < tally.mark:
        before = after
        for data in await _read_again(client, snapshot, stream, name, after, tally):
            after = (await _add(client, field, wanted, data, after)).upto
        if after == before:
            return


async def _read_again(
    client: Client, snapshot: Snapshot, stream: Stream, name: str, after: int, tally: Tally
) -> list[bytes]:
    """Blocks of what a subscription was sent after a place; of the time before it existed, what its class was sent."""
    fabric, root = client.fabric, stream.root
    with contextlib.suppress(FabricError):
        return await fetch_range(fabric, root, stream.name, after, tally.mark, subscription=tally.subscription)
    columns = stream.schema.select(snapshot.deployment.subscriptions[name].select).names
    return await fetch_history(fabric, root, stream.name, after, tally.mark, snapshot.class_ids[name], list(columns))


async def _add(client: Client, field: Field, wanted: Subscription, data: bytes, after: int) -> Block:
    """Put what a block has after a place into a field, if it has the field's columns; returns the block."""
    then = (await client.tables.snapshot(block_version(data))).deployment
    mine = then.subscriptions.get(wanted.name, wanted)
    schema = then.streams[mine.stream].schema.select(mine.select)
    block = decode_block(data, schema.arrow)
    if {field.layout.x.column, field.layout.y.column, *field.values} <= set(schema.names) and block.upto > after:
        field.add(block.since(after).rows)
    return block


_PLACES = frozenset(("lat", "latitude", "lon", "long", "longitude", "lng"))


def choose_value(value: str | None, layout: Any, schema: Any) -> str:
    """The column to draw: as asked, or the first number that is neither an axis nor the time nor another place."""
    import pyarrow as pa

    axes = {layout.x.column, layout.y.column, layout.time.column if layout.time else None}
    numbers = [c.name for c in schema.columns if pa.types.is_integer(c.type) or pa.types.is_floating(c.type)]
    for axis in (layout.x.column, layout.y.column):
        if axis not in schema.names:
            raise HeadgateError(f"the subscription leaves out {axis!r}", hint="select the grid's axes to draw it")
    free = [column for column in numbers if column not in axes]
    if value is None:
        if not free:
            raise HeadgateError("the subscription has no number to draw", hint="name one with --value")
        return str(next((column for column in free if column.lower() not in _PLACES), free[0]))
    if value not in numbers:
        close = nearest(value, numbers)
        raise HeadgateError(f"no number {value!r} to draw", hint=f"did you mean {close!r}?" if close else None)
    return value


def draw(field: Any, title: str, png: Path) -> None:
    """The newest step of a field as a picture, with a scale; points that are not there show their nearest neighbour."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    name = field.values[0]
    x, y = field.layout.x, field.layout.y
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    shown = axes.imshow(field.filled(name), origin="lower", extent=(x.low, x.high, y.low, y.high), aspect="auto")
    figure.colorbar(shown, label=name)
    axes.set_title(f"{title}: {100 * field.share(name):.1f} % of the points")
    axes.set_xlabel(x.column)
    axes.set_ylabel(y.column)
    png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=110)
