"""The example that asks for less when it loses rows, against a live deployment."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tests.client.helpers import live_test, no_difference
from tests.live import Live, sites, until

from headgate.fabric import cancel_all
from headgate.pipeline.sources import generate
from headgate.relay.tables import Tables

EXAMPLE = Path(__file__).parents[2] / "examples" / "coarser_on_loss" / "coarser_on_loss.py"
DOCUMENT: dict[str, Any] = {
    "sites": sites("oslo", "ship"),
    "streams": {
        "weather": {
            "root": "oslo",
            "source": {"format": "generator", "kind": "weather", "seed": 3},
            "key": ["x", "y"],
            "event_time": "at",
            "grid": {"x": {"column": "x", "size": 32}, "y": {"column": "y", "size": 32}, "time": {"tick": "step"}},
        }
    },
}


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("coarser_on_loss", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.nats
def test_it_asks_for_less_on_sustained_loss_and_for_everything_again_when_calm(tmp_path: Path, nats_url: str) -> None:
    example = _example()

    async def work(live: Live) -> None:
        said: list[str] = []
        switch = example.Switch(window=2, calm=2)
        following = asyncio.create_task(
            example.follow(live.client, switch, max_rows=400, batch_rows=200, tell=said.append)
        )
        try:
            batch = 0
            await until(lambda: _made(live))
            for wanted in ("asking for a sixteenth of the cells", "asking for every cell"):
                while wanted not in said:
                    await live.commit("weather", generate("weather", 3, 1024 * batch, 1024 * (batch + 1)), batch)
                    batch += 1
                    await until(lambda upto=1024 * batch: _came(following, said, upto))
            await until(lambda: no_difference(live))
        finally:
            await cancel_all([following])
        assert any(line.startswith("level: 0 -> ") for line in said)
        assert any(line.startswith("digest: given up here {'every'") for line in said)
        assert said.index("asking for a sixteenth of the cells") < said.index("asking for every cell")

    async def _made(live: Live) -> bool:
        return "my-map" in (await anext(Tables(live.client.fabric).heads())).subscription_ids

    async def _came(following: asyncio.Task[None], said: list[str], upto: int) -> bool:
        if following.done():
            following.result()
        return any(f" up to {upto}," in line for line in said)

    live_test(tmp_path, nats_url, DOCUMENT, work)


def test_the_switch_needs_sustained_loss_and_sustained_calm() -> None:
    switch = _example().Switch(window=3, calm=2)
    assert [switch.decide(8, 2) for _ in range(3)] == [False, False, False]  # a fifth is tolerated
    assert [switch.decide(10, 90), switch.coarse] == [True, True]
    assert [switch.decide(10, lost) for lost in (0, 5, 0, 0)] == [False, False, False, True]
    assert not switch.coarse
