"""The match pass as a local property of its micro-batch: the same in a task as in the driver, and without a secret."""

from __future__ import annotations

import base64
import zlib

import pytest

from headgate.matching.admission import ToleranceLevel
from headgate.pipeline.match import MatchPass
from headgate.pipeline.planned import PROPERTY, PlannedPass, property_of
from headgate.pipeline.states import IndexRef
from headgate.pipeline.worker import Address
from headgate.protocol.records import Pin
from headgate.wire.logs import Logs

ADDRESS = Address("nats://host:4222", Logs("hg"), {"password": "very-secret"}, credentials_text="also-secret")
WORK = MatchPass(
    ADDRESS,
    "fleet",
    Pin(7, 12, 3, 14, batch=9),
    driver_pid=42,
    row_cost_s=1e-5,
    began_s=1.7e9,
    index=IndexRef("/somewhere", 7, 12),
    levels=(ToleranceLevel(0.1, 3), ToleranceLevel(1.0, 4)),
    in_order=True,
)


def test_a_task_runs_the_pass_that_its_driver_has_set():
    assert PlannedPass(ADDRESS).of(property_of(WORK)) == WORK


def test_what_spark_logs_of_a_micro_batch_has_no_secret():
    told = property_of(WORK)
    plain = zlib.decompress(base64.b85decode(told))
    assert b"fleet" in plain
    assert not any(word in text for word in (b"secret", b"4222") for text in (plain, told.encode()))


def test_a_task_without_a_pass_says_what_is_missing():
    with pytest.raises(RuntimeError, match=PROPERTY):
        PlannedPass(ADDRESS)(iter(()))
