"""What waits for a subscription on its path, from what the relays report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.relay.test_bounds import block, child, receiver

from headgate.cli.status_sheets import queue_tables
from headgate.model import Deployment, Plan, Site, Subscription, Tree
from headgate.protocol.reports import RelayReport
from headgate.relay.output import Output, QueueLimits
from headgate.service.status import queued_for
from headgate.wire.snapshot import Snapshot

NAMES = {"bounded": (1, 7), "whole": (2, 7), "other": (3, 9)}


def _snapshot() -> Snapshot:
    plan = Plan({"s": Tree("s", "root", {"mid": "root", "leaf": "mid"})})
    deployment = Deployment(
        streams={},
        sites={name: Site(name) for name in ("root", "mid", "leaf")},
        subscriptions={name: Subscription(name, "s", "leaf") for name in NAMES},
    )
    ids = {name: identity for name, (identity, _) in NAMES.items()}
    classes = {name: class_id for name, (_, class_id) in NAMES.items()}
    return Snapshot(1, deployment, plan, ids, classes)


def test_rows_bytes_and_waits_are_summed_over_the_path() -> None:
    receivers = (receiver(1, 7, {"max_rows": 50}), receiver(2, 7, None), receiver(3, 9, None))
    first, second, inbox = (Output(QueueLimits()) for _ in range(3))
    first.offer(block(101, 100, [7]), child(*receivers), 100.0)
    second.offer(block(41, 60, [7]), child(*receivers), 104.0)
    inbox.offer(replace(block(1, 40, [7]), classes=None), receivers[0], 107.0)
    queues = {"root": ("to~s~mid", first), "mid": ("to~s~leaf", second), "leaf": ("sub~s~1~0", inbox)}
    relays = {}
    for site, (token, output) in queues.items():
        report = RelayReport(site=site, time_ms=0, outputs={token: output.report(110.0)})
        relays[site] = RelayReport.decode(report.encode())
    found = {name: queued_for(_snapshot(), name, relays) for name in NAMES}
    assert found["whole"]["queued_rows"] == 160
    assert found["whole"]["queued_s"] == pytest.approx(16.0), "10 s on one link, 6 s on the other"
    assert set(found["whole"]["queues"]) == {"root->mid", "mid->leaf"}
    bounded = found["bounded"]
    assert [queue["rows"] for queue in bounded["queues"].values()] == [45, 45, 40], "fifty in each queue, less headroom"
    assert bounded["queued_rows"] == 130
    assert bounded["queued_s"] == pytest.approx(19.0)
    assert bounded["queued_bytes"] == sum(queue["bytes"] for queue in bounded["queues"].values()) >= 130 * 16
    assert found["other"] == {"queued_rows": 0, "queued_bytes": 0, "queued_s": 0, "queues": {}}
    (table,) = queue_tables({"subscriptions": found})
    assert table.row_count == 2
