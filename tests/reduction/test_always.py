"""Thinning that holds always: intervals by key, rates, and rows that come late, out of order or without a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.reduction.constant_thinning import Thinner, Thinning


def batch(*rows: tuple[str, float | None]) -> pa.RecordBatch:
    """Rows of a key and a time in seconds."""
    times = pa.array([None if at is None else round(at * 1e6) for _, at in rows], pa.int64())
    return pa.RecordBatch.from_pydict(
        {"unit": pa.array([unit for unit, _ in rows]), "at": times.cast(pa.timestamp("us", tz="UTC"))}
    )


def kept(thinning: Thinning, rows: list[tuple[str, float | None]], size: int = 100) -> list[tuple[str, float | None]]:
    """The rows that stay, given in batches of a size."""
    thinner, found = Thinner(thinning), []
    for first in range(0, len(rows), size):
        piece = rows[first : first + size]
        mask, gone = thinner.keep(batch(*piece), np.zeros(len(piece)))
        assert sum(gone.values()) == (~mask).sum()
        found += [row for row, stays in zip(piece, mask, strict=True) if stays]
    return found


EVERY = Thinning(every_s=10.0, key=("unit",), event_time="at")
CASES = [
    ("one of each key in an interval", [("a", 1), ("b", 2), ("a", 9.9), ("a", 10), ("b", 19)], [0, 1, 3, 4]),
    ("intervals begin at multiples, not at the first row", [("a", 9), ("a", 11)], [0, 1]),
    ("a late row of an interval that was passed goes", [("a", 25), ("a", 12), ("a", 31)], [0, 2]),
    ("a late row of another key stays", [("a", 25), ("b", 12), ("b", 21)], [0, 1, 2]),
    ("out of order inside of an interval: the first to come", [("a", 8), ("a", 3)], [0]),
    ("a row without a time stays", [("a", 1), ("a", None), ("a", 2)], [0, 1]),
    ("before 1970", [("a", -15), ("a", -11), ("a", -1), ("a", 1)], [0, 2, 3]),
]


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize(("rows", "stay"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_every(rows: list[tuple[str, float | None]], stay: list[int], size: int) -> None:
    assert kept(EVERY, rows, size) == [rows[place] for place in stay]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_at_most(size: int) -> None:
    rows: list[tuple[str, float | None]] = [("a", second + part / 10) for second in range(3) for part in range(5)]
    fast = Thinning(at_most=2.0, event_time="at")
    assert kept(fast, rows, size) == [row for row in rows if row[1] in (0.0, 0.1, 1.0, 1.1, 2.0, 2.1)]
    slow = Thinning(at_most=0.5, event_time="at")
    assert kept(slow, rows, size) == [rows[0], rows[10]]
    assert kept(fast, [("a", 5), ("a", 4), ("a", None)], size) == [("a", 5), ("a", None)]


def test_both_and_without_event_time() -> None:
    thinner = Thinner(Thinning(every_s=5.0, at_most=1.0, key=("unit",)))
    mask, gone = thinner.keep(batch(("a", None), ("b", None), ("a", None)), np.array([1.0, 1.0, 1.2]))
    assert mask.tolist() == [True, False, False]
    assert gone == {"every": 1, "at_most": 1}


def test_the_same_rows_stay_however_they_are_cut() -> None:
    random = np.random.default_rng(1)
    rows: list[tuple[str, float | None]] = [
        (f"u{unit}", float(at))
        for unit, at in zip(random.integers(0, 5, 400), random.uniform(0, 300, 400), strict=True)
    ]
    both = Thinning(every_s=10.0, at_most=3.0, key=("unit",), event_time="at")
    assert kept(both, rows, 1) == kept(both, rows, 37) == kept(both, rows, 400)


@pytest.mark.parametrize("thinning", [Thinning(every_s=1.0, key=("unit",)), Thinning(average_s=1.0, key=("unit",))])
def test_a_block_without_rows_leaves_everything_as_it_was(thinning: Thinning) -> None:
    """Coverage alone comes wherever nothing matched; a relay failed on it, and again whenever it was started."""
    thinner = Thinner(thinning)
    for rows in (batch(), batch(("a", 0.5)), batch()):
        mask, _, _ = thinner.reduce(rows, np.full(rows.num_rows, 7.0))
        assert len(mask) == rows.num_rows
