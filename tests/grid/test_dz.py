"""DZ expressions against brute force over every cell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.grid import DzSet, DzSpace, Word, choose_depths, compact, decompose, decompose_batch
from headgate.grid.words import union

quick = settings(deadline=None, max_examples=60, derandomize=True)
spaces = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(
    lambda depths: DzSpace.round_robin({f"d{i}": depth for i, depth in enumerate(depths)})
)


@st.composite
def cell_sets(draw, space):
    chosen = draw(st.sets(st.integers(0, space.cells - 1), max_size=40))
    return set(chosen), DzSet.from_cells(space, sorted(chosen))


@st.composite
def boxes(draw, space):
    box = {}
    for name, size in zip(space.names, space.shape, strict=True):
        low = draw(st.integers(0, size - 1))
        box[name] = (low, draw(st.integers(low + 1, size)))
    return box


def cells_of(space, box):
    """The codes of a box, by listing every cell of the space."""
    inside = np.ones(space.cells, dtype=bool)
    numbers = space.decode(np.arange(space.cells))
    for column, name in enumerate(space.names):
        low, high = box[name]
        inside &= (numbers[:, column] >= low) & (numbers[:, column] < high)
    return set(np.flatnonzero(inside).tolist())


def test_the_digits_go_round_robin_and_exhausted_dimensions_drop_out():
    space = DzSpace.round_robin({"x": 3, "y": 1, "t": 2})
    assert space.order == (0, 1, 2, 0, 2, 0)
    assert DzSpace.round_robin({"x": 2, "y": 2, "t": 1}, first=("x", "y")).order == (0, 1, 0, 1, 2)


@quick
@given(st.data())
def test_encoding_is_a_bijection(data):
    space = data.draw(spaces)
    codes = np.arange(space.cells)
    assert np.array_equal(space.encode(space.decode(codes)), codes)


@quick
@given(st.data())
def test_the_algebra_is_that_of_sets_of_cells(data):
    space = data.draw(spaces)
    one, dz_one = data.draw(cell_sets(space))
    other, dz_other = data.draw(cell_sets(space))
    everything = set(range(space.cells))
    for expected, found in (
        (one | other, dz_one | dz_other),
        (one & other, dz_one & dz_other),
        (one - other, dz_one - dz_other),
        (everything - one, ~dz_one),
    ):
        assert set(found.codes().tolist()) == expected
        assert found == DzSet.from_cells(space, sorted(expected))
        assert found.cells == len(expected)
    assert (dz_one <= dz_other) == (one <= other)
    assert dz_one.contains(sorted(everything)).tolist() == [cell in one for cell in sorted(everything)]


@quick
@given(st.data())
def test_expressions_are_disjoint_minimal_and_exact(data):
    space = data.draw(spaces)
    chosen, dz = data.draw(cell_sets(space))
    codes, lengths = dz.expressions()
    parts = [range(c, c + (1 << (space.digits - n))) for c, n in zip(codes.tolist(), lengths.tolist(), strict=True)]
    assert sorted(cell for part in parts for cell in part) == sorted(chosen)
    regions = {(c, n) for c, n in zip(codes.tolist(), lengths.tolist(), strict=True)}
    for code, length in regions:  # a set without sibling pairs, of disjoint regions, is the least one
        assert length == 0 or (code ^ (1 << (space.digits - length)), length) not in regions


@quick
@given(st.data())
def test_a_box_is_covered_exactly_at_full_depth(data):
    space = data.draw(spaces)
    box = data.draw(boxes(space))
    cover = decompose(space, box)
    assert cover.over_cover == 0
    assert set(cover.cells.codes().tolist()) == cells_of(space, box)


@quick
@given(st.data())
def test_a_shallow_or_bounded_cover_contains_the_box_and_says_how_much_more(data):
    space = data.draw(spaces)
    box = data.draw(boxes(space))
    exact = decompose(space, box).cells
    depth = data.draw(st.integers(0, space.digits))
    shallow = decompose(space, box, depth=depth)
    touched = {cell >> (space.digits - depth) for cell in cells_of(space, box)}
    assert {c >> (space.digits - depth) for c in shallow.cells.codes().tolist()} == touched
    assert shallow.cells.expressions()[1].max() <= depth
    previous = None
    for most in (1, 2, 3, 5, 9, 1000):
        bounded = decompose(space, box, at_most=most)
        assert exact <= bounded.cells
        assert len(bounded.cells.expressions()[0]) <= most
        assert bounded.over_cover == bounded.cells.cells - exact.cells
        assert previous is None or bounded.over_cover <= previous
        previous = bounded.over_cover
    assert previous == 0


def test_a_batch_of_boxes_is_each_box_on_its_own():
    space = DzSpace.round_robin({"x": 5, "y": 4, "s": 3})
    rng = np.random.default_rng(7)
    low = np.stack([rng.integers(0, size, 50) for size in space.shape], axis=1)
    high = low + np.stack([rng.integers(0, size, 50) for size in space.shape], axis=1)
    high = np.minimum(high, space.shape)
    offsets, codes, lengths = decompose_batch(space, low, high)
    for row in range(50):
        part = slice(offsets[row], offsets[row + 1])
        box = {n: (int(a), int(b)) for n, a, b in zip(space.names, low[row], high[row], strict=True)}
        assert DzSet.from_expressions(space, codes[part], lengths[part]) == decompose(space, box).cells


words = st.text("01*", max_size=6)


@quick
@given(words, words)
def test_words_with_wildcards_against_the_cells_they_stand_for(first, second):
    space = DzSpace.round_robin({"x": 3, "y": 3})
    one, other = Word.parse(space, first), Word.parse(space, second)

    def cells(text):
        return {c for c in range(64) if all(t in ("*", d) for t, d in zip(text, f"{c:06b}", strict=False))}

    assert set(one.to_set().codes().tolist()) == cells(first)
    assert one.cells == len(cells(first))
    assert one.contains(other) == (cells(second) <= cells(first))
    both = one.intersection(other)
    assert (set() if both is None else set(both.to_set().codes().tolist())) == cells(first) & cells(second)
    rest = one.minus(other)
    assert set(union(space, rest).codes().tolist()) == cells(first) - cells(second)
    assert sum(word.cells for word in rest) == len(cells(first) - cells(second))
    assert set(union(space, one.complement()).codes().tolist()) == set(range(64)) - cells(first)
    assert Word.parse(space, one.text) == one


@quick
@given(st.data())
def test_compacting_keeps_the_cells_and_never_adds_words(data):
    space = data.draw(spaces)
    chosen, dz = data.draw(cell_sets(space))
    found = compact(dz)
    assert union(space, found) == dz
    assert sum(word.cells for word in found) == len(chosen)
    assert len(found) <= len(dz.expressions()[0])


def test_an_aligned_box_is_one_word():
    space = DzSpace.round_robin({"x": 3, "y": 3})
    word = Word.of_prefixes(space, {"y": (1, 2)})
    assert word.text == "*0*1"
    assert word.to_set() == decompose(space, {"y": (2, 4)}).cells


def test_depths_go_where_the_queries_are_fine():
    rng = np.random.default_rng(1)
    low = np.stack([rng.uniform(0, 0.9, 200), np.zeros(200), np.zeros(200)], axis=1)
    high = np.stack([low[:, 0] + 0.02, np.ones(200), rng.uniform(0.1, 1.0, 200)], axis=1)
    depths = choose_depths(low, high, ("x", "y", "space"), 10)
    assert depths["y"] == 0
    assert depths["x"] > depths["space"] > 0


@pytest.mark.parametrize("wrong", ["2", "0*", "0" * 9])
def test_text_that_is_no_expression_is_refused(wrong):
    with pytest.raises(ValueError, match="not an expression"):
        DzSpace.round_robin({"x": 4, "y": 4}).parse(wrong)
