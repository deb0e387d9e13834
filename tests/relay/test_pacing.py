"""A child says what its link delivers, and its parent sends no more than that."""

from types import SimpleNamespace

import pytest

from headgate.model import Deployment, Link, Links, Site
from headgate.protocol.kernel import Machine
from headgate.protocol.port import MachinePort
from headgate.protocol.records import RangeRequest
from headgate.relay.budget import Budgets
from headgate.relay.meters import LinkMeter
from headgate.relay.pacing import Pacing
from headgate.relay.stand_in import StandIn
from headgate.relay.state import SiteState
from headgate.wire.logs import Logs

ENDS = frozenset(("root", "leaf"))


def deployment(*, follow: bool = False, hosts: bool = False) -> Deployment:
    links = Links(pairs={ENDS: Link(ENDS, 0.02, 4000.0, follow=follow)})
    return Deployment({}, {"root": Site("root"), "leaf": Site("leaf", nats="private" if hosts else None)}, links=links)


def relay_state(site: str, budgets: Budgets | None) -> SiteState:
    """What a relay knows, without anything that runs."""
    machine = Machine(site)
    state = SiteState(machine, MachinePort(machine, Logs(), 8 << 20), site, None)
    state.budgets, state.alone = budgets, budgets is None
    return state


def parent(declared: Deployment) -> tuple[Budgets, StandIn]:
    budgets = Budgets(declared)
    return budgets, StandIn(relay_state("root", budgets), None)  # type: ignore[arg-type] # asked about no range


def said(rate: float, used: float, queue_s: float) -> RangeRequest:
    asked = RangeRequest(stream="s", after=0, upto=0, child="leaf", beat=True, pace=(rate, used, queue_s))
    return RangeRequest.decode(asked.encode())


def test_a_parent_sends_no_more_than_its_child_says_that_comes():
    budgets, answering = parent(deployment())
    budgets.spend("root", "leaf", 800, 0.0)
    assert answering.reached(said(1000.0, 1000.0, 0.8)) == 0
    assert budgets.rate("root", "leaf") == pytest.approx(650.0)
    assert budgets.bounds("root") == {"leaf": 650.0}
    for _ in range(20):
        answering.reached(said(1000.0, 4000.0, 0.0))
    assert (budgets.rate("root", "leaf"), budgets.bounds("root")) == (4000.0, {})


def test_a_measured_bandwidth_may_be_more_than_the_declared_one():
    budgets, answering = parent(deployment(follow=True))
    for _ in range(4):
        answering.reached(said(0.0, budgets.rate("root", "leaf") or 0.0, 0.0))
    assert budgets.rate("root", "leaf") == pytest.approx(4000.0 * 1.25**4)


def test_a_changed_rate_gives_nobody_a_burst():
    budgets = Budgets(deployment())
    budgets.spend("root", "leaf", 800, 0.0)
    owed_s = 0.1  # of 4,000 bytes a second 400 are saved up at first
    budgets.update(deployment())
    assert not budgets.ready("root", "leaf", 0.99 * owed_s)
    assert budgets.ready("root", "leaf", 1.01 * owed_s)


@pytest.mark.parametrize(("shared", "hosts", "real"), [(True, False, False), (True, True, True), (False, False, True)])
def test_links_between_relays_of_one_process_are_not_spoken_of(shared: bool, hosts: bool, real: bool):
    made = deployment(hosts=hosts)
    state = relay_state("leaf", Budgets(made) if shared else None)
    state.newest = SimpleNamespace(deployment=made)  # type: ignore[assignment] # nothing else of it is read
    assert Pacing(state)._to_say("root", late_link()) == real


def late_link() -> LinkMeter:
    """A meter of a link on which messages wait, the last of which came now."""
    meter = LinkMeter()
    for tenth in range(10):
        meter.note(100, tenth / 20, tenth / 10, 0.0)
    return meter
