"""The same through Spark: files of several formats in one pass each, dead letters, and the program's own command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from tests.replay.recorded_rows import fleet, rows

from headgate.pipeline.recorded_data import Pace
from headgate.replay.run import Replay, recording_of, run_replay
from headgate.replay.variants import make_variants


@pytest.mark.parametrize(
    "kind", ["json", pytest.param("parquet", marks=pytest.mark.long), pytest.param("csv", marks=pytest.mark.long)]
)
def test_files_of_any_format_give_the_same_rows(spark: Any, tmp_path: Path, kind: str) -> None:
    table, folder = rows(400), tmp_path / f"rows.{kind}"
    folder.mkdir()
    for number, piece in enumerate((table.slice(150), table.slice(0, 150))):  # out of order, to be put in order
        path = folder / f"{number}.{kind}"
        if kind == "parquet":
            pq.write_table(piece, path)
        elif kind == "csv":
            pacsv.write_csv(piece, path)
        else:
            path.write_text(piece.to_pandas().to_json(orient="records", lines=True, date_format="iso"))
    if kind == "json":
        (folder / "bad.json").write_text('{"at": "yesterday"}\n')
    deployment = fleet(tmp_path)
    recording = recording_of(str(folder), deployment, None, {})
    assert recording.format == kind
    report = run_replay(spark, Replay([recording], make_variants(deployment, [], []), Pace(), tmp_path / "out"))
    (variant,) = report["variants"]
    assert report["streams"]["fleet"]["dead"] == (1 if kind == "json" else 0)
    assert variant["subscriptions"]["all"]["delivered"] == 400
    fast = pq.read_table(tmp_path / "out" / "received" / "as-deployed" / "fast.parquet")
    wanted = [row for row in table.to_pylist() if row["speed"] > 60]
    assert sorted(fast["unit"].to_pylist()) == sorted(row["unit"] for row in wanted)
    assert (tmp_path / "out" / "chart.svg").read_text().startswith("<svg")
    assert report["difference"] == 0
