"""What the cluster benchmark compares and computes, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.wire.part import Part
from headgate_studies.bench.cluster import content_of, task_times


def part(rows: list[tuple[float, list[int]]]) -> Part:
    values = pa.RecordBatch.from_pydict({"v": pa.array([value for value, _ in rows], pa.float64())})
    positions = np.arange(len(rows), dtype=np.uint64)
    return Part(len(rows), positions, values, ClassLists.of(classes for _, classes in rows))


def test_contents_are_equal_in_any_order_and_parts_and_nothing_else_is() -> None:
    rows = [(1.5, [1, 7]), (2.5, [7]), (3.5, [])]
    wanted = content_of([part(rows)])
    assert wanted[:2] == (3, 3)
    assert content_of([part(rows[2:]), part(rows[1::-1])]) == wanted
    for other in (
        [(1.5, [1, 7]), (2.5, [7])],
        [*rows, rows[0]],
        [(1.5, [1, 7]), (2.5, []), (3.5, [7])],
        [(1.5, [1, 8]), (2.5, [7]), (3.5, [])],
        [(1.5, [1, 7]), (2.0, [7]), (3.5, [])],
    ):
        assert content_of([part(other)]) != wanted


def test_times_of_tasks_are_read_from_an_event_log(tmp_path: Path) -> None:
    events = [
        {"Event": "SparkListenerTaskStart", "Task Info": {"Launch Time": 1, "Finish Time": 0}},
        {"Event": "SparkListenerTaskEnd", "Task Info": {"Launch Time": 10, "Finish Time": 25}},
    ]
    lines = [json.dumps(event, separators=(",", ":")) for event in events]
    (tmp_path / "local-1").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert task_times(tmp_path) == [(10.0, 25.0)]
