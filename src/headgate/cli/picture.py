"""`headgate view`: a picture of what a subscriber of a gridded stream has."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.cli import options as o
from headgate.errors import HeadgateError, nearest
from headgate.model.roots import members_named


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("view")(view)


def view(
    name: Annotated[str, typer.Argument(help="A subscription of a gridded stream.")],
    png: Annotated[Path, typer.Option(help="The picture to write.")],
    value: Annotated[str | None, typer.Option(help="The column to draw; default: the first that is no axis.")] = None,
    zarr: Annotated[Path | None, typer.Option(help="Also write the field to this Zarr store.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to read what comes in.")] = 5.0,
    state_dir: o.StateDir = o.STATE_DIR,
    nats: o.Nats = None,
    namespace: o.Namespace = "hg",
    creds: o.Credentials = None,
) -> None:
    """Draw what a subscriber has: its retained rows and those that come in meanwhile. Nothing is acknowledged."""

    async def work() -> dict[str, Any]:
        async with await o.connect(nats, state_dir, namespace, creds) as client:
            field = await read_field(client, name, value, seconds)
        draw(field, name, png)
        if zarr is not None:
            field.to_zarr(zarr)
        shown = field.values[0]
        return {"png": str(png), "value": shown, "rows": field.points, "share": round(field.share(shown), 4)}

    typer.echo(json.dumps(o.run(work())))


async def read_field(client: Any, name: str, value: str | None, seconds: float) -> Any:
    """What a subscription's inbox holds and gets for so long, as a field; the subscriber's own position stays."""
    from headgate.grid import Field, GridError, layout_of

    snapshot = await anext(client.tables.heads())
    streams = snapshot.deployment.streams
    names = [name] if name in snapshot.subscription_ids else members_named(streams, snapshot.subscription_ids, name)
    if not names:
        close = nearest(name, snapshot.subscription_ids)
        raise HeadgateError(f"no subscription {name!r}", hint=f"did you mean {close!r}?" if close else None)
    subscription = snapshot.deployment.subscriptions[names[0]]
    stream = streams[subscription.stream]
    layout = layout_of(stream)
    if layout is None:
        raise GridError(f"stream {stream.name!r} has no grid to draw", hint="give it a `grid:`")
    field = Field(layout, (choose_value(value, layout, stream.schema.select(subscription.select)),))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(_fill(client, field, snapshot, each) for each in names))
    return field


async def _fill(client: Any, field: Any, snapshot: Any, name: str) -> None:
    """Put what one inbox holds and gets into a field, without end."""
    from headgate.wire.message import block_version, decode_block

    logs, layout = client.fabric.logs, field.layout
    wanted = snapshot.deployment.subscriptions[name]
    site, subject = wanted.site, logs.delivery(wanted.site, snapshot.subscription_ids[name], wanted.stay)
    async for stored in client.fabric.follow(logs.inbox(site), subject, 0):
        for message in stored:
            then = (await client.tables.snapshot(block_version(message.data))).deployment
            mine = then.subscriptions[name]
            schema = then.streams[mine.stream].schema.select(mine.select)
            if {layout.x.column, layout.y.column, *field.values} <= set(schema.names):
                field.add(decode_block(message.data, schema.arrow).rows)


def choose_value(value: str | None, layout: Any, schema: Any) -> str:
    """The column to draw: as asked, or the first number that is neither an axis nor the time."""
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
        return str(free[0])
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
