"""A few rounds of state that is moved away, put back and exchanged."""

import asyncio
from pathlib import Path

import pytest

from headgate_studies.testing.exchanged import run_rounds


@pytest.mark.live
@pytest.mark.long
def test_nobody_loses_rows_without_being_told(tmp_path: Path) -> None:
    outcome = asyncio.run(run_rounds(tmp_path, rounds=3, seed=5))
    assert outcome.wrong == []
    assert (outcome.rounds, outcome.refused_starts) == (3, 3)
