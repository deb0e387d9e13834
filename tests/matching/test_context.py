"""Context state: updates in one order with messages, pinned positions, replays that give the same rows."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.filters import parse_filter
from headgate.matching import ClassSpec, MatchingError, ScanIndex
from headgate.matching.context import ContextState, ContextUpdate
from headgate.matching.definitions import ClassDefinition, RowReading, grouped
from headgate.matching.live import LiveIndex
from headgate.matching.skipped import Skipped
from headgate.model import Schema

SCHEMA = Schema.of({"x": "double", "s": "string"})
TYPES = {"centre": pa.float64(), "watch": pa.list_(pa.string())}
TEXTS = [
    "x BETWEEN $centre - 5 AND $centre + 5 OR array_contains($watch, s)",
    "x BETWEEN $centre - 5 AND $centre + 5",
]
FILTERS = {text: parse_filter(text, SCHEMA, TYPES) for text in TEXTS}


def classes(first, count):
    return [ClassDefinition(k, TEXTS[k % 2], {"centre": float(k), "watch": ["a"]}) for k in range(first, first + count)]


def state(count):
    return ContextState(LiveIndex.build(RowReading(SCHEMA, FILTERS.__getitem__), grouped(classes(0, count))))


def batch(seed=1):
    rng = np.random.default_rng(seed)
    return pa.RecordBatch.from_pydict({"x": rng.uniform(0, 60, 40), "s": rng.choice(list("abcdefg"), 40).tolist()})


def oracle(count, updates, position, rows=None):
    contexts = {each.id: each.context for each in classes(0, count)}
    for update in updates:
        if update.position <= position:
            contexts.update({k: now for k, (_, now) in update.changes.items() if k in contexts})
    specs = [ClassSpec(each.id, FILTERS[each.template], contexts[each.id]) for each in classes(0, count)]
    return ScanIndex(specs).match(batch() if rows is None else rows)


def random_updates(rng, count, size):
    contexts = {each.id: each.context for each in classes(0, size)}
    found = []
    for k in range(count):
        changes = {}
        for identity in {int(each) for each in rng.integers(0, size, 2)}:
            new = (
                {"centre": float(rng.uniform(0, 60))}
                if rng.random() < 0.6
                else {"watch": [str(rng.choice(list("bc")))]}
            )
            changes[identity] = (contexts[identity], {**contexts[identity], **new})
            contexts[identity] = changes[identity][1]
        found.append(ContextUpdate(3 * k + 2, changes, time_ms=100 * k))
    return found


@settings(max_examples=12)
@given(st.integers(0, 2**32), st.sampled_from([6, 40]))
def test_any_order_of_pins_gives_the_rows_of_that_position(seed, count):
    rng = np.random.default_rng(seed)
    updates = random_updates(rng, 30, count)
    found = state(count)
    for known in (10, 30):
        found.record(updates[len(found._log) : known])
        for position in rng.integers(0, 100, 4).tolist():
            assert found.match(batch(), position).same(oracle(count, updates[:known], position))
    assert found.head == updates[-1].position


@settings(max_examples=12)
@given(st.integers(0, 2**32), st.sampled_from([6, 40]))
def test_any_order_of_pins_with_skipped_updates_gives_the_rows_without_them(seed, count):
    rng = np.random.default_rng(seed)
    updates = random_updates(rng, 30, count)
    found = state(count)
    found.record(updates)
    places = np.array([each.position for each in updates])
    sizes = np.array([len(each.changes) for each in updates])
    for _ in range(6):
        chosen = rng.random(sizes.sum()) < rng.choice([0.0, 0.3, 0.9])
        chosen |= np.repeat(rng.random(30) < 0.3, sizes)
        skipped = Skipped.of(places, sizes, chosen)
        position = int(rng.integers(0, 100))
        marks = iter(chosen.tolist())
        applied = [
            replace(each, changes={k: change for k, change in each.changes.items() if not next(marks)})
            for each in updates
        ]
        assert found.match(batch(), position, skipped).same(oracle(count, applied, position))
        start = {each.id: each.context for each in classes(0, count)}
        for each in applied:
            start.update({k: now for k, (_, now) in each.changes.items() if each.position <= position})
        concerned = found.concerned(position, skipped, int(places[-1]))
        assert {k: found.value(k, position, skipped) for k in concerned} == {k: start[k] for k in concerned}
        others = set(start).difference(concerned)
        truth = {k: now for each in updates for k, (_, now) in each.changes.items()}
        assert all(start[k] == truth.get(k, start[k]) for k in others)
        # What stays left out is not bound again.
        bound = found.bound
        found.at(position, Skipped(skipped.whole, dict(skipped.partly)))
        assert found.bound == bound
    assert found.match(batch(), int(places[-1])).same(oracle(count, updates, int(places[-1])))


def test_updates_that_are_left_out_cost_nothing():
    updates = random_updates(np.random.default_rng(9), 20, 40)
    places = np.array([each.position for each in updates])
    sizes = np.array([len(each.changes) for each in updates])
    found = state(40)
    found.record(updates)
    found.at(0)
    found.at(int(places[-1]), Skipped.of(places, sizes, np.ones(sizes.sum(), bool)))
    assert found.bound == 0
    found.at(int(places[-1]))
    assert found.bound == len({k for each in updates for k in each.changes})


@pytest.mark.parametrize("count", [6, 40])
def test_rows_by_arrival_have_the_state_of_their_time_and_keep_their_order(count):
    updates = random_updates(np.random.default_rng(5), 12, count)
    found = state(count)
    found.record(updates)
    rows = batch(2)
    times = np.random.default_rng(6).integers(-50, 1300, rows.num_rows)
    before, upto = updates[2].position, updates[9].position
    lists = found.match_each(rows, found.arrivals(times, before, upto))
    for k, time_ms in enumerate(times.tolist()):
        seen = [
            each for each in updates if each.position <= before or (each.time_ms <= time_ms and each.position <= upto)
        ]
        alone = oracle(count, seen, upto, rows.slice(k, 1))
        assert lists.row(k).tolist() == alone.row(0).tolist()


def test_a_class_that_a_later_version_brings_has_its_recorded_values():
    updates = random_updates(np.random.default_rng(3), 25, 40)
    found = ContextState(LiveIndex.build(RowReading(SCHEMA, FILTERS.__getitem__), grouped(classes(0, 30))))
    found.record(updates)
    first = found.match(batch(), 40)
    delta = found.at(40).plan(np.empty(0, np.uint32), grouped(classes(30, 10)))
    assert delta is not None
    found.advance(delta)
    assert not found.match(batch(), 40).same(first)
    assert found.match(batch(), 40).same(oracle(40, updates, 40))
    assert found.match(batch(), 70).same(oracle(40, updates, 70))
    assert found.match(batch(), 40).same(oracle(40, updates, 40))


def test_updates_out_of_order_and_positions_that_are_gone_are_refused():
    found = ContextState(LiveIndex.build(RowReading(SCHEMA, FILTERS.__getitem__), grouped(classes(0, 3))), base=4)
    found.record([ContextUpdate(5, {})])
    with pytest.raises(MatchingError, match="at position 6 came after position 6"):
        found.record([ContextUpdate(6, {}), ContextUpdate(6, {})])
    assert found.head == 5
    with pytest.raises(MatchingError, match="position 3 is gone, the oldest is 4"):
        found.match(batch(), 3)
    assert found.position == 4
