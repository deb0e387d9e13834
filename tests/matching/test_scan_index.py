"""The oracle index and the lists it returns, against plain Python."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.filters.profiles import profile_type
from headgate.matching import ClassLists, ClassSpec, Index, MatchingError, ScanIndex, build_index
from headgate.model import Schema
from headgate.model.schema import SchemaError


@dataclass(frozen=True)
class Below:
    """x < $limit, by hand."""

    columns: tuple[str, ...] = ("x",)
    text: str = "x < $limit"

    def evaluate(self, batch: pa.RecordBatch, context: Any) -> np.ndarray:
        return batch.column("x").to_numpy(zero_copy_only=False) < context["limit"]


def batch_of(values: list[float]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"x": pa.array(values, pa.float64())})


lists = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=8)


@settings(deadline=None)
@given(st.lists(st.floats(-10, 10), max_size=20), st.lists(st.floats(-10, 10), max_size=6))
def test_scan_names_exactly_the_true_classes(values, limits):
    classes = [ClassSpec(7 * k + 1, Below(), {"limit": limit}) for k, limit in enumerate(limits)]
    index = build_index(Schema.of({"x": "double"}), reversed(classes))
    assert isinstance(index, Index)
    found = index.match(batch_of(values))
    for row, value in enumerate(values):
        assert found.row(row).tolist() == [7 * k + 1 for k, limit in enumerate(limits) if value < limit]


def test_classes_come_and_go():
    index = ScanIndex([ClassSpec(4, Below(), {"limit": 1.0})])
    index.add([ClassSpec(2, Below(), {"limit": 5.0})])
    assert index.match(batch_of([0.0, 3.0])).same(ClassLists.of([[2, 4], [2]]))
    index.bind(4, {"limit": 9.0})
    index.remove([2, 99])
    assert index.classes.tolist() == [4]
    assert index.match(batch_of([0.0, 3.0])).same(ClassLists.of([[4], [4]]))


def test_repeated_and_impossible_ids_are_refused_with_nothing_changed():
    index = ScanIndex([ClassSpec(4, Below(), {"limit": 1.0})])
    with pytest.raises(MatchingError, match="4 is given twice"):
        index.add([ClassSpec(4, Below(), {"limit": 2.0})])
    assert index.classes.tolist() == [4]
    with pytest.raises(MatchingError, match="out of range"):
        ClassSpec(2**32, Below())
    with pytest.raises(SchemaError, match="unknown column 'x'"):
        build_index(Schema.of({"y": "double"}), [ClassSpec(1, Below(), {})])


@settings(deadline=None)
@given(lists, st.sets(st.integers(0, 9)))
def test_restrict_counts_take_and_concat(rows, wanted):
    found = ClassLists.of(rows)
    plain = [sorted(set(row)) for row in rows]
    assert [found.row(k).tolist() for k in range(found.rows)] == plain
    kept = found.restrict(np.array(sorted(wanted), np.uint32))
    assert kept.same(ClassLists.of([[i for i in row if i in wanted] for row in plain]))
    ids, counts = found.class_counts()
    everything = [i for row in plain for i in row]
    assert dict(zip(ids.tolist(), counts.tolist(), strict=True)) == {i: everything.count(i) for i in set(everything)}
    order = np.arange(found.rows)[::-1]
    assert found.take(order).same(ClassLists.of(plain[::-1]))
    assert ClassLists.concat([found, kept]).same(ClassLists.of(plain + [[i for i in r if i in wanted] for r in plain]))
    assert ClassLists.from_pairs(found.row_of_id(), found.ids, found.rows).same(found)


def test_a_batch_that_matches_nothing_has_empty_lists():
    assert ScanIndex([]).match(batch_of([1.0])).same(ClassLists.empty(1))
    assert ScanIndex([ClassSpec(1, Below(), {"limit": -5})]).match(batch_of([1.0])).same(ClassLists.empty(1))


def test_many_classes_of_keywords_are_found_by_their_words():
    schema = Schema.of({"title": "string", "body": "string"})
    words = ["storm", "HAIL", "rain -drill", "(flood OR storm) hail", '"heavy rain"', "snow*", "-storm", "größe", "s"]
    texts = [
        "Storm and hail",
        "heavy, rain",
        "a drill in rain",
        "Größe 5",
        "\u017ftorm",
        "snowfall S",
        "",
        "floods",
        "FLOOD hail",
    ]
    batch = pa.RecordBatch.from_pydict({"title": [*texts, None], "body": [None, *reversed(texts)]})
    where = [f"{column}: {word}" for word in words for column in ("title", "body", "title, body")]
    specs = [ClassSpec(k, profile_type("keywords").compile(text, schema, {})) for k, text in enumerate(where)]
    found = ScanIndex(specs).match(batch)
    alone = [np.flatnonzero(spec.filter.evaluate(batch, {})).tolist() for spec in specs]
    for row in range(batch.num_rows):
        assert found.row(row).tolist() == [k for k, rows in enumerate(alone) if row in rows]
    assert all(alone)
