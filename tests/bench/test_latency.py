"""What the latency benchmark makes of rows and micro-batches, without running anything."""

from __future__ import annotations

import pytest

from headgate.errors import HeadgateError
from headgate.service.tracing.row_trace import RowTrace, TraceStage
from headgate_studies.bench import latency
from headgate_studies.bench.latency_load import LatencySamples


def test_a_row_is_divided_into_stages_and_a_batch_counts_once() -> None:
    measured = LatencySamples()
    names = ("read, match and commit", "link a to b", "link b to c", "inbox at c", "acknowledged")
    stages = tuple(TraceStage(name, "x", 100.0 * n, 100.0 * n + 100) for n, name in enumerate(names))
    measured.handed["fleet", 7, "all"] = 425.0
    measured.add_row(RowTrace("fleet", 7, "all", "delivered", stages))
    for batch in (3, 3, 4):
        measured.add_batch("fleet", {"batch": batch, "latency_s": {"trigger wait": 0.5, "commit": 0.01}})
    measured.delays += [10.0] * 98 + [500.0, 600.0]
    found = measured.document()
    expected = {"trigger wait": 500.0, "commit": 10.0, "root relay": 100, "hops": 100, "inbox": 100, "client": 25.0}
    assert found["stages_ms"] == expected
    assert (found["batches"], found["p50_ms"], found["p99_ms"], found["rows"]) == (2, 10.0, 600.0, 100)


def test_a_folder_without_a_version_is_refused() -> None:
    with pytest.raises(HeadgateError, match="there is no version of headgate in 'nowhere'"):
        latency.run(before="nowhere")
