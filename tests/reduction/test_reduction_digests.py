"""Digests merge in any order and grouping, keep their counts, and survive the wire."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import Schema
from headgate.reduction import Digest, merged, parse_policy
from headgate.reduction.digest import DigestTable

SCHEMA = Schema.of({"x": "double", "n": "bigint", "s": "string"})
SPEC = ["count", {"min": "x"}, {"max": "n"}, {"sum": "x"}, {"mean": "n"}, {"std": "x"}, {"distinct": "s"},
        {"quantiles": "x"}, {"box": ["x", "n"]}]  # fmt: skip
DIGESTERS = parse_policy({"digest": SPEC}, SCHEMA).digesters


def digest_of(values: list[tuple[float | None, int | None, str | None]], first: int) -> Digest:
    columns = [pa.array([row[i] for row in values], kind.type) for i, kind in enumerate(SCHEMA.arrow)]
    rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow)
    seqs = first + np.arange(len(values), dtype=np.uint64)
    why = np.arange(len(values)) % 2
    found = DigestTable.of(rows, seqs, why, ("a", "b"), DIGESTERS).total()
    assert found is not None
    return found


_ROW = st.tuples(
    st.none() | st.floats(-1e6, 1e6).map(lambda x: round(x * 64) / 64),
    st.none() | st.integers(-(1 << 40), 1 << 40),
    st.none() | st.sampled_from("abcdefgh"),
)
_ROWS = st.lists(_ROW, min_size=1, max_size=9)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(_ROWS, _ROWS, _ROWS)
def test_merge_is_associative_and_commutative(one: list, two: list, three: list) -> None:
    a, b, c = digest_of(one, 1), digest_of(two, 100), digest_of(three, 200)
    whole = digest_of([*one, *two, *three], 1)
    left, right = a.merge(b).merge(c), c.merge(a.merge(b))
    apart = Digest.from_bytes(a.to_bytes()).merge(Digest.from_bytes(b.merge(c).to_bytes()))
    for found in (left, right, apart):
        assert found.count == whole.count
        assert (found.first, found.last) == (1, 199 + len(three))
        assert sum(found.reasons.values()) == found.count
        for label, value in whole.show().items():
            if label not in ("first", "last", "reasons"):
                close = value is None or isinstance(value, list)
                assert found.show()[label] == (value if close else pytest.approx(value, rel=1e-9, abs=1e-3)), label


def test_sketches_take_over_when_there_are_many_values() -> None:
    rng = np.random.default_rng(5)
    parts = [
        digest_of([(float(x), 0, f"v{n}") for x, n in zip(rng.random(500), rng.integers(0, 4000, 500), strict=True)], 1)
        for _ in range(10)
    ]
    found: Digest | None = None
    for part in parts:
        found = merged(found, part)
    assert found is not None
    shown = found.show()
    true_distinct = 4000 * (1 - (1 - 1 / 4000) ** 5000)
    assert shown["distinct(s)"] == pytest.approx(true_distinct, rel=0.12)
    assert shown["quantiles(x)"][1:4] == pytest.approx([0.25, 0.5, 0.75], abs=0.08)
    assert len(found.to_bytes()) < 3000


def test_a_plain_digest_is_small() -> None:
    digest = Digest(1234, {"delta": 1000, "oldest": 234}, 1_000_000_000, 1_000_004_321)
    assert len(digest.to_bytes()) < 90
    assert Digest.from_bytes(digest.to_bytes()) == digest


def test_digesters_of_different_policies_merge_by_name() -> None:
    one = Digest(2, {"a": 2}, 1, 2, {"min(x)": [2, 5.0]})
    two = Digest(3, {"b": 3}, 3, 5, {"max(x)": [3, 9.0], "min(x)": [3, 4.0]})
    assert one.merge(two).show() == two.merge(one).show()
    assert one.merge(two).show()["min(x)"] == 4.0
