"""The same reduction on DataFrames: rows, digests and independence from how the rows are partitioned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from headgate.pipeline.reduce import digest, reduce
from headgate.reduction import PolicyError

pytestmark = pytest.mark.spark

POLICY: dict[str, Any] = {
    "attribute": "x",
    "key": "k",
    "digest": ["max", {"mean": "x"}, {"time_range": "at"}],
    "levels": [{"delta": 1.0}, {"drop": {"within": [-0.5, 0.5]}}, {"random": 1.0}],
}


@pytest.fixture(scope="module")
def readings() -> pd.DataFrame:
    rng = np.random.default_rng(11)
    at = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(np.arange(3000), unit="s")
    return pd.DataFrame({"k": rng.integers(0, 7, 3000), "x": rng.normal(size=3000).cumsum() / 5, "at": at})


def expected(readings: pd.DataFrame) -> list[tuple[int, float]]:
    """Levels 1 and 2, row by row."""
    last: dict[int, float] = {}
    kept = []
    for row in readings.itertuples():
        if row.k not in last or abs(row.x - last[row.k]) >= 1.0:
            last[row.k] = row.x
            if not -0.5 <= row.x <= 0.5:
                kept.append((row.k, row.x))
    return sorted(kept)


@pytest.mark.parametrize("partitions", [1, 5])
def test_two_levels_keep_what_a_loop_keeps(spark: Any, readings: pd.DataFrame, partitions: int) -> None:
    frame = spark.createDataFrame(readings).repartition(partitions)
    kept = reduce(frame, POLICY, level=2, by=["k"], order=["at"], window_rows=100).toPandas()
    assert sorted(zip(kept["k"], kept["x"], strict=True)) == expected(readings)


def test_kept_and_digested_is_input(spark: Any, readings: pd.DataFrame) -> None:
    frame = spark.createDataFrame(readings)
    arguments: dict[str, Any] = {"level": 2, "by": ["k"], "order": ["at"]}
    found = digest(frame, POLICY, **arguments)
    assert found is not None
    assert found.count + reduce(frame, POLICY, **arguments).count() == len(readings)
    assert set(found.reasons) == {"delta", "within"}
    assert set(found.show()) >= {"max(x)", "mean(x)", "time_range(at)"}
    assert reduce(frame, POLICY).count() == 0
    assert digest(frame, {"levels": [{"random": 0.0}]}) is None


def test_a_policy_that_does_not_fit_is_refused_before_anything_runs(spark: Any, readings: pd.DataFrame) -> None:
    with pytest.raises(PolicyError, match="did you mean"):
        reduce(spark.createDataFrame(readings), {"levels": [{"dleta": 5}]})
