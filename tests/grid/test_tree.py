"""The GBD-tree against sets of cells and plain sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.grid import DzSet, DzSpace, GbdTree

SPACE = DzSpace.round_robin({"x": 3, "y": 2, "s": 1})
quick = settings(deadline=None, max_examples=80, derandomize=True)
expressions = st.text("01", max_size=SPACE.digits)


def cells(text):
    code, length = SPACE.parse(text)
    return set(range(code, code + (1 << (SPACE.digits - length))))


def load(tree, texts, weights=None):
    pairs = np.array([SPACE.parse(text) for text in texts], dtype=np.int64).reshape(-1, 2)
    return tree.insert(pairs[:, 0], pairs[:, 1], weights, np.arange(len(texts)))


def covered(codes, lengths):
    found = [c for a, n in zip(codes.tolist(), lengths.tolist(), strict=True) for c in cells(SPACE.text(a, n))]
    assert len(found) == len(set(found)), "parts must be disjoint"
    return set(found)


@quick
@given(st.lists(expressions, max_size=12), st.lists(expressions, min_size=1, max_size=5))
def test_serve_is_the_split_of_sets(held, asked):
    tree = GbdTree(SPACE)
    load(tree, held)
    available = set().union(*(cells(text) for text in held))
    pairs = np.array([SPACE.parse(text) for text in asked], dtype=np.int64)
    served = tree.serve(pairs[:, 0], pairs[:, 1])
    for i, text in enumerate(asked):
        have = slice(served.have_offsets[i], served.have_offsets[i + 1])
        miss = slice(served.miss_offsets[i], served.miss_offsets[i + 1])
        assert covered(served.have_codes[have], served.have_lengths[have]) == cells(text) & available
        assert covered(served.miss_codes[miss], served.miss_lengths[miss]) == cells(text) - available
        left = DzSet.from_cells(SPACE, sorted(cells(text) - available))
        assert np.array_equal(served.miss_codes[miss], left.expressions()[0])


@quick
@given(st.lists(st.tuples(expressions, st.integers(0, 90)), max_size=25), st.data())
def test_loads_stay_right_through_inserts_and_removals(queries, data):
    tree = GbdTree(SPACE, room=1)
    slots = load(tree, [text for text, _ in queries], [weight for _, weight in queries])
    alive = dict(zip(slots.tolist(), queries, strict=True))
    for _ in range(2):
        gone = data.draw(st.lists(st.sampled_from(sorted(alive)), unique=True)) if alive else []
        tree.remove(np.array(gone, dtype=np.int64))
        for slot in gone:
            del alive[slot]
        assert len(tree) == len(alive)
        assert tree.total == sum(weight for _, weight in alive.values())
        assert tree.regions() == DzSet.of(SPACE, *(text for text, _ in alive.values()))
        distinct = {text for text, _ in alive.values()}
        assert tree.nodes <= max(1, 2 * len(distinct) + 1)
        probe = data.draw(expressions)
        inside = {slot for slot, (text, _) in alive.items() if text.startswith(probe)}
        assert set(tree.inside(*SPACE.parse(probe)).tolist()) == inside
        assert tree.weight(*SPACE.parse(probe)) == sum(alive[slot][1] for slot in inside)
        again = load(tree, [probe], [5])
        alive[int(again[0])] = (probe, 5)


def test_removing_everything_leaves_an_empty_tree_whose_room_is_used_again():
    tree = GbdTree(SPACE, room=4)
    for _ in range(5):
        slots = load(tree, ["0", "01", "0101", "111", "0", ""])
        tree.remove(slots[::-1])
        assert (len(tree), tree.nodes, tree.total) == (0, 1, 0)
    assert tree.nbytes < 3000
    with pytest.raises(KeyError):
        tree.remove([0])


@quick
@given(st.lists(st.tuples(expressions, st.integers(0, 90)), max_size=25), st.integers(0, SPACE.digits))
def test_candidates_are_the_overloaded_regions_asked_for_or_at_the_limit(queries, limit):
    tree = GbdTree(SPACE)
    load(tree, [text for text, _ in queries], [weight for _, weight in queries])
    regions = {text if len(text) <= limit else text[:limit] for text, _ in queries}
    expected = {}
    for region in regions:
        weight = sum(w for text, w in queries if text.startswith(region))
        if weight > len(cells(region)):
            expected[region] = weight
    found = tree.find(limit=limit, nested=True)
    listed = {
        SPACE.text(c, n): w
        for c, n, w in zip(found.codes.tolist(), found.lengths.tolist(), found.weights.tolist(), strict=True)
    }
    assert listed == expected
    assert np.all(np.diff(found.freed) <= 0)
    outer = tree.find(limit=limit)
    top = {region for region in expected if not any(region != r and region.startswith(r) for r in expected)}
    assert {SPACE.text(c, n) for c, n in zip(outer.codes.tolist(), outer.lengths.tolist(), strict=True)} == top


def test_many_clients_on_one_smallest_region_are_a_candidate():
    tree = GbdTree(SPACE)
    load(tree, ["010101"] * 1000)
    found = tree.find()
    assert (SPACE.text(int(found.codes[0]), int(found.lengths[0])), found.weights.tolist()) == ("010101", [1000])


def test_candidates_lie_inside_what_the_site_has():
    tree = GbdTree(SPACE)
    load(tree, ["0000", "0000", "0000"])
    have = DzSet.of(SPACE, "000")
    found = tree.find(limit=1, within=have)
    assert [SPACE.text(int(c), int(n)) for c, n in zip(found.codes, found.lengths, strict=True)] == ["0000"]
    assert len(tree.find(within=DzSet.of(SPACE, "1"))) == 0


def test_expressions_with_digits_past_their_length_are_refused():
    with pytest.raises(ValueError, match="past its length"):
        GbdTree(SPACE).insert([1], [2])


@quick
@given(st.lists(expressions, max_size=20))
def test_larger_queries_count_with_their_share_of_a_region(queries):
    tree = GbdTree(SPACE)
    load(tree, queries)
    found = tree.find(nested=True, larger=True)
    listed = {
        SPACE.text(c, n): w
        for c, n, w in zip(found.codes.tolist(), found.lengths.tolist(), found.weights.tolist(), strict=True)
    }
    for region in set(queries):
        weight = sum(len(cells(text) & cells(region)) for text in queries)
        assert listed.get(region) == (weight if weight > len(cells(region)) else None)
        above = tree.above(*SPACE.parse(region))
        assert len(above) == sum(region.startswith(text) and text != region for text in queries)
