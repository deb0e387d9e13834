"""A gridded stream with several roots: one stream each, every row at one of them, read as one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from tests.client.helpers import live_test, no_difference, read
from tests.live import Live, sites, until

from headgate.catalog import DeploymentError, parse_deployment
from headgate.client import ClientError
from headgate.client.delivery import closing
from headgate.client.merged import join_positions
from headgate.grid import layout_of
from headgate.model.roots import members_of, root_region
from headgate.pipeline.roots import OUTSIDE, own_rows
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate

SIDE, CELLS = 8, 64
GRID = {"x": {"column": "x", "size": SIDE}, "y": {"column": "y", "size": SIDE}, "time": {"tick": "step"}}
ROOTS = {
    "west": {"site": "oslo", "region": {"box": {"x": [-0.5, 3.5]}}},
    "south": {"site": "rome", "region": {"box": {"x": [3.5, 7.5], "y": [-0.5, 3.5]}}},
    "north": {"site": "oslo", "region": {"box": {"x": [3.5, 7.5], "y": [3.5, 7.5]}}},
}
ROWS = generate("weather", 3, 0, CELLS, width=SIDE, height=SIDE)
X, Y = ROWS["x"].to_numpy(), ROWS["y"].to_numpy()
PARTS = {"west": X < 4, "south": (X >= 4) & (Y < 4), "north": (X >= 4) & (Y >= 4)}


def document(roots=None, grid=None, **subscriptions):
    source = {"format": "generator", "kind": "weather", "width": SIDE, "height": SIDE, "limit": 1}
    weather = {"source": source, "grid": GRID if grid is None else grid, "roots": ROOTS if roots is None else roots}
    given = subscriptions or {"map": {"site": "leaf"}}
    return {
        "sites": sites("oslo", "rome", "leaf"),
        "streams": {"weather": weather},
        "subscriptions": {name: {"stream": "weather", **each} for name, each in given.items()},
    }


def parsed(given):
    return parse_deployment(yaml.safe_dump(given, sort_keys=False), "test.yaml", GENERATOR_SCHEMAS)


def test_each_root_is_a_stream_and_a_subscription_goes_where_its_region_is():
    corner = {"site": "leaf", "region": {"polygon": [[5, 5], [7, 5], [6, 7]]}}
    moving = {"site": "leaf", "region": {"circle": {"around": "$here", "radius": 1}}, "context": {"here": [0, 0]}}
    found = parsed(document(map={"site": "leaf"}, corner=corner, moving=moving))
    assert {name: each.root for name, each in found.streams.items()} == {
        "weather-west": "oslo",
        "weather-south": "rome",
        "weather-north": "oslo",
    }
    assert [root_region(each).rest for each in found.streams.values()] == [True, False, False]
    assert set(members_of(found.streams, "weather")) == set(ROOTS)
    assert {name: each.stream for name, each in found.subscriptions.items()} == {
        **{f"map-{root}": f"weather-{root}" for root in ROOTS},
        **{f"moving-{root}": f"weather-{root}" for root in ROOTS},
        "corner-north": "weather-north",
    }


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"roots": {"west": ROOTS["west"]}}, "leave out 50.0% of the grid"),
        ({"roots": {**ROOTS, "all": {"site": "rome", "region": {"box": {}}}}}, "'west' and 'all' overlap"),
        ({"roots": {"a": {"site": "oslo", "region": {"circle": {"around": [1, 1], "radius": 2}}}}}, "is a box"),
        ({"roots": {**ROOTS, "west": {**ROOTS["west"], "site": "olso"}}}, "did you mean 'oslo'"),
        ({"map": {"site": "leaf", "where": "tmp > 1"}}, "did you mean 'temp'"),
    ],
)
def test_wrong_roots_are_refused(change, what):
    with pytest.raises(DeploymentError, match=what):
        parsed(document(**change))


def test_a_stream_has_one_root_or_roots():
    given = document()
    given["streams"]["weather"]["root"] = "oslo"
    with pytest.raises(DeploymentError, match="`root`, or several `roots`"):
        parsed(given)


@pytest.mark.spark
def test_every_row_of_a_shared_source_has_one_root(spark):
    streams = parsed(document()).streams
    rows = generate("weather", 3, 0, CELLS, width=SIDE, height=SIDE)
    far = rows.slice(0, 2).set_column(0, rows.schema.field(0), pa.array([99, None], rows.schema.field(0).type))
    table = pa.Table.from_batches([rows, far]) if rows.schema.names[0] == "x" else None
    assert table is not None
    table = table.append_column("_dead", pa.array([None] * CELLS + ["bad", None], pa.string()))
    frame = spark.createDataFrame(table.append_column("_raw", pa.nulls(CELLS + 2, pa.string())))
    found = {name: own_rows(frame, each).toArrow() for name, each in streams.items()}
    assert {name: each.num_rows for name, each in found.items()} == {
        "weather-west": 32 + 2,
        "weather-south": 16,
        "weather-north": 16,
    }
    layout = layout_of(streams["weather-south"])
    for batch in found["weather-south"].to_batches():
        x, y = layout.positions(batch)
        assert ((x >= 4) & (y < 4)).all()
    alone = document({**ROOTS, "west": {**ROOTS["west"], "source": {"format": "generator", "kind": "weather"}}})
    dead = own_rows(frame, parsed(alone).streams["weather-west"]).toArrow()["_dead"].to_pylist()
    assert (dead.count(None), dead.count(OUTSIDE), dead.count("bad")) == (32, 33, 1)


async def detached_is_as_handed_over(live: Live) -> None:
    """Go away after the first of several deliveries: the others, read ahead or not, come to whoever reads next."""
    for root, mine in PARTS.items():
        await live.commit(f"weather-{root}", ROWS.filter(pa.array(mine)), 1)
    before = await live.client.subscribe("map")
    async with asyncio.timeout(30), closing(before) as deliveries:
        await anext(deliveries)  # left in the middle, and taken over by the next one
    inbox = await live.client.subscribe("map")
    first = None
    async with asyncio.timeout(30), closing(inbox) as deliveries:
        async for delivery in deliveries:
            assert first is None
            first = delivery
            token = await live.client.detach("map", expires="1 min")
    assert first is not None
    rest = await read(live.client, "map", CELLS - len(first), position=token)
    assert sum(map(len, rest)) == CELLS - len(first)
    cells = {(row["x"], row["y"]) for each in (first, *rest) for row in each.to_pylist()}
    assert len(cells) == CELLS
    await until(lambda: no_difference(live))


@pytest.mark.nats
def test_a_client_reads_all_roots_as_one(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live) -> None:
        for root, mine in PARTS.items():
            await live.commit(f"weather-{root}", ROWS.filter(pa.array(mine)), 0)
        found = await read(live.client, "map", CELLS)
        assert sum(map(len, found)) == CELLS
        cells = {(row["x"], row["y"]) for each in found for row in each.to_pylist()}
        assert len(cells) == CELLS
        # Each delivery's token covers all roots: whoever resumes with it gets exactly what came after it.
        for number in range(len(found)):
            rest = sum(map(len, found[number + 1 :]))
            again = await read(live.client, "map", rest, position=found[number].position) if rest else []
            shown = {(row["x"], row["y"]) for each in (*found[: number + 1], *again) for row in each.to_pylist()}
            assert (sum(map(len, again)), len(shown)) == (rest, CELLS)
        west = await live.client.subscribe("map-west", peek=True)
        for wrong in (west.position, join_positions([]), "none"):
            with pytest.raises(ClientError, match="not a position of 'map'"):
                await live.client.subscribe("map", position=wrong)
        await until(lambda: no_difference(live))
        status = await live.runtime.status()
        assert {name: each["rows_in"] for name, each in status["streams"].items()} == {
            "weather-west": 32,
            "weather-south": 16,
            "weather-north": 16,
        }
        await detached_is_as_handed_over(live)
        box = {"box": {"x": [4.5, 6.5], "y": [0.5, 2.5]}}
        answer = await live.client.control(
            "subscribe", name="map", subscription={"stream": "weather", "site": "leaf", "region": box}, change=True
        )
        assert list(answer["ids"]) == ["map-south"]
        assert sorted((await live.client.snapshot()).subscription_ids) == ["map-south"]
        await live.client.unsubscribe("map")
        assert not (await live.client.snapshot()).subscription_ids

    live_test(tmp_path, nats_url, document(), work)
