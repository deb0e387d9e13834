"""How long the root log of a stream is kept, in virtual time: as its `keep` says, else while there is room."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.pipeline.recorded_data import Pace
from headgate.relay.history import MARGIN_S
from headgate.replay.variants import make_variants
from headgate.replay.world import ReplayWorld
from tests.replay.recorded_rows import FIRST_US, fleet
from tests.replay.test_replay import matched

_S = 1_000_000


class KeepingWorld(ReplayWorld):
    """A world whose root log only its relay deletes from."""

    def _forget(self, stream: str) -> None:
        del stream


def second_by_second(count: int) -> pa.Table:
    """A row in every second."""
    times = pa.array([FIRST_US + number * _S for number in range(count)]).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"at": times, "unit": range(count), "speed": [70.0] * count, "zone": ["z1"] * count})


@pytest.mark.parametrize("keep_s", [None, 60.0])
def test_rows_go_when_they_are_older_than_their_stream_keeps_them(tmp_path: Path, keep_s: float | None) -> None:
    deployment = fleet(tmp_path)
    streams = {"fleet": replace(deployment.streams["fleet"], keep_s=keep_s)}
    (variant,) = make_variants(replace(deployment, streams=streams), [], [])
    world = KeepingWorld(variant, FIRST_US / 1e6, lambda *_: None)
    rows = 200
    for end_s, tick in matched(variant, second_by_second(rows), Pace()):
        world.commit("fleet", end_s, tick, lags=True)
    world.finish()
    log, logs = world.fabric.server.log(world.logs.root("fleet")), world.logs
    kept = log.subjects(logs.part("fleet"))[logs.part("fleet")]
    if keep_s is None:
        assert kept == rows
    else:
        assert keep_s + MARGIN_S - 1 <= kept <= keep_s + MARGIN_S + 5
