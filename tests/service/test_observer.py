"""What links carried, put into figures: bytes for a row, link by link."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headgate.model import Column, Deployment, Links, Plan, Schema, Site, Source, Stream, Subscription, Tree
from headgate.planning.measured import Observed
from headgate.protocol.reports import RelayReport
from headgate.service.hop_delays import Hops
from headgate.service.link_status import latencies
from headgate.service.observer import calibrated
from headgate.wire.snapshot import Snapshot

SEEN = Observed(100.0, {frozenset({1}): 0.5, frozenset({1, 2}): 0.5}, {"a": 8.0}, 2.0)


def _snapshot() -> Snapshot:
    stream = Stream("s", root="root", schema=Schema((Column("a", pa.float64()),)), source=Source("json"))
    subscriptions = {name: Subscription(name, "s", site) for name, site in (("all", "x"), ("half", "y"))}
    sites = {name: Site(name) for name in ("root", "x", "y")}
    deployment = Deployment({"s": stream}, sites, subscriptions=subscriptions)
    plan = Plan({"s": Tree("s", "root", {"x": "root", "y": "x"})})
    return Snapshot(1, deployment, plan, {"all": 1, "half": 2}, {"all": 1, "half": 2})


def test_every_link_has_the_bytes_that_it_carried() -> None:
    # Half of the rows were shed: 28 bytes a row on one link, 20 on the other, where 10 were promised.
    links = {("s", "root", "x"): (28 * 500, 500, 200), ("s", "x", "y"): (20 * 250, 250, 50)}
    found = calibrated("s", _snapshot(), SEEN, links)
    assert found.row_bytes == pytest.approx(76 / 3)
    assert found.bulk == pytest.approx({"x": 28 * 3 / 76, "y": 20 * 3 / 76})


def test_a_link_that_carried_next_to_nothing_is_believed_only_so_far() -> None:
    found = calibrated("s", _snapshot(), SEEN, {("s", "root", "x"): (7000, 500, 10), ("s", "x", "y"): (900, 1, 1)})
    assert found.bulk["y"] == 4.0


def test_links_of_another_plan_are_passed_over() -> None:
    assert calibrated("s", _snapshot(), SEEN, {("s", "root", "y"): (9999, 10, 1)}) == SEEN


def test_a_hop_is_what_both_ends_have_measured() -> None:
    relays = {
        "root": RelayReport(site="root", time_ms=0, sent_s={"x": 0.002, "y": 0.001}),
        "x": RelayReport(site="x", time_ms=0, sent_s={"z": 0.003}, arrived_s={"root": 0.028}),
        "y": RelayReport(site="y", time_ms=0, arrived_s={"x": 0.5}),
    }
    seen = latencies(relays)
    assert seen == {("root", "x"): 0.03}
    hops = Hops(Links(0.02), seen)
    assert (hops.between("root", "x"), hops.between("x", "root")) == (0.03, 0.03)
    # Nobody uses these: as declared, and 10 ms more, as the link in use has.
    assert hops.between("x", "y") == pytest.approx(0.03)
    assert Hops(Links(0.02)).between("x", "y") == 0.02
    assert Hops(Links(0.02), {("root", "x"): 0.05, ("x", "y"): 0.02}).mean(["root", "x", "y"]) == pytest.approx(0.035)
