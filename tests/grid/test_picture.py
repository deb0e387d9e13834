"""`headgate view` draws a field, and says what is missing when it cannot."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pyarrow as pa
import pytest

from headgate.cli.picture import asked_share, choose_value, draw, painted, read_field
from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.fabric import Fabric
from headgate.grid import Field, parse_layout
from headgate.model import Deployment, Schema, Site, Source, Stream, Subscription
from headgate.relay.tables import publish_snapshot
from headgate.wire.block import Block, Commit
from headgate.wire.logs import Logs
from headgate.wire.message import encode_block
from headgate.wire.snapshot import Snapshot
from headgate_studies.studies import grid_weather

SCHEMA = Schema.of({"x": "int", "y": "int", "name": "string", "temp": "double", "step": "int"})
GRID = {"x": {"column": "x", "size": 8}, "y": {"column": "y", "size": 4}, "time": {"tick": "step"}}
LAYOUT = parse_layout(GRID, SCHEMA)


def test_a_field_becomes_a_picture(tmp_path):
    field = Field(LAYOUT, ("temp",))
    draw(field, "nothing yet", tmp_path / "empty.png")
    field.add(pa.record_batch({"x": [0, 4], "y": [0, 2], "step": [1, 1], "temp": [3.0, 9.0]}))
    draw(field, "two points", tmp_path / "pictures" / "two.png")
    for picture in (tmp_path / "empty.png", tmp_path / "pictures" / "two.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_column_to_draw_is_chosen_or_checked():
    assert choose_value(None, LAYOUT, SCHEMA) == "temp"
    assert choose_value("step", LAYOUT, SCHEMA) == "step"
    placed = Schema.of({"x": "int", "y": "int", "lat": "double", "lon": "double", "wind": "double", "step": "int"})
    assert choose_value(None, LAYOUT, placed) == "wind"
    counted = Schema.of({"row_id": "long", "flight": "long", "x": "int", "y": "int", "heading": "int", "alt": "double"})
    assert choose_value(None, LAYOUT, counted) == "alt"
    assert (
        choose_value(None, LAYOUT, counted.select(["row_id", "flight", "x", "y", "heading"]), ("flight",)) == "heading"
    )
    assert choose_value(None, LAYOUT, counted.select(["row_id", "x", "y"])) == "row_id"
    with pytest.raises(HeadgateError, match="did you mean 'temp'"):
        choose_value("tmp", LAYOUT, SCHEMA)
    with pytest.raises(HeadgateError, match="leaves out 'y'"):
        choose_value(None, LAYOUT, SCHEMA.select(["x", "temp"]))
    with pytest.raises(HeadgateError, match="no number to draw"):
        choose_value(None, LAYOUT, SCHEMA.select(["x", "y", "name"]))


def scattered(share: float, region: tuple[slice, slice] = (slice(None), slice(None))) -> Field:
    """A globe of 360 by 180 with points at random in a region of it."""
    grid = {"x": {"column": "x", "size": 360, "wrap": True}, "y": {"column": "y", "size": 180}}
    field = Field(parse_layout(grid, SCHEMA), ("temp",))
    wanted = np.zeros((180, 360), dtype=bool)
    wanted[region] = np.random.default_rng(3).random((180, 360))[region] < share
    y, x = np.nonzero(wanted)
    field.add(pa.record_batch({"x": x, "y": y, "temp": np.ones(len(x))}))
    return field


def coloured(field: Field, share: float) -> float:
    """Share of a picture that is not grey."""
    return float(np.isfinite(painted(field, share)).mean())


def test_a_picture_is_not_filled_from_few_points():
    """A thousandth of the globe's points colour what is beside them; a thinned field, all of the globe."""
    assert scattered(0.001).share("temp") < 0.0015
    assert coloured(scattered(0.001), 1.0) < 0.01
    assert coloured(scattered(1 / 16), 1 / 16) > 0.9
    assert coloured(scattered(0.03, (slice(125, 150), slice(170, 205))), 1 / 16) < 0.03
    assert coloured(scattered(0.0), 1.0) == 0.0


def test_ten_subscribers_get_nested_shares_of_one_field():
    batch = grid_weather.rows_of(0)
    kept = [predicate.evaluate(batch, {}) for _, predicate in grid_weather.subscribers()]
    assert [round(keep.mean() * 16) for keep in kept[:5]] == [16, 8, 4, 2, 1]
    for finer, coarser in itertools.pairwise(kept[:5]):
        assert not (coarser & ~finer).any()
    assert np.array_equal(kept[5] & kept[1], kept[6])


@pytest.mark.nats
def test_view_reads_an_inbox_without_moving_its_subscriber(nats_url):
    async def work():
        fabric = await Fabric.connect(nats_url, Logs("viewing"))
        async with Client(fabric) as client:
            wanted = Subscription("map", "w", "lab", select=("x", "y", "temp"), resolution={"space": "1/4"})
            stream = Stream("w", SCHEMA, Source("generator"), "lab", options={"grid": GRID})
            deployment = Deployment({"w": stream}, {"lab": Site("lab")}, subscriptions={"map": wanted})
            logs = fabric.logs
            for log in (logs.state, logs.tables, logs.inbox("lab")):
                await fabric.ensure(log)
            await publish_snapshot(fabric, Snapshot(1, deployment, None, {"map": 7}, {"map": 1}))
            rows = pa.record_batch(
                [pa.array([0, 4], pa.int32()), pa.array([0, 2], pa.int32()), pa.array([3.0, 9.0])],
                schema=SCHEMA.select(("x", "y", "temp")).arrow,
            )
            block = Block("w", 0, 2, (Commit(0, 2, 1, 0),), np.array([1, 2], np.uint64), rows)
            await fabric.publish(logs.delivery("lab", 7), encode_block(block))
            field = await read_field(client, ["map"], None, 1.0)
            assert (field.points, field.values) == (2, ("temp",))
            assert field.at("temp")[2, 4] == 9.0
            assert asked_share(await client.snapshot(), ["map"]) == 0.25
            assert await fabric.last(logs.state, logs.ack(7)) is None
            with pytest.raises(HeadgateError, match="did you mean 'map'"):
                await read_field(client, ["mapp"], None, 1.0)

    asyncio.run(work())
