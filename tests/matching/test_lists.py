"""Class lists with shared sets and numbered classes say what plain ones say, whatever is done to them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.matching import ClassLists
from headgate.wire.frame import WireError
from headgate.wire.lists import decode_classes, encode_classes

ROWS = st.lists(st.frozensets(st.integers(0, 9), max_size=5), max_size=12)


def dressed(rows: list[frozenset[int]], form: str, seed: int = 0) -> ClassLists:
    """The lists of some rows with one set for equal rows, with numbers for ids in any order, with both or neither."""
    plain = ClassLists.of(rows)
    if form == "plain":
        return plain
    distinct = sorted(set(rows), key=sorted) if "sets" in form else rows
    sets = np.array([distinct.index(row) for row in rows], np.int64) if "sets" in form else None
    if "names" not in form:
        each = ClassLists.of(distinct)
        return ClassLists(each.starts, each.numbers, None, sets)
    names = np.random.default_rng(seed).permutation(12).astype(np.uint32)
    number = np.argsort(names)
    each = ClassLists.of([[int(number[identity]) for identity in row] for row in distinct])
    return ClassLists(each.starts, each.numbers, names, sets)


FORMS = ("plain", "sets", "names", "sets and names")


@pytest.mark.parametrize("form", FORMS)
@given(rows=ROWS, more=ROWS, seed=st.integers(0, 5), wanted=st.frozensets(st.integers(0, 9)))
def test_every_form_of_lists_says_the_same(form, rows, more, seed, wanted):
    plain, lists = ClassLists.of(rows), dressed(rows, form, seed)
    assert lists.same(plain)
    assert lists.rows == len(rows)
    assert [lists.row(k).tolist() for k in range(len(rows))] == [sorted(row) for row in rows]
    assert lists.counts().tolist() == [len(row) for row in rows]
    for mine, expected in zip(lists.class_counts(), plain.class_counts(), strict=True):
        assert mine.tolist() == expected.tolist()
    weights = np.arange(1.0, len(rows) + 1)
    for mine, expected in zip(lists.class_sums(weights), plain.class_sums(weights), strict=True):
        assert mine.tolist() == expected.tolist()
    by_class = {k: [n for n, row in enumerate(rows) if k in row] for k in range(10) if any(k in row for row in rows)}
    assert {identity: found.tolist() for identity, found in lists.rows_by_class().items()} == by_class
    some = np.array(sorted(wanted), np.uint32)
    assert lists.restrict(some).same(ClassLists.of([row & wanted for row in rows]))
    half = len(rows) // 2
    assert lists.slice(half, len(rows)).same(ClassLists.of(rows[half:]))
    back = np.arange(len(rows))[::-1]
    assert lists.take(back).same(ClassLists.of(rows[::-1]))
    assert lists.take(back[:half]).trimmed().same(ClassLists.of(rows[::-1][:half]))
    for other in FORMS:
        both = ClassLists.concat([lists, dressed(more, other, seed + 1)])
        assert both.same(ClassLists.of([*rows, *more]))
        shifted = ClassLists.of([{identity + 100 for identity in row} for row in rows[::-1]])
        expected = ClassLists.of(
            [row | {each + 100 for each in last} for row, last in zip(rows, rows[::-1], strict=True)]
        )
        assert lists.joined(shifted).same(expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("copies", [1, 500])
def test_lists_of_every_form_are_read_back_as_they_were_written(form, copies):
    rows = [frozenset(range(k % 7, 9)) for k in range(12)] * copies
    lists = dressed(rows, form)
    header, sections = encode_classes(lists)
    found, rest = decode_classes(header, [*sections, b"more"], len(rows))
    assert found.same(lists)
    assert rest == [b"more"]


def test_rows_of_the_same_classes_cost_one_set_on_the_wire():
    lists = ClassLists.from_hits({identity: np.arange(1000) for identity in range(0, 600, 10)}, 1000)
    header, sections = encode_classes(lists)
    assert header == {"ids": 60, "sets": 1}
    assert sum(map(len, sections)) < 100 < sum(map(len, encode_classes(lists.plain())[1]))


def test_a_set_or_a_number_that_is_not_there_is_refused():
    header, sections = encode_classes(dressed([frozenset({1}), frozenset({1})], "sets"))
    with pytest.raises(WireError, match="class set 0 of 0"):
        decode_classes({**header, "sets": 0, "ids": 0}, [b"\x01", b"\x01", *sections[2:]], 2)
    lists = dressed([frozenset(range(9))] * 600, "names")
    header, sections = encode_classes(lists)
    with pytest.raises(WireError, match="of 3 classes"):
        decode_classes({**header, "names": 3}, [*sections[:2], bytes([1, 5, 6, 7])], 600)
