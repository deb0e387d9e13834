"""How long the demo waits: for minutes as long as anything moves, and it says what for."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.errors import HeadgateError
from headgate.service.demo.patience import GIVE_UP_S, SAY_S, Patience, check_starts


def status(rows: int = 0, delivered: int = 0, report_ms: int = 0, state: str = "running") -> dict[str, Any]:
    job = {"state": state, "time_ms": report_ms, "error": "no such file"}
    return {
        "job": {"state": "ready", "time_ms": 0},
        "streams": {"fleet": {"rows_in": rows, "job": job}},
        "subscriptions": {
            "near": {"delivered": delivered, "reduced": 0, "expired": 0, "in_flight": 0},
            "far": {"delivered": 0, "reduced": 0, "expired": 0, "in_flight": 100 - delivered},
        },
    }


def test_a_micro_batch_of_ten_minutes_is_waited_for_and_named() -> None:
    """Rows stand still, and now and then the job reports: on a busy machine that is all there is to see."""
    patience = Patience("job.log")
    assert patience.look(status(), 0.0, 0) == ""
    assert patience.look(status(), SAY_S - 1, 0) == ""
    for minute in range(1, 60):
        said = patience.look(status(report_ms=minute), 60.0 * minute, 0)
        assert said.startswith(f"waiting for {60 * minute:,} s: the Spark job runs a micro-batch")
    assert patience.look(status(rows=1, report_ms=59), 3600.0, 0) == ""


def test_it_gives_up_when_nothing_at_all_moves() -> None:
    patience = Patience("state/job.log")
    patience.look(status(), 0.0, 0)
    patience.look(status(), GIVE_UP_S, 0)
    with pytest.raises(HeadgateError, match=r"nothing has moved for 10 minutes: .* \(see state/job.log\)"):
        patience.look(status(), GIVE_UP_S + 1, 0)


def test_it_says_what_it_waits_for() -> None:
    failed = Patience("job.log")
    failed.look(status(state="failed"), 0.0, 0)
    assert failed.look(status(state="failed"), 20.0, 0).endswith(
        "stream fleet has failed and is tried again: no such file"
    )
    draining = Patience("job.log")
    draining.look(status(delivered=10), 0.0, 0, draining=True)
    assert draining.look(status(delivered=20), 15.0, 0, draining=True) == ""
    assert draining.look(status(delivered=20), 30.0, 0, draining=True) == (
        "waiting for 15 s: 80 rows are on their way to 1 subscribers, most of them to far"
    )


def test_a_job_that_cannot_start_is_not_waited_for() -> None:
    check_starts(2, "job.log")
    with pytest.raises(HeadgateError, match=r"ended 3 times before it took a row \(see job.log\)"):
        check_starts(3, "job.log")
