"""A user without the right asks at random: nothing leaks, nothing changes, and the owner is served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate_studies.testing.trespass import campaign


@pytest.mark.nats
def test_requests_without_the_right_come_to_nothing(tmp_path: Path) -> None:
    outcome = asyncio.run(campaign(seed=7, requests=400, directory=tmp_path))
    assert outcome.wrong == []
    assert outcome.requests == 400
    assert len(outcome.kinds) == 11


@pytest.mark.long
@pytest.mark.nats
@pytest.mark.parametrize(
    "fault", ["a gate that looks at no owner", "changes that look at no owner", "grants that are not narrowed"]
)
def test_a_planted_fault_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    if fault == "a gate that looks at no owner":
        monkeypatch.setattr(
            "headgate.service.gate.owned_by", lambda snapshot, _: dict(snapshot.deployment.subscriptions)
        )
    elif fault == "grants that are not narrowed":
        monkeypatch.setattr("headgate.service.grants.Granting.narrowed", lambda _self, wanted, *_: wanted)
        monkeypatch.setattr("headgate.service.grants.Granting.seen", lambda _self, deployment, _: deployment)
    else:
        monkeypatch.setattr("headgate.service.control.check_owned", lambda *_: None)
    outcome = asyncio.run(campaign(seed=7, requests=200, directory=tmp_path))
    assert outcome.leaked or outcome.changed
