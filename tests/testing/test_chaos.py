"""One of each kill: the driver at three points, a relay at two, the NATS server, with other partition counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate_studies.testing.chaos import DRIVER_KILLS, RELAY_KILLS, run_round

pytestmark = [pytest.mark.live, pytest.mark.long]


def test_every_subscriber_has_every_row_exactly_once_after_every_kill(tmp_path: Path) -> None:
    outcome = asyncio.run(run_round(tmp_path / "state with space"))
    assert outcome.wrong == []
    assert [each.name for each in tmp_path.iterdir()] == ["state with space"]
    assert (tmp_path / "state with space" / "checkpoints" / "fleet" / "spark" / "offsets").is_dir()
    assert outcome.driver_kills == len(DRIVER_KILLS)
    assert outcome.relay_kills == len(RELAY_KILLS)
    assert outcome.server_kills == 1
    assert outcome.matched > outcome.rows > 0
