"""`headgate view`: a picture of what a subscriber of a gridded stream has."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.cli import options as o
from headgate.client import Client
from headgate.client.fields import empty_field
from headgate.diagnostics import CLIENT, noted
from headgate.errors import HeadgateError, nearest
from headgate.fabric import FabricError
from headgate.grid import Field, GridError, layout_of, parse_resolution
from headgate.model.roots import members_named
from headgate.parts import part
from headgate.protocol.acks import read_tally
from headgate.protocol.records import RangeRequest
from headgate.relay.asking import ask_blocks, fetch_blocks
from headgate.wire.block import Block
from headgate.wire.ledger import Tally
from headgate.wire.message import block_version, decode_block

if TYPE_CHECKING:
    from headgate.model import Stream, Subscription
    from headgate.wire.snapshot import Snapshot

_STEPS = 24
_REACH = 1.5  # times the distance of evenly thinned points, as they are not exactly even
_DOT = 0.002  # of the picture's width: a point by itself can still be seen
_BACK_ROWS = 200_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("view")(view)


def view(
    names: Annotated[
        list[str],
        typer.Argument(help="A subscription of a gridded stream; several make one field. With --served a stream."),
    ],
    png: Annotated[Path, typer.Option(help="The picture to write.")],
    value: Annotated[str | None, typer.Option(help="The column to draw; default: the first measurement.")] = None,
    zarr: Annotated[Path | None, typer.Option(help="Also write the field to this Zarr store.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to read what comes in.")] = 5.0,
    served: Annotated[
        str | None,
        typer.Option(help="Ask this site for a stream that sites serve parts of, instead of reading a subscription."),
    ] = None,
    query: Annotated[
        str, typer.Option(help='With --served, what to ask for: {"region": …, "resolution": …} as JSON; default: all.')
    ] = "{}",
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Draw what a subscriber of a running deployment has, and what comes in meanwhile. Nothing is acknowledged.

    What it has read before comes again from the log of the stream's root: its part of the last 200,000 rows, or of
    two whole time steps where those are more. What waits for it comes from its inbox.
    """
    part("matplotlib")

    async def work() -> dict[str, Any]:
        async with await at.connect() as client:
            if served is not None:
                asked = _read_query(query)
                field = await read_served(client, names[0], value, seconds, at=served, **asked)
                resolution = asked.get("resolution")
                share = float(parse_resolution(resolution).space.length) if resolution else 1.0
            else:
                field = await read_field(client, names, value, seconds)
                share = asked_share(await client.snapshot(), names)
        draw(field, ", ".join(names), png, share)
        if zarr is not None:
            field.to_zarr(zarr)
        shown = field.values[0]
        return {"png": str(png), "value": shown, "rows": field.points, "share": round(field.share(shown), 4)}

    typer.echo(json.dumps(o.run(work())))


def _read_query(text: str) -> dict[str, Any]:
    """What `--query` asks for."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise HeadgateError(f"--query is no JSON: {error}", hint='write {"resolution": {"space": "1/4"}}') from error
    if not isinstance(found, dict) or not found.keys() <= {"region", "resolution"}:
        raise HeadgateError("--query has a region and a resolution", hint='write {"resolution": {"space": "1/4"}}')
    return found


async def read_served(client: Client, name: str, value: str | None, seconds: float, **asked: Any) -> Field:
    """What the sites that serve a stream have of a query, and what comes in meanwhile, as one field."""
    query = await client.query(name, **asked)
    layout = layout_of(query.stream)
    assert layout is not None  # only such streams are served
    field = Field(layout, (choose_value(value, layout, query.stream.schema, query.stream.key),), steps=_STEPS)
    async with query:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for rows in query:
                    field.add(rows)
    return field


def members(snapshot: Snapshot, names: Sequence[str]) -> list[str]:
    """The subscriptions of these names; one to a stream of several roots is one at each root."""
    found = []
    for name in names:
        own = [name] if name in snapshot.subscription_ids else None
        known = own or members_named(snapshot.deployment.streams, snapshot.subscription_ids, name)
        if not known:
            close = nearest(name, snapshot.subscription_ids)
            raise HeadgateError(f"no subscription {name!r}", hint=f"did you mean {close!r}?" if close else None)
        found += known
    return found


async def read_field(client: Client, names: Sequence[str], value: str | None, seconds: float) -> Field:
    """What subscriptions have and get for so long, as one field; their readers' own positions stay."""
    snapshot = await client.snapshot()
    found = members(snapshot, names)
    subscription = snapshot.deployment.subscriptions[found[0]]
    stream = snapshot.deployment.streams[subscription.stream]
    layout = layout_of(stream)
    if layout is None:
        raise GridError(f"stream {stream.name!r} has no grid to draw", hint="give it a `grid:`")
    shown = choose_value(value, layout, stream.schema.select(subscription.select), stream.key)
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
    try:
        await _fill_read(client, field, snapshot, name, tally)
    except FabricError as error:
        typer.echo(f"{name}: only what waits is drawn, not what was read before: {error}", err=True)
    subject = logs.delivery(wanted.site, *wanted.present.inbox_of(identity))
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
    with noted(CLIENT, f"{name} asks for what its class was sent", FabricError):
        mine = RangeRequest(stream=stream.name, after=after, upto=tally.mark, subscription=tally.subscription)
        return await fetch_blocks(fabric, root, mine)
    columns = stream.schema.select(snapshot.deployment.subscriptions[name].select).names
    history = RangeRequest(
        stream=stream.name,
        after=after,
        upto=tally.mark,
        class_id=snapshot.class_ids[name],
        columns=list(columns),
    )
    return await ask_blocks(fabric, root, history)


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
_NUMBERINGS = frozenset(("id", "key", "seq", "sequence", "number", "index", "row", "no"))


def choose_value(value: str | None, layout: Any, schema: Any, key: Collection[str] = ()) -> str:
    """The column to draw: as asked, or the first measurement.

    Axes and the time are none; a place, the stream's key and what is named as a numbering (`row_id`) are taken only if
    there is nothing else; a float comes before an integer.
    """
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
        floats = {column.name for column in schema.columns if pa.types.is_floating(column.type)}

        def unlikely(column: str) -> tuple[bool, bool]:
            names = column.lower() in _PLACES or re.split(r"[_\W]", column.lower())[-1] in _NUMBERINGS
            return names or column in key, column not in floats

        return str(min(free, key=unlikely))
    if value not in numbers:
        close = nearest(value, numbers)
        raise HeadgateError(f"no number {value!r} to draw", hint=f"did you mean {close!r}?" if close else None)
    return value


def asked_share(snapshot: Snapshot, names: Sequence[str]) -> float:
    """The largest share of the grid's points that one of these subscriptions asks for."""
    documents = [snapshot.deployment.subscriptions[name].resolution for name in members(snapshot, names)]
    return max(float(parse_resolution(each).space.length) if each else 1.0 for each in documents)


def painted(field: Any, share: float) -> Any:
    """The newest step of a field, with points filled from neighbours that are near for this share of points."""
    reach = max(_REACH / math.sqrt(share) if share < 1 else 1.0, _DOT * field.layout.x.size)
    return field.filled(field.values[0], reach=reach)


def draw(field: Any, title: str, png: Path, share: float = 1.0) -> None:
    """The newest step of a field as a picture, with a scale.

    A point that is not there shows its nearest neighbour, if that is as near as it would be in an even thinning to the
    `share` that was asked for: a thinned field is a coarser picture, and where there is nothing the picture is grey.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    name = field.values[0]
    x, y = field.layout.x, field.layout.y
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_facecolor("#e6e6e6")
    shown = axes.imshow(painted(field, share), origin="lower", extent=(x.low, x.high, y.low, y.high), aspect="auto")
    figure.colorbar(shown, label=name)
    axes.set_title(f"{title}: {100 * field.share(name):.1f} % of the points")
    axes.set_xlabel(x.column)
    axes.set_ylabel(y.column)
    png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=110)
