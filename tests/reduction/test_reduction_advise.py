"""The adviser measures what levels drop, and the commands say it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

from headgate.cli.policy import policy
from headgate.errors import HeadgateError
from headgate.model import Schema
from headgate.reduction import parse_policy
from headgate.reduction.advise import advise, candidates

SCHEMA = Schema.of({"x": "double", "k": "int"})
ROWS = pa.RecordBatch.from_arrays(
    [pa.array([float(n % 10) for n in range(1000)]), pa.array([n % 4 for n in range(1000)], pa.int32())],
    schema=SCHEMA.arrow,
)


def test_fractions_and_order() -> None:
    document = {"levels": [{"drop where": "x > 99"}, {"drop where": "x < 6"}, {"drop where": "x < 2"}]}
    advice = advise(parse_policy(document, SCHEMA), ROWS, target=0.5)
    assert [level.alone for level in advice.levels] == [0.0, pytest.approx(0.6), pytest.approx(0.2)]
    assert [level.together for level in advice.levels] == [0.0, pytest.approx(0.6), pytest.approx(0.6)]
    assert [level.verdict for level in advice.levels] == [
        "frees almost nothing",
        "helps",
        "adds nothing to the levels before it",
    ]
    assert (advice.reaches, advice.order, advice.proposed_reaches) == (2, (2, 1, 0), 2)
    assert [level.together for level in advice.proposed] == [pytest.approx(0.2), pytest.approx(0.6), pytest.approx(0.6)]


def test_windows_are_packs() -> None:
    advice = advise(parse_policy({"levels": [{"latest": 10}]}, SCHEMA), ROWS, target=0.05, window=100)
    assert advice.levels[0].alone == pytest.approx(0.9)
    assert advice.reaches is None


def test_candidates_suit_the_columns() -> None:
    labels = [level.label for level in candidates(SCHEMA, ROWS, key="k").levels]
    assert labels == ["delta", "conflate", "every", "random"]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_commands_on_files(tmp_path: Path, suffix: str) -> None:
    rows, written = tmp_path / f"rows.{suffix}", tmp_path / "policy.yaml"
    table = pa.Table.from_batches([ROWS])
    if suffix == "parquet":
        parquet.write_table(table, rows)
    elif suffix == "csv":
        csv.write_csv(table, rows)
    else:
        rows.write_text("\n".join(json.dumps(row) for row in table.to_pylist()))
    written.write_text("policy:\n  levels:\n    - every: 4\n  digest: [{max: x}]\n")
    runner = CliRunner()
    checked = runner.invoke(policy, ["check", str(rows), "--policy", str(written)])
    assert json.loads(checked.output.splitlines()[-1]) == {"ok": True, "levels": ["every"], "digest": ["max(x)"]}
    advised = runner.invoke(
        policy, ["advise", str(rows), "--policy", str(written), "--target", "30/s", "--rate", "100/s"]
    )
    found = json.loads(advised.output.splitlines()[-1])
    assert found["target"] == pytest.approx(0.3)
    assert found["levels"][0]["alone"] == pytest.approx(0.75)
    assert found["reaches"] == 1


def test_a_generator_and_the_paper_form(tmp_path: Path) -> None:
    written = tmp_path / "figure2.xml"
    written.write_text(
        '<policy attribute="heart_rate"><level><filter name="WITHIN"><para name="low" value="50"/>'
        '<para name="high" value="100"/></filter></level></policy>'
    )
    advised = CliRunner().invoke(policy, ["advise", "generator:pulse", "--policy", str(written), "--rows", "2000"])
    assert 0.5 < json.loads(advised.output.splitlines()[-1])["levels"][0]["alone"] < 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["advise", "rows.xls"], "of no known kind"),
        (["advise", "none.csv"], "cannot read"),
        (["advise", "generator:pulse", "--target", "50/s"], "how fast the rows come is not known"),
        (["advise", "generator:plse"], "did you mean 'pulse'?"),
        (["check", "generator:pulse", "--policy", "none.yaml"], "cannot read"),
    ],
)
def test_mistakes_are_errors_with_a_fix(arguments: list[str], says: str) -> None:
    found = CliRunner().invoke(policy, arguments)
    assert isinstance(found.exception, HeadgateError)
    assert says in str(found.exception)


def test_everything_is_listed() -> None:
    listed = CliRunner().invoke(policy, ["filters"]).output
    assert all(f"\n{name} " in "\n" + listed for name in ("gt", "delta", "thin_space", "quantiles", "box"))
