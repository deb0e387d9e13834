"""Errors of single classes by samples: they add up to those of the stream, and are right on the average."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.matching import ClassLists
from headgate.matching.admission import compare_lists, estimate_errors
from headgate.matching.admission.class_errors import (
    MOST_CLASSES,
    add_errors,
    compare_classes,
    estimate_drawn,
    estimate_missed,
)

lists = st.lists(st.sets(st.integers(1, 6)).map(sorted), min_size=1, max_size=12)


@given(lists, st.integers(0, 500))
def test_classes_add_up_to_the_stream(rows: list[list[int]], more: int) -> None:
    sample, population = ClassLists.of(rows), len(rows) + more
    found = estimate_missed(sample, population)
    assert sum(each[0] for each in found.values()) == pytest.approx(
        estimate_errors(sample.counts().tolist(), population).errors
    )


@given(st.lists(st.tuples(st.sets(st.integers(1, 6)), st.sets(st.integers(1, 6))), min_size=1, max_size=12))
def test_both_kinds_of_errors_are_those_of_the_lists(pairs: list[tuple[set[int], set[int]]]) -> None:
    exact, ours = (ClassLists.of([sorted(pair[k]) for pair in pairs]) for k in (0, 1))
    fewer, more = compare_lists(exact, ours)
    found = compare_classes(exact, ours, len(pairs))
    assert sum(each[0] for each in found.values()) == fewer.sum()
    assert sum(each[2] for each in found.values()) == more.sum()
    for identity, (missed, _, wrong, _) in found.items():
        assert missed == sum(identity in right and identity not in got for right, got in pairs)
        assert wrong == sum(identity not in right and identity in got for right, got in pairs)


def test_intervals_have_the_truth_in_them_as_often_as_they_say() -> None:
    random = np.random.default_rng(7)
    truth = random.random(5_000) < 0.03
    hits = 0
    for _ in range(400):
        drawn = random.choice(truth, 250, replace=False)
        figures = estimate_missed(ClassLists.of([[1] if each else [] for each in drawn]), 5_000)
        missed, variance = figures[1][:2] if figures else (0.0, 0.0)
        hits += abs(missed - truth.sum()) <= 1.96 * variance**0.5
    assert 0.9 < hits / 400 <= 1


def test_a_class_that_was_drawn_stands_for_those_that_were_not() -> None:
    random = np.random.default_rng(3)
    sums = np.zeros(8)
    for _ in range(2_000):
        identity = int(random.integers(8))
        sums[identity] += estimate_drawn({identity: 10 * (identity + 1)}, {}, 100, 100, 8.0)[identity][0]
    assert sums / 2_000 == pytest.approx(10 * np.arange(1, 9), rel=0.25)


def test_the_classes_with_the_most_errors_are_kept() -> None:
    many = {each: (float(each), 1.0, 0.0, 0.0) for each in range(MOST_CLASSES + 5)}
    assert min(add_errors([many, {1: (1e6, 0.0, 0.0, 0.0)}])) == 1
    assert len(add_errors([many])) == MOST_CLASSES
