"""What the status says of links: declared, measured, used and allowed rates, and which declaration is wrong."""

import pytest

from headgate.model import Deployment, Link, Links, Site
from headgate.protocol.reports import ArrivalReport, RelayReport
from headgate.service.link_status import full_links, links_now

ENDS = frozenset(("a", "b"))


def link(rate: float, *, busy: bool, bound: float | None = None, follow: bool = False) -> dict[str, object]:
    """The link from a to b, declared with 1,000 bytes a second."""
    links = Links(pairs={ENDS: Link(ENDS, 0.01, 1000.0, follow=follow)})
    deployment = Deployment({}, {"a": Site("a", 8000.0), "b": Site("b")}, links=links)
    sender = RelayReport(
        site="a",
        time_ms=1,
        link_bytes={"s:b": 9},
        link_messages={"s:b": 1},
        bounds={} if bound is None else {"b": bound},
    )
    seen = ArrivalReport(bytes=9, used_bytes_per_s=200.0, rate_bytes_per_s=rate, queue_s=0.5, busy=busy)
    relays = {"a": sender, "b": RelayReport(site="b", time_ms=1, taken={"a": seen})}
    assert full_links(relays) == ({("a", "b"): rate} if busy and bound is not None else {})
    return links_now(deployment, relays)["a->b"]


@pytest.mark.parametrize(
    ("rate", "busy", "off"),
    [
        (250.0, True, "declared 4.0 times too high"),
        (250.0, False, None),  # nothing more was sent
        (4000.0, False, "declared 4.0 times too low"),
        (4000.0, True, "declared 4.0 times too low"),
        (1200.0, True, None),
        (0.0, False, None),
    ],
)
def test_a_declared_bandwidth_that_is_wrong_is_spoken_of(rate: float, busy: bool, off: str | None):
    found = link(rate, busy=busy)
    assert (found["declared_bytes_per_s"], found["measured_bytes_per_s"]) == (1000.0, rate or None)
    assert found["off"] == off


def test_the_budget_is_the_smaller_of_what_is_declared_and_measured():
    assert link(250.0, busy=True, bound=240.0)["budget_bytes_per_s"] == 240.0
    assert link(250.0, busy=True)["budget_bytes_per_s"] == 1000.0
    assert link(4000.0, busy=True, bound=3900.0, follow=True)["budget_bytes_per_s"] == 3900.0
