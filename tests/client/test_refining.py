"""A map that gets finer while its subscriber looks at it: only what is missing is sent."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest
from tests.client.helpers import live_test, no_difference, read, seqs
from tests.live import Live, sites, until

from headgate.cli.picture import read_field
from headgate.client import ClientError
from headgate.grid import Field, layout_of
from headgate.pipeline.sources import generate

pytestmark = pytest.mark.nats
SIDE, CELLS = 16, 256
WEATHER = {
    "root": "root",
    "source": {"format": "generator", "kind": "weather", "width": SIDE, "height": SIDE, "limit": 1},
    "event_time": "at",
    "grid": {"x": {"column": "x", "size": SIDE}, "y": {"column": "y", "size": SIDE}, "time": {"tick": "step"}},
}


def document(**subscriptions):
    return {
        "sites": sites("root", "leaf"),
        "streams": {"weather": WEATHER},
        "subscriptions": {name: {"stream": "weather", "site": "leaf", **each} for name, each in subscriptions.items()},
    }


def steps(first, past):
    return generate("weather", 3, first * CELLS, past * CELLS, width=SIDE, height=SIDE)


async def fill(live: Live, names: tuple[str, ...], count: int) -> Field:
    async with asyncio.timeout(30), aclosing(live.client.field(*names, values=("temp",))) as fields:
        return await anext(field async for field in fields if field.points >= count)


def test_a_finer_resolution_holds_from_then_on_and_nothing_comes_twice(tmp_path: Path, nats_url: str) -> None:
    quarter = {"resolution": {"space": "1/4"}}

    async def work(live: Live) -> None:
        await live.commit("weather", steps(0, 2), 0)
        before = await read(live.client, "map", CELLS // 2)
        missing = await live.client.refine("map", space="1/2")
        assert missing == [{"space": ["1/4", "1/2"]}]
        await live.commit("weather", steps(2, 3), 1)
        after = await read(live.client, "map", CELLS // 2)
        found = seqs(before) + seqs(after)
        assert len(found) == len(set(found)) == CELLS
        # Somebody else has the missing quarter already, so the log holds its past: it comes alone.
        old = {"stream": "weather", "site": "leaf", "resolution": missing[0], "start": "earliest"}
        await live.client.subscribe("past", **old)
        await live.commit("weather", steps(3, 4), 2)
        past = await read(live.client, "past", 4 * CELLS // 4)
        assert len(seqs(past)) == CELLS
        assert set(seqs(past)).isdisjoint(seqs(before))
        layout = layout_of(live.runtime.catalog.snapshot().deployment.streams["weather"])
        assert layout is not None
        field = Field(layout, ("temp",))
        for delivery in before:
            field.add(delivery.rows)
        assert np.isfinite(field.at("temp", 0)).mean() == 0.25
        for delivery in past:
            field.add(delivery.rows)
        assert np.isfinite(field.at("temp", 0)).mean() == 0.5
        assert np.isfinite(field.at("temp", 1)[:, ::2]).mean() == 1.0  # every second point, evenly
        await live.commit("weather", steps(4, 5), 3)
        whole = await fill(live, ("map", "past"), 2 * CELLS // 2 + CELLS // 4)
        assert whole.kept == (3, 4)
        assert whole.to_xarray()["temp"].notnull().mean() == 0.5

        # What it has is drawn while it runs: read before or not, and nothing is acknowledged by looking.
        async def drawn() -> bool:
            seen = await read_field(live.client, ["map", "past"], "temp", 0.5)
            return [np.isfinite(seen.at("temp", step)).mean() for step in seen.kept] == [0.5] * 5

        await until(drawn)
        with pytest.raises(ClientError, match="did you mean 'map'"):
            await live.client.refine("mpa", space="1/2")
        with pytest.raises(ClientError, match="lacks nothing of that resolution"):
            await live.client.refine("map", space="1/4", add="finer")
        with pytest.raises(ClientError, match="asks for nothing"):
            await live.client.refine("map", space="0")
        await read(live.client, "other", 5 * CELLS // 4)
        await until(lambda: no_difference(live))

        # The same in one step: `other` stays, and what it lacks of one half comes by itself, with its past.
        assert await live.client.refine("other", space=["0", "1/2"], add="rest") == [{"space": ["0", "1/4"]}]
        await live.commit("weather", steps(5, 6), 4)
        rest = await read(live.client, "rest", 3 * CELLS // 4)
        held = Field(layout, ("temp",))
        for delivery in rest:
            held.add(delivery.rows)
        assert [np.isfinite(held.at("temp", step)).mean() for step in (0, 1, 5)] == [0.25] * 3
        for delivery in await read(live.client, "other", CELLS // 4):
            held.add(delivery.rows)
        assert np.isfinite(held.at("temp", 5)).mean() == 0.5
        await read(live.client, "map", CELLS // 2)
        await read(live.client, "past", CELLS // 4)
        await until(lambda: no_difference(live))

    live_test(tmp_path, nats_url, document(map=quarter, other={"resolution": {"space": ["1/4", "1/2"]}}), work)
