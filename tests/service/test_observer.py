"""What links carried, put into figures: bytes for a row and bytes for a message."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.catalog import Snapshot
from headgate.model import Column, Deployment, Links, Plan, Schema, Site, Source, Stream, Subscription, Tree
from headgate.planning.measured import Observed
from headgate.service.hops import Hops
from headgate.service.observer import _fit, calibrated
from headgate.service.status import latencies

SEEN = Observed(100.0, {frozenset({1}): 0.5, frozenset({1, 2}): 0.5}, {"a": 8.0}, 2.0)


def _snapshot() -> Snapshot:
    stream = Stream("s", root="root", schema=Schema((Column("a", pa.float64()),)), source=Source("json"))
    subscriptions = {name: Subscription(name, "s", site) for name, site in (("all", "x"), ("half", "y"))}
    sites = {name: Site(name) for name in ("root", "x", "y")}
    deployment = Deployment({"s": stream}, sites, subscriptions=subscriptions)
    plan = Plan({"s": Tree("s", "root", {"x": "root", "y": "x"})})
    return Snapshot(1, deployment, plan, {"all": 1, "half": 2}, {"all": 1, "half": 2})


def test_rows_and_messages_are_told_apart() -> None:
    # Half of the rows were shed: 12 bytes a row and 40 a message, 20 and 5 messages a second over 10 s.
    links = {("s", "root", "x"): (12 * 500 + 40 * 200, 500, 200), ("s", "x", "y"): (12 * 250 + 40 * 50, 250, 50)}
    found = calibrated("s", _snapshot(), SEEN, links, 10.0)
    assert found.row_bytes == pytest.approx(12.0)
    # As if messages were shed like rows, and what is for y is not counted again for x.
    assert found.overhead == pytest.approx({"x": 40 * 20 / 0.5 - 40 * 5 / 0.5, "y": 40 * 5 / 0.5})


def test_one_link_says_nothing_about_messages() -> None:
    found = calibrated("s", _snapshot(), SEEN, {("s", "root", "x"): (7000, 500, 10)}, 10.0)
    assert found.row_bytes == pytest.approx(14.0)
    assert found.overhead == {"x": 0.0}


def test_links_of_another_plan_are_passed_over() -> None:
    assert calibrated("s", _snapshot(), SEEN, {("s", "root", "y"): (9999, 10, 1)}, 10.0) == SEEN


def test_a_fit_never_gives_messages_a_negative_cost() -> None:
    promised, messages = np.array([1000.0, 1000.0]), np.array([1.0, 100.0])
    of_bytes, of_message = _fit(promised, messages, np.array([1500.0, 1000.0]))
    assert of_message == 0.0
    assert 1.0 <= of_bytes <= 1.5


def test_a_hop_is_what_both_ends_have_measured() -> None:
    relays = {
        "root": {"sent_s": {"x": 0.002, "y": 0.001}},
        "x": {"sent_s": {"z": 0.003}, "arrived_s": {"root": 0.028}},
        "y": {"arrived_s": {"x": 0.5}},
    }
    seen = latencies(relays)
    assert seen == {("root", "x"): 0.03}
    hops = Hops(Links(0.02), seen)
    assert (hops.between("root", "x"), hops.between("x", "root")) == (0.03, 0.03)
    # Nobody uses these: as declared, and 10 ms more, as the link in use has.
    assert hops.between("x", "y") == pytest.approx(0.03)
    assert Hops(Links(0.02)).between("x", "y") == 0.02
    assert Hops(Links(0.02), {("root", "x"): 0.05, ("x", "y"): 0.02}).mean(["root", "x", "y"]) == pytest.approx(0.035)
