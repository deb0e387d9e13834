"""Control under overload, on an engine whose costs and state are plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.matching import ClassLists, MatchingError
from headgate.matching.admission import (
    METHODS,
    PRESETS,
    BatchGate,
    Batching,
    Costs,
    LearnedCosts,
    Requirement,
    ShedBoth,
    Shedder,
    ShedUpdates,
    TraditionalEager,
    WaitingEvents,
    choose,
    estimate_errors,
    make_method,
    victims_first,
)
from headgate_studies.models.fine_grained import FineGrained
from headgate_studies.models.replay import Events, compare, replay, replay_groups

COSTS = Costs(0.004, 0.001, 0.0004, 0.0001)


class Counting:
    """State is the last update; a message matches the class of that number. Costs what `COSTS` says, times `slower`."""

    def __init__(self, slower=1.0):
        self.state = 0
        self.slower = slower
        self.matched = []

    def match(self, events, *, batched):
        self.matched.extend(events.tolist())
        each = COSTS.batched_message_s if batched else COSTS.message_s
        return ClassLists.of([[self.state]] * len(events)), self.slower * each * len(events)

    def update(self, events, *, batched, lazy):
        self.state = int(events[-1]) if len(events) else self.state
        return self.slower * (COSTS.batched_update_s if batched else COSTS.update_s) * len(events)


def burst(seed=1, messages=400, updates=1200, span=1.0):
    """About 2.8 seconds of work in order, in one second."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, span, messages + updates))
    return Events(times, rng.permutation(np.arange(messages + updates) < updates))


EVENTS = burst()
TRUTH = replay(EVENTS, TraditionalEager(), Counting(), COSTS)


def test_traditional_makes_no_errors_and_falls_behind():
    assert TRUTH.shed_messages == TRUTH.shed_updates == 0
    assert np.nanmax(TRUTH.latencies_s) > 1.5
    expected = np.maximum.accumulate(np.where(EVENTS.is_update, np.arange(len(EVENTS.times)), 0))[~EVENTS.is_update]
    assert TRUTH.lists.ids.tolist() == expected.tolist()
    adaptive = replay(EVENTS, make_method("traditional adaptive", 1), Counting(), COSTS)
    assert adaptive.lists.same(TRUTH.lists)


@pytest.mark.parametrize("name", ["shed messages", "shed both", "hybrid"])
def test_bounds_are_held(name):
    outcome = replay(EVENTS, make_method(name, 0.4 if name == "hybrid" else 0.9), Counting(), COSTS)
    # A message may start just inside the bound and end one message later.
    assert np.nanmax(outcome.latencies_s) <= (0.4 if name == "hybrid" else 0.9) + 0.1


def test_errors_are_of_the_kinds_that_the_paper_names():
    found = {}
    for name in METHODS:
        outcome = replay(EVENTS, make_method(name, 0.5), Counting(), COSTS)
        extra, missing = compare(outcome, TRUTH)
        found[name] = int(extra.sum()), int(missing.sum()), outcome
    assert found["traditional eager"][:2] == found["batching (arrival)"][:2] == (0, 0)
    extra, missing, outcome = found["shed messages"]
    assert (extra, missing) == (0, outcome.shed_messages)
    assert missing > 100
    extra, missing, outcome = found["shed updates"]
    assert outcome.shed_updates > 0
    assert outcome.shed_messages == 0
    assert extra == missing > 0
    for order in ("updates first", "messages first"):
        extra, missing, outcome = found[f"batching ({order})"]
        assert outcome.shed_messages == outcome.shed_updates == 0
        assert extra == missing > 0
    both = sum(found["shed both"][:2])
    assert sum(found["hybrid"][:2]) < both


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1000), st.sampled_from(sorted(METHODS)), st.floats(0.05, 2.0), st.floats(0.3, 5.0))
def test_every_event_is_handled_once_and_batches_end_in_the_true_state(seed, name, bound, slower):
    events = burst(seed, 60, 150, 0.4)
    engine, plain = Counting(slower), Counting(slower)
    outcome = replay(events, make_method(name, bound, seed), engine, COSTS)
    replay(events, TraditionalEager(), plain, COSTS)
    messages = np.flatnonzero(~events.is_update)
    assert len(set(engine.matched)) == len(engine.matched) == len(messages) - outcome.shed_messages
    assert int(np.isnan(outcome.latencies_s).sum()) == outcome.shed_messages
    assert (outcome.latencies_s[~np.isnan(outcome.latencies_s)] > 0).all()
    if outcome.shed_updates == 0:
        assert engine.state == plain.state


def test_a_limit_on_batch_time_cuts_batches_from_the_front():
    waiting = WaitingEvents(np.arange(0, 100, 2), np.arange(1, 100, 2), np.zeros(100))
    steps = Batching("updates first", limit_s=0.005).plan(waiting, 0.0, COSTS)
    taken = np.sort(np.concatenate([step.events for step in steps]))
    assert taken.tolist() == list(range(len(taken)))
    assert COSTS.work(len(steps[1].events), len(steps[0].events), batched=True) <= 0.005
    whole = Batching("updates first").plan(waiting, 0.0, COSTS)
    assert sum(len(step.events) for step in whole) == 100


def test_preference_and_worth_choose_the_victims():
    waiting = WaitingEvents(np.arange(0, 2000, 2), np.arange(1, 2000, 2), np.zeros(2000))
    keep_messages = ShedBoth(Shedder(4.5), messages_share=0.0).plan(waiting, 0.0, COSTS)
    assert [step.kind for step in keep_messages][:1] == ["shed updates"]
    worth = ShedBoth(Shedder(4.5, worth=lambda events: -events.astype(float)), messages_share=1.0)
    victims = worth.plan(waiting, 0.0, COSTS)[0].events
    assert 0 < len(victims) < 999
    assert victims.tolist() == np.arange(0, 1998, 2)[-len(victims) :].tolist()
    # By expression: marked updates go first, at random among themselves, and messages by their own worth.
    marked = np.arange(2000) < 1000
    for chooser in (ShedBoth(Shedder(4.5, 7, update_worth=victims_first(marked)), 0.3), ShedUpdates(Shedder(4.5, 7))):
        steps = {step.kind: step.events for step in chooser.plan(waiting, 0.0, COSTS)}
        gone = steps["shed updates"]
        assert 0 < len(gone) < 999
        early = marked[gone].sum()
        assert early == min(500, len(gone)) if chooser.name == "shed both" else early < len(gone)


def test_messages_are_all_shed_while_updates_alone_leave_no_time():
    events = burst(3, 60, 4000)  # four seconds of updates in one
    truth = replay(events, TraditionalEager(), Counting(), COSTS)
    outcome = replay(events, make_method("shed messages", 0.5), Counting(), COSTS)
    assert np.nanmax(truth.latencies_s) > 2.5
    assert np.nanmax(outcome.latencies_s) <= 0.5
    assert 0 < outcome.shed_messages < 60
    assert outcome.shed_updates == 0
    extra, missing = compare(outcome, truth)
    assert (extra.sum(), missing.sum()) == (0, outcome.shed_messages)


def test_learned_costs_follow_what_was_measured():
    learned = LearnedCosts(Costs.alone(1.0, 1.0))
    replay(EVENTS, make_method("shed both", 0.5), Counting(slower=2.0), learned)
    assert learned.current.message_s == pytest.approx(2.2 * COSTS.message_s, rel=0.05)
    assert learned.current.batched_message_s == 1.0


def test_the_front_end_picks_what_a_scenario_needs():
    chosen = {name: choose(need).name for name, need in PRESETS.items()}
    assert chosen == {
        "e-science": "traditional adaptive",
        "sports results": "shed messages",
        "location based service": "hybrid",
        "load balancing": "shed both",
    }
    assert choose(Requirement(bound_s=1.0)).name == "batching (arrival)"
    with pytest.raises(MatchingError, match="no method 'pray'"):
        make_method("pray", 1.0)


def test_groups_of_classes_take_turns_by_the_time_left():
    fast, slow = Requirement(bound_s=1.0, false_negatives=True), Requirement()
    grouped = FineGrained.of({1: slow, 2: fast})
    some, none = (
        WaitingEvents(np.array([0]), np.array([], int), np.zeros(1)),
        WaitingEvents(np.array([], int), np.array([], int), np.zeros(1)),
    )
    assert grouped.turn([some, some], 0.5) == 0
    assert grouped.turn([none, some], 0.5) == 1
    assert grouped.turn([none, none], 0.5) is None


def test_groups_keep_their_own_requirements_on_one_processor():
    fast, careful = Requirement(bound_s=0.5, false_negatives=True), Requirement()
    grouped = FineGrained.of({1: careful, 2: fast})
    parity = np.arange(len(EVENTS.times)) % 2 == 0
    owned = [EVENTS.is_update & parity, EVENTS.is_update & ~parity]
    quick, exact = replay_groups(EVENTS, grouped, [Counting(), Counting()], owned, [COSTS, COSTS])
    assert np.nanmax(quick.latencies_s) <= 0.5 + 0.1
    assert quick.shed_messages > 0
    assert exact.shed_messages == exact.shed_updates == 0
    numbers = np.where(owned[1], np.arange(len(EVENTS.times)), 0)
    assert exact.lists.ids.tolist() == np.maximum.accumulate(numbers)[~EVENTS.is_update].tolist()
    assert np.nanmax(exact.latencies_s) > 1.0


def test_the_gate_sheds_the_same_rows_of_a_replayed_batch():
    gate = BatchGate.of("hybrid", 2.0, {"seed": 3})
    first, again = gate.admit(5, 1000, 1.5, 0.001), gate.admit(5, 1000, 1.5, 0.001)
    assert first.shed == 550
    assert np.array_equal(first.keep, again.keep)
    assert not np.array_equal(first.keep, gate.admit(6, 1000, 1.5, 0.001).keep)
    assert gate.admit(5, 100, 1.5, 0.001).shed == 0
    assert gate.admit(5, 100, 9.0, 0.001).shed == 99
    assert BatchGate("traditional", None).admit(5, 100, 9.0, 1.0).shed == 0
    with pytest.raises(MatchingError, match="needs a latency bound"):
        BatchGate("shed", None)
    with pytest.raises(MatchingError, match="no admission method"):
        BatchGate("drop", 1.0)


def test_a_sample_estimates_errors_with_an_interval():
    rng = np.random.default_rng(4)
    errors = rng.poisson(3.0, 5000)
    inside = 0
    for _ in range(200):
        found = estimate_errors(rng.choice(errors, 200, replace=False).tolist(), len(errors))
        inside += found.low <= errors.sum() <= found.high
    assert inside >= 180
    assert estimate_errors([], 0).high == 0.0
