"""Thinning is even, complete and disjoint, on any axis."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.grid import Interval, gap_bound, line_rank, plane_gap_bound, plane_rank

quick = settings(deadline=None, max_examples=80, derandomize=True)
fractions = st.fractions(0, 1, max_denominator=64)
intervals = st.tuples(fractions, fractions).filter(lambda p: p[0] != p[1]).map(lambda p: Interval(min(p), max(p)))


def chosen(size, bits, interval, start=0):
    places = np.arange(start, start + size)
    return places[interval.selects(line_rank(places, bits), bits)]


@quick
@given(st.integers(0, 6), st.integers(0, 6), st.integers(1, 300), st.data())
def test_a_dyadic_interval_is_an_arithmetic_progression_on_any_axis(bits, level, size, data):
    level = min(level, bits)
    c = data.draw(st.integers(0, (1 << level) - 1))
    found = chosen(size, bits, Interval(Fraction(c, 1 << level), Fraction(c + 1, 1 << level)))
    step = 1 << level
    assert np.all(np.diff(found) == step)
    if size >= step:
        assert found[0] < step
        assert size - found[-1] <= step
        seam = found[0] + size - found[-1]
        assert 1 <= seam <= 2 * step - 1
        assert c or seam <= step
        if size % step == 0:
            assert seam == step


@quick
@given(st.integers(1, 6), st.integers(0, 5), st.data())
def test_sibling_intervals_combine_to_an_even_one(bits, level, data):
    level = min(level, bits - 1)
    c = data.draw(st.integers(0, (1 << level) - 1))
    low, mid, high = (Fraction(2 * c + k, 2 << level) for k in range(3))
    both = np.union1d(chosen(200, bits, Interval(low, mid)), chosen(200, bits, Interval(mid, high)))
    assert np.array_equal(both, chosen(200, bits, Interval(low, high)))
    assert np.all(np.diff(both) == 1 << level)


def test_a_quarter_and_the_next_quarter_are_exactly_one_half():
    quarter = chosen(64, 4, Interval.of(0, Fraction(1, 4)))
    following = chosen(64, 4, Interval.of(Fraction(1, 4), Fraction(1, 2)))
    assert quarter.tolist() == list(range(0, 64, 4))
    assert sorted([*quarter, *following]) == list(range(0, 64, 2))


@quick
@given(st.integers(2, 7), intervals, st.integers(-500, 500))
def test_any_interval_stays_within_its_gap_bound(bits, interval, start):
    first, past = interval.ranks(bits)
    if past <= first:
        assert not len(chosen(1 << bits, bits, interval, start))
        return
    try:
        bound = gap_bound(interval, bits)
    except ValueError:
        pytest.fail("an interval with ranks has a dyadic part")
    found = chosen(4 << bits, bits, interval, start)
    gaps = np.diff(found)
    assert gaps.max() <= bound
    ranks = past - first
    assert bound < 4 * (1 << bits) / ranks
    if interval.low == 0:
        assert bound < 2 * (1 << bits) / ranks


@pytest.mark.slow
@quick
@given(st.integers(0, 5), st.lists(fractions, max_size=6), st.integers(1, 200))
def test_consecutive_intervals_give_every_point_exactly_once(bits, cuts, size):
    edges = sorted({Fraction(0), *cuts, Fraction(1)})
    parts = [chosen(size, bits, Interval(a, b)) for a, b in itertools.pairwise(edges)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(size))


@quick
@given(st.integers(1, 4), st.integers(0, 8), st.data())
def test_a_dyadic_interval_is_a_lattice_in_the_plane(bits, level, data):
    level = min(level, 2 * bits)
    c = data.draw(st.integers(0, (1 << level) - 1))
    width, height = data.draw(st.integers(40, 50)), data.draw(st.integers(40, 50))
    x, y = (grid.ravel() for grid in np.meshgrid(np.arange(width), np.arange(height)))
    interval = Interval(Fraction(c, 1 << level), Fraction(c + 1, 1 << level))
    keep = interval.selects(plane_rank(x, y, bits), 2 * bits)
    across, down = 1 << ((level + 1) // 2), 1 << (level // 2)
    columns, rows = np.unique(x[keep]), np.unique(y[keep])
    assert keep.sum() == len(columns) * len(rows)
    assert np.all(np.diff(columns) == across)
    assert np.all(np.diff(rows) == down)
    assert plane_gap_bound(interval, bits) == (across, down)


@quick
@given(st.integers(1, 3), intervals)
def test_every_point_of_the_plane_has_a_chosen_one_within_the_bound(bits, interval):
    first, past = interval.ranks(2 * bits)
    if past <= first:
        return
    across, down = plane_gap_bound(interval, bits)
    size = 4 << bits
    x, y = np.meshgrid(np.arange(size), np.arange(size))
    keep = interval.selects(plane_rank(x.ravel(), y.ravel(), bits), 2 * bits).reshape(size, size)
    counts = np.zeros((size + 1, size + 1), dtype=int)
    counts[1:, 1:] = keep.cumsum(0).cumsum(1)
    windows = counts[down:, across:] - counts[:-down, across:] - counts[down:, :-across] + counts[:-down, :-across]
    assert windows.min() >= 1


@quick
@given(intervals, intervals)
def test_only_what_is_missing_is_sent_when_a_resolution_is_raised(wanted, held):
    bits = 6
    ranks = np.arange(1 << bits)
    sent = np.zeros(1 << bits, dtype=int)
    for part in wanted.missing_from(held):
        sent += part.selects(ranks, bits)
    assert np.array_equal(sent == 1, wanted.selects(ranks, bits) & ~held.selects(ranks, bits))
    assert sent.max() <= 1
    joined = wanted.joined(held)
    if joined is not None:
        assert np.array_equal(joined.selects(ranks, bits), wanted.selects(ranks, bits) | held.selects(ranks, bits))


@pytest.mark.parametrize("pair", [(0, 0), (Fraction(1, 2), Fraction(1, 4)), (0, 2), (-1, 1)])
def test_intervals_that_are_none_are_refused(pair):
    with pytest.raises(ValueError, match="resolution interval"):
        Interval.of(*pair)
