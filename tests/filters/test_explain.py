"""`headgate explain`: reachable from the command line, for generators and for rows of a file."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from headgate.cli import check, explain
from headgate.cli.groups import Program
from headgate.errors import HeadgateError

DEPLOYMENT = """
streams:
  fleet: {root: a, source: {format: generator, kind: fleet, seed: 1}, rate: 100/s}
  notes:
    root: a
    source: {format: json, path: /nowhere}
    schema: {topic: string, n: int}
sites: {a: {}, b: {}}
subscriptions:
  all: {site: a, stream: fleet}
  fast: {site: b, stream: fleet, where: "speed > $least", context: {least: 40}, select: [vehicle, speed]}
  some: {site: b, stream: notes, profile: topics, where: "news/#"}
  one: {site: b, stream: notes, profile: topics, where: "news/sport"}
  high: {site: b, stream: notes, where: "n > 2 AND (n > 1 OR topic = 'x')"}
"""


@pytest.fixture
def run(tmp_path):
    file = tmp_path / "headgate.yaml"
    file.write_text(DEPLOYMENT)
    app = Program()
    explain.register(app)
    app.callback()(lambda: None)

    def call(*args):
        result = CliRunner().invoke(app, ["explain", str(file), *args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    return call


def test_every_subscription_is_explained(run, tmp_path):
    rows = tmp_path / "notes.parquet"
    pq.write_table(
        pa.table({"topic": ["news", "news/sport", "x", None], "n": pa.array([1, 2, 3, 4], pa.int32())}), rows
    )
    sizes = tmp_path / "sizes.json"
    found = json.loads(run("--json", "--rows", f"notes={rows}", "--sizes", str(sizes)))
    assert found["all"]["covers"] == ["fast"]
    assert found["some"]["covers"] == ["one"]
    assert found["some"]["selectivity"] == 0.5
    assert found["high"]["simplified"] == "n > 2"
    assert found["high"]["boxes"] == [{"n": "n >= 3"}]
    cost = found["high"]["cost"]
    assert len(found["high"]["boxes"]) <= cost["boxes_at_most"] == 2
    assert 0 < found["all"]["cost"]["row_us"] < cost["row_us"] < cost["row_us_limit"] == 20
    assert 0 < found["fast"]["selectivity"] < 1
    assert found["fast"]["context"] == ["least"]
    written = json.loads(sizes.read_text())["sizes"]
    assert set(written["row_bytes"]) == {"fleet", "notes"}
    assert written["selectivity"]["some"] == 0.5
    assert "news/#" in run()


def test_one_subscription_in_full(run):
    shown = run("fast")
    assert "speed > $least" in shown
    assert "of the rows" in shown
    assert "of the rows" not in run("some")  # nothing is known of its stream


GRID = """
streams:
  field:
    root: a
    source: {format: json, path: /nowhere}
    schema: {x: int, y: int, v: double}
    grid: {x: {column: x, size: 16}, y: {column: y, size: 16}}
sites: {a: {}, b: {}}
subscriptions:
  whole: {site: a, stream: field}
  quarter: {site: a, stream: field, resolution: {space: 1/4}}
  sixteenth: {site: b, stream: field, resolution: {space: 1/16}}
  corner: {site: b, stream: field, region: {box: {x: [0, 8], y: [0, 8]}}}
  inside: {site: b, stream: field, where: "v > 0.5", region: {box: {x: [2, 4], y: [2, 4]}}}
"""


def test_regions_and_resolutions_count(run, tmp_path):
    (tmp_path / "headgate.yaml").write_text(GRID)
    rows = tmp_path / "field.json"
    rows.write_text("".join(json.dumps({"x": n % 16, "y": n // 16, "v": n % 2}) + "\n" for n in range(256)))
    sizes = tmp_path / "sizes.json"
    found = json.loads(run("--json", "--rows", f"field={rows}", "--sizes", str(sizes)))
    expected = {"whole": 1.0, "quarter": 1 / 4, "sixteenth": 1 / 16, "corner": 1 / 4, "inside": 1 / 128}
    assert {name: each["selectivity"] for name, each in found.items()} == expected
    assert json.loads(sizes.read_text())["sizes"]["selectivity"] == expected
    assert {name: sorted(each["covers"]) for name, each in found.items()} == {
        "whole": ["corner", "inside", "quarter", "sixteenth"],
        "quarter": ["sixteenth"],
        "sixteenth": [],
        "corner": ["inside"],
        "inside": [],
    }
    assert found["quarter"]["bytes_per_stream_row"] == pytest.approx(found["whole"]["bytes_per_stream_row"] / 4)
    assert "region" in run("corner")


def test_bad_lines_are_told_and_left_out(run, tmp_path):
    rows = tmp_path / "notes.json"
    good = ['{"topic": "news", "n": 1}', '{"topic": "news/sport", "n": 3}', '{"topic": "x", "n": 5, "more": [1]}']
    rows.write_text("\n".join([good[0], "{oops", good[1], "", '{"topic": "y", "n": "many"}', good[2], "[1]"]))
    shown = run("high", "--rows", f"notes={rows}")
    assert "takes       66.667% of the rows" in shown
    assert [line.split(": no row")[0] for line in shown.splitlines() if ": no row" in line] == [
        f"{rows}:{number}" for number in (2, 5, 7)
    ]
    rows.write_text("no\nrow\n")
    with pytest.raises(HeadgateError, match="none of its 2 lines"):
        run("--rows", f"notes={rows}")


def test_wrong_names_are_refused(run, tmp_path):
    for args, part in (
        (["fasst"], "did you mean 'fast'"),
        (["--rows", "notse=x"], "did you mean 'notes'"),
        (["--rows", "notes"], "is not STREAM=FILE"),
        (["--rows", f"notes={tmp_path / 'none.parquet'}"], "cannot be read"),
    ):
        with pytest.raises(HeadgateError, match=part):
            run(*args)


def test_the_cost_of_a_filter_is_shown(run):
    assert "us/row" in run()
    told = run("high")
    assert "us a row (at most 20)" in told
    assert "to at most 2 boxes" in told


def test_check_tells_what_filters_cost(tmp_path):
    file = tmp_path / "headgate.yaml"
    file.write_text(DEPLOYMENT)
    app = Program()
    check.register(app)
    app.callback()(lambda: None)
    found = json.loads(CliRunner().invoke(app, ["check", str(file), "--json"]).output)
    assert found["ok"]
    assert found["row_us_limit"] == 20
    assert found["filters"]["high"]["row_us"] > found["filters"]["all"]["row_us"] > 0
    assert "costliest" not in CliRunner().invoke(app, ["check", str(file)]).output
    file.write_text(DEPLOYMENT + "options: {filter_row_cost: 0.1 us}\n")
    told = CliRunner().invoke(app, ["check", str(file)]).output
    assert "costliest filter: high, about 0.0162 us a row (at most 0.1)" in told
    file.write_text(DEPLOYMENT + "options: {filter_row_cost: 0.001 us}\n")
    refused = CliRunner().invoke(app, ["check", str(file)])
    assert refused.exit_code == 2
    assert "subscriptions.high.where: evaluating the filter up to here takes" in refused.output
    file.write_text(DEPLOYMENT + "options: {filter_row_cost: cheap}\n")
    assert "options.filter_row_cost" in CliRunner().invoke(app, ["check", str(file)]).output
