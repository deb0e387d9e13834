"""A short run of the campaign of garbage, over the subjects that are not read by relays and readers of inboxes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate_studies.testing.garbage import run

pytestmark = [pytest.mark.nats, pytest.mark.live]


@pytest.mark.long
def test_nothing_ends_by_a_message_that_cannot_be_read(tmp_path: Path) -> None:
    outcome = asyncio.run(run(24, 7, tmp_path, relay=False, tell=lambda _: None))
    assert outcome.wrong == []
    assert outcome.rounds >= 24
    assert outcome.named > outcome.rounds / 3
    assert {text.rsplit(", ", 1)[1] for text in outcome.kinds} == {"running", "starting"}
