"""Context state: updates in one order with messages, pinned positions, replays that give the same rows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.filters import parse_filter
from headgate.matching import ClassSpec, MatchingError, ScanIndex
from headgate.matching.context import ContextState, ContextUpdate
from headgate.model import Schema

SCHEMA = Schema.of({"x": "double", "s": "string"})
NEAR = parse_filter(
    "x BETWEEN $centre - 5 AND $centre + 5 OR array_contains($watch, s)",
    SCHEMA,
    {"centre": pa.float64(), "watch": pa.list_(pa.string())},
)


def specs(count):
    return [ClassSpec(k, NEAR, {"centre": float(k), "watch": ["a"]}) for k in range(count)]


def batch(seed=1):
    rng = np.random.default_rng(seed)
    return pa.RecordBatch.from_pydict({"x": rng.uniform(0, 60, 40), "s": rng.choice(list("abcdefg"), 40).tolist()})


def oracle(count, updates, position):
    contexts = {spec.id: dict(spec.context) for spec in specs(count)}
    for update in updates:
        if update.position <= position:
            contexts[update.class_id].update(update.values)
    return ScanIndex(ClassSpec(k, NEAR, context) for k, context in contexts.items()).match(batch())


def random_updates(rng, count, classes):
    return [
        ContextUpdate(
            3 * k + 2,
            int(rng.integers(0, classes)),
            {"centre": float(rng.uniform(0, 60))}
            if rng.random() < 0.6
            else {"watch": list(rng.choice(list("bcdefg"), 2))},
        )
        for k in range(count)
    ]


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 2**32), st.sampled_from([6, 40]))
def test_any_order_of_pins_gives_the_rows_of_that_position(seed, classes):
    rng = np.random.default_rng(seed)
    updates = random_updates(rng, 30, classes)
    state = ContextState(SCHEMA, specs(classes))
    for known in (10, 30):
        state.record(updates[len(state._log) : known])
        for position in rng.integers(0, 100, 4).tolist():
            expected = oracle(classes, updates[:known], position)
            assert state.match(batch(), position).same(expected)
    assert state.head == updates[-1].position


def test_a_replayed_batch_and_a_new_worker_give_the_same_rows():
    updates = random_updates(np.random.default_rng(3), 25, 40)
    one, other = ContextState(SCHEMA, specs(40)), ContextState(SCHEMA, specs(40))
    one.record(updates)
    first = one.match(batch(), 40)
    one.match(batch(), 70)
    assert one.match(batch(), 40).same(first)
    other.record(updates)
    assert other.match(batch(), 40).same(first)
    one.forget(40)
    assert one.match(batch(), 70).same(oracle(40, updates, 70))
    assert one.match(batch(), 40).same(first)
    with pytest.raises(MatchingError, match="position 39 is gone, the oldest is 40"):
        one.match(batch(), 39)


def test_updates_out_of_order_or_of_unknown_classes_are_refused_together():
    state = ContextState(SCHEMA, specs(3))
    state.record([ContextUpdate(5, 1, {"centre": 50.0})])
    for bad in ([ContextUpdate(6, 0, {"centre": 1.0}), ContextUpdate(6, 1, {})], [ContextUpdate(9, 7, {})]):
        with pytest.raises(MatchingError):
            state.record(bad)
    assert state.head == 5
