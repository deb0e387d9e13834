"""Stages from an event to its commit: they add up, whatever was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.status_sheets import notes
from headgate.pipeline.waterfall import STAGES, BatchTimes

SPARK = {"latestOffset": 20, "getBatch": 5, "walCommit": 30, "queryPlanning": 10, "addBatch": 400}


def test_stages_add_up_to_the_age_of_rows_at_their_commit() -> None:
    times = BatchTimes(lag_s=0.9, pin_s=0.01, tasks_s=0.25, work_s=0.2, match_s=0.12, commit_s=0.02, tasks=2)
    found = times.waterfall(SPARK)
    assert tuple(found) == STAGES
    assert sum(found.values()) == pytest.approx(0.9, abs=1e-3)
    assert found["source"] == pytest.approx(0.055)
    assert found["planning"] == pytest.approx(0.02)
    assert (found["match"], found["stage"], found["Python start"]) == (0.06, 0.04, 0.15)


@given(st.lists(st.floats(0.0, 10.0), min_size=6, max_size=6), st.integers(0, 8))
def test_no_stage_is_negative(seconds: list[float], tasks: int) -> None:
    assert min(BatchTimes(*seconds, tasks=tasks).waterfall(SPARK).values()) >= 0.0


def test_status_says_where_the_time_went() -> None:
    job = {"latency_s": {"trigger wait": 0.4, "commit": 0.02}}
    document = {"streams": {"fleet": {"job": job}, "idle": {"job": {}}}, "subscriptions": {}}
    assert notes(document) == ["stream fleet, ms from the event to the commit: trigger wait 400, commit 20"]
