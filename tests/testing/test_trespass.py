"""A user without the right asks at random: nothing leaks, nothing changes, and the owner is served."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.fabric.roles import Rights, site_rights
from headgate.model import Grant
from headgate.wire.logs import Logs
from headgate_studies.testing.trespass import campaign

LOGS = Logs()
OTHERS = Rights((LOGS.delivery("root", 1), LOGS.ack(1), LOGS.commit("fleet"), "$JS.API.STREAM.PURGE.HG_STATE"))


def _too_much(*given: Any) -> Rights:
    """What a site may do, and what it should not."""
    rights = site_rights(*given)
    return replace(rights, services=(*rights.services, *OTHERS.services)) if given[1] == "leaf" else rights


FAULTS: dict[str, tuple[str, Any]] = {
    "a gate that looks at no owner": (
        "headgate.service.gate.owned_by",
        lambda snapshot, _: dict(snapshot.deployment.subscriptions),
    ),
    "changes that look at no owner": ("headgate.service.control.check_owned", lambda *_: None),
    "requests that no grant narrows": ("headgate.service.grants.grant_of", lambda *_: Grant()),
    "a site that may do too much": ("headgate.service.roles.site_rights", _too_much),
    "a root that answers anybody": ("headgate.relay.node.may_ask", lambda *_: True),
}


@pytest.mark.long
@pytest.mark.nats
def test_requests_without_the_right_come_to_nothing(tmp_path: Path) -> None:
    outcome = asyncio.run(campaign(seed=7, requests=400, directory=tmp_path))
    assert outcome.wrong == []
    assert outcome.requests == 644
    assert outcome.kinds["in a role"] == 200
    assert outcome.kinds["mqtt subscribe"] + outcome.kinds["mqtt publish"] == 40
    assert outcome.kinds["at the prompt"] == 4
    assert len(outcome.kinds) == 16


@pytest.mark.long
@pytest.mark.nats
@pytest.mark.parametrize("fault", [*FAULTS])
def test_a_planted_fault_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    outcome = asyncio.run(campaign(seed=7, requests=400, directory=tmp_path))
    assert outcome.leaked or outcome.changed
