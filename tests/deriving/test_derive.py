"""Derived columns against plain loops over all rows that have come, however rows are cut into micro-batches."""

import datetime as dt
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.deriving import History, add_columns, derivation_of, derive
from headgate.model import Schema, Source, Stream
from headgate.model.stream import DERIVE, DERIVE_STATE

COLUMNS = {"car": "string", "at": "timestamp", "v": "double", "n": "bigint", "cell": "string"}
DERIVED = {
    "before": "previous(v)",
    "moved": "changed(cell)",
    "rows_4": "count() over last 4 s",
    "counted": "count(n) over last 4 s",
    "total": "sum(n) over last 6 s",
    "mean": "avg(v) over last 6 s",
    "least": "min(v) over last 3 s",
    "most": "max(n) over last 3 s",
    "braking": "(v > 5) then (v < 2 or cell = 'x') within 4 s by car",
}
LATE_S, ROWS = 2, 6


def stream(derive: dict[str, Any] = DERIVED, **state: Any) -> Stream:
    schema = Schema.of(COLUMNS)
    options = {DERIVE: derive, DERIVE_STATE: {"late": f"{LATE_S} s", "rows": ROWS, **state}}
    return Stream("s", schema, Source("json"), "root", key=("car",), event_time="at", options=options)


DERIVATION = derivation_of(stream())
ROW = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.integers(0, 14),
    st.one_of(st.none(), st.sampled_from([0.0, 1.0, 3.0, 6.0, math.nan, 1e300])),
    st.one_of(st.none(), st.integers(-3, 3), st.just(2**62)),
    st.sampled_from(["x", "y", None]),
)


def batch_of(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    values = [(car, start + dt.timedelta(seconds=at), *rest) for car, at, *rest in rows]
    arrays = list(zip(*values, strict=True)) if values else [[] for _ in COLUMNS]
    return pa.record_batch([pa.array(a, f.type) for a, f in zip(arrays, Schema.of(COLUMNS).arrow, strict=True)],
                           schema=Schema.of(COLUMNS).arrow)  # fmt: skip


def differs(one: Any, other: Any) -> bool:
    nans = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return one != other and not nans


def expected(came: list[tuple[Any, ...]], row: tuple[Any, ...]) -> dict[str, Any]:
    """What a row's columns are, by all rows that came before it."""
    car, at, v, _, cell = row
    mine = [each for each in came if each[0] == car]
    late = bool(mine) and at < max(each[1] for each in mine) - LATE_S
    upto = sorted((each for each in mine if each[1] <= at), key=lambda each: each[1])
    previous = upto[-1] if upto and not late else None

    def window(seconds: float, within: bool = False) -> list[tuple[Any, ...]] | None:
        bound = at - seconds
        inside = [each for each in [*mine, row] if each[1] > bound or (within and each[1] == bound)]
        return None if late or len(inside) > ROWS else [each for each in inside if each[1] <= at]

    def over(seconds: float, place: int, made: Any) -> Any:
        inside = window(seconds)
        values = [each[place] for each in inside or () if each[place] is not None]
        return made(values) if values else None

    found: dict[str, Any] = {
        "before": None if previous is None else previous[2],
        "moved": None if previous is None else differs(cell, previous[4]),
        "rows_4": None if window(4) is None else len(window(4)),
        "counted": None if window(4) is None else sum(each[3] is not None for each in window(4)),
        "total": over(6, 3, sum),
        "mean": over(6, 2, lambda values: math.fsum(values) / len(values)),
        "least": over(3, 2, lambda values: min(values, key=lambda x: (math.isnan(x), x))),
        "most": over(3, 3, max),
    }
    if found["total"] is not None and abs(found["total"]) >= 2**63:
        found["total"] = None
    now = (v is not None and v < 2) or cell == "x"
    if not now:
        found["braking"] = False
    elif window(4, within=True) is None:
        found["braking"] = None
    else:
        found["braking"] = any(each[2] is not None and (each[2] > 5 or math.isnan(each[2]))
                               for each in window(4, within=True)[:-1])  # fmt: skip
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-9)
    return one == other and type(one) is type(other)


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, max_size=40), st.lists(st.integers(0, 40), max_size=5))
def test_columns_are_those_of_all_rows_that_came_before(rows, cuts):
    assert DERIVATION is not None
    history, came = History.empty(DERIVATION), []
    edges = sorted({0, *(min(cut, len(rows)) for cut in cuts), len(rows)})
    for start, stop in pairwise(edges):
        batch = sorted(rows[start:stop], key=lambda row: row[1])
        found = derive(DERIVATION, history, batch_of(batch))
        told = pa.table(found.columns).to_pylist()
        for row, columns in zip(batch, told, strict=True):
            wanted = expected(came, row)
            wrong = {name: (columns[name], wanted[name]) for name in wanted if not same(columns[name], wanted[name])}
            assert not wrong, (row, came)
            came.append(row)
        history = found.history
        assert history.clock == len(came)
        kept = np.bincount(history.key, minlength=history.keys.num_rows)
        assert kept.max(initial=0) <= ROWS


def test_the_key_that_was_not_seen_for_longest_is_forgotten():
    derivation = derivation_of(stream({"before": "previous(v)"}, keys=2))
    history = History.empty(derivation)
    for batch in ([("a", 1, 1.0), ("b", 2, 2.0)], [("a", 3, 3.0)], [("c", 4, 4.0)]):
        _, history = add_columns(derivation, history, batch_of([(*row, 0, "x") for row in batch]))
    assert (history.keys.column("car").to_pylist(), history.forgotten) == (["a", "c"], 1)
    rows, history = add_columns(derivation, history, batch_of([(each, 5, 5.0, 0, "x") for each in "abc"]))
    assert rows.column("before").to_pylist() == [3.0, None, 4.0]
    assert history.forgotten == 2


def test_without_event_times_the_row_before_is_the_one_that_came_before():
    given = Stream("s", Schema.of(COLUMNS), Source("json"), "root", options={DERIVE: {"p": "previous(n) by car, cell"}})
    derivation = derivation_of(given)
    history, found = History.empty(derivation), []
    for batch in ([("a", 9, 0.0, 1, "x"), ("a", 5, 0.0, 2, "y"), ("a", 7, 0.0, 3, "x")], [("a", 1, 0.0, 4, "x")]):
        rows, history = add_columns(derivation, history, batch_of(batch))
        found += rows.column("p").to_pylist()
    assert found == [None, None, 1, 3]
    assert history.rows == 3  # of a key the newest row and the one before it


@pytest.mark.parametrize(("rows", "counted"), [(ROWS - 1, True), (ROWS, True), (ROWS + 1, False)])
def test_a_window_holds_as_many_rows_as_are_remembered(rows, counted):
    derivation = derivation_of(stream({"c": "count() over last 1 min"}))
    found, history = [], History.empty(derivation)
    for number in range(rows):
        batch, history = add_columns(derivation, history, batch_of([("a", number, 0.0, 0, "x")]))
        found += batch.column("c").to_pylist()
    assert found[-1] == (rows if counted else None)


def test_a_sum_is_exact_up_to_the_largest_number():
    derivation = derivation_of(stream({"t": "sum(n) over last 1 min"}))
    big = 2**62
    rows = [("a", at, 0.0, n, "x") for at, n in enumerate([big, big - 1, 1, -big, -big])]
    found, _ = add_columns(derivation, History.empty(derivation), batch_of(rows))
    assert found.column("t").to_pylist() == [big, 2 * big - 1, None, big, 0]
