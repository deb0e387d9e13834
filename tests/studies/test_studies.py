from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from headgate_studies.studies import STUDIES, charts, load, papers
from headgate_studies.studies.intervals import band, bootstrap_interval, mean_interval, paired_interval, t_quantile
from headgate_studies.studies.progress import ProgressBar
from headgate_studies.studies.rows import run_here, run_on_spark
from headgate_studies.studies.runner import run_study
from headgate_studies.studies.study import FAILS, REPRODUCES, Statement, Study, StudyError


def scatter(parameters, seed):
    random = np.random.default_rng(seed)
    return [
        {"part": part, "value": np.float64(parameters["n"] + part + random.random()), "pair": np.arange(2)}
        for part in range(2)
    ]


def lines(results):
    figure, (axes,) = charts.panels()
    charts.draw_band(axes, band(results, "n", "value"), "n", "values")
    return figure


def declared(**changes):
    values = {
        "name": "tiny",
        "about": "A tiny study.",
        "parameters": {"n": [3, 1], "kind": ["a", "b"]},
        "run": scatter,
        "chart": lines,
        "statements": [
            Statement("values | grow", lambda found: (f"{found['value'].max():.1f}", REPRODUCES)),
            Statement("values shrink", lambda found: ("no", FAILS)),
        ],
        "summary": lambda found: {"rows found": len(found)},
        "seeds": 2,
        "live": True,
        "paper": "Somebody's figure 1",
    }
    return Study(**{**values, **changes})


def test_rows_come_in_the_order_of_the_declaration():
    found = run_here(declared(), 2)
    assert found[["n", "kind", "seed", "part"]].to_numpy().tolist() == [
        [n, kind, seed, part] for n in (3, 1) for kind in "ab" for seed in range(2) for part in range(2)
    ]
    assert found["value"].iloc[0] == 3 + np.random.default_rng(0).random()
    assert found["pair"].iloc[0] == [0, 1]


def test_parameters_are_replaced_by_name():
    study = declared()
    assert study.with_parameters({"n": 7}).cases() == [{"n": 7, "kind": "a"}, {"n": 7, "kind": "b"}]
    assert len(study.with_parameters({"n": [1, 2, 3]}).cases()) == 6
    listed = declared(parameters=[{"n": 1, "kind": "a"}, {"n": 2, "kind": "a"}])
    assert listed.cases() == [{"n": 1, "kind": "a"}, {"n": 2, "kind": "a"}]
    assert listed.with_parameters({"n": [5, 6]}).cases() == [{"n": 5, "kind": "a"}, {"n": 6, "kind": "a"}]
    with pytest.raises(StudyError, match=r"no parameter 'kin' .did you mean 'kind'"):
        study.with_parameters({"kin": 1})


@pytest.mark.slow
def test_a_run_leaves_page_chart_and_rows_and_the_same_bytes_twice(tmp_path, capsys):
    first = run_study(declared(), out=tmp_path / "one")
    run_study(declared(), out=tmp_path / "two")
    assert first["rows found"] == first["rows"] == 16
    assert first["statements: reproduces"] == first["statements: does not reproduce"] == 1
    for name in ("README.md", "chart.svg", "results.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    page = (tmp_path / "one" / "README.md").read_text()
    assert f"| values \\| grow | {run_here(declared(), 2)['value'].max():.1f} | reproduces |" in page
    assert "`n` 3, 1; `kind` a, b" in page
    assert len(pd.read_parquet(tmp_path / "one" / "results.parquet")) == 16
    assert "values shrink" in capsys.readouterr().out


def test_results_go_to_docs_and_artifacts_unless_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_study(declared(), seeds=1)
    assert sorted(str(path) for path in Path().rglob("*") if path.is_file()) == [
        "artifacts/studies/tiny/results.parquet",
        "docs/studies/tiny/README.md",
        "docs/studies/tiny/chart.svg",
    ]


def broken(parameters, seed):
    if seed == 1:
        raise ValueError("the model does not settle")
    return {"value": 1}


def test_a_row_that_fails_is_named():
    with pytest.raises(StudyError, match=r'failed for \{"n": 3, "kind": "a"\}, seed 1:(.|\n)*does not settle'):
        run_here(declared(run=broken), 2)
    with pytest.raises(StudyError, match="not Study"):
        run_here(declared(run=lambda parameters, seed: {"value": declared()}), 1)
    with pytest.raises(StudyError, match="0 seeds"):
        run_study(declared(), seeds=0)


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_declared_under_its_name(name):
    study = load(name)
    assert study.name == name
    assert study.cases()
    assert study.statements
    cited = (papers.QASD, papers.XPORT, papers.FILTER_QOS, papers.GRID, papers.PACK)
    assert study.paper is None or study.paper.startswith(cited)


def test_an_unknown_study_is_refused_with_the_nearest():
    with pytest.raises(StudyError, match="did you mean 'class-list-coding'"):
        load("class-list-codings")


def test_progress_in_a_log_is_a_line_a_tenth(capsys):
    with ProgressBar("rows", 1000, Console(width=80)) as bar:
        for done in range(1, 1001):
            bar.show(done)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "rows: 100/1000"
    assert shown[-1] == "rows: 1000/1000"
    assert len(shown) == 10


def test_progress_on_a_terminal_is_a_bar(capsys):
    with ProgressBar("rows", 4, Console(force_terminal=True, width=80)) as bar:
        bar.show(4)
    assert "4/4" in capsys.readouterr().out


def test_intervals_cover_the_mean_as_often_as_they_say():
    random = np.random.default_rng(4)
    for size in (3, 5, 20):
        samples = random.normal(7.0, 2.0, (4000, size))
        covered = [found.low <= 7.0 <= found.high for found in map(mean_interval, samples)]
        assert 0.93 < np.mean(covered) < 0.97
    skewed = random.exponential(1.0, 60)
    found = bootstrap_interval(skewed, lambda sample: float(np.median(sample)))
    assert found.low < np.median(skewed) == found.mean < found.high
    assert bootstrap_interval(skewed) == bootstrap_interval(skewed)


def test_t_quantiles_agree_with_the_tables():
    table = {1: 12.706, 2: 4.303, 3: 3.182, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980}
    for freedom, expected in table.items():
        assert t_quantile(0.975, freedom) == pytest.approx(expected, rel=5e-3)


def test_pairing_removes_what_seeds_have_in_common():
    random = np.random.default_rng(1)
    common = random.normal(0, 10, 30)
    found = paired_interval(common + 1.0 + 0.1 * random.normal(size=30), common)
    assert 0.9 < found.low < found.mean < found.high < 1.1
    lone = mean_interval([2.0])
    assert (lone.mean, lone.count) == (2.0, 1)
    assert math.isnan(lone.low)


@pytest.mark.spark
def test_spark_gives_the_rows_that_this_process_gives(spark):
    study = load("class-list-coding").with_parameters({"classes": 50, "ids_per_row": [3, 5], "skew": 0.5})
    pd.testing.assert_frame_equal(run_on_spark(study, 3, spark), run_here(study, 3))


@pytest.mark.spark
def test_the_command_runs_the_study_and_ends_with_json(spark, tmp_path):
    from headgate.cli.app import app
    from headgate_studies.cli.study import register

    register(app)
    sizes = ["--set", "classes=64", "--set", "ids_per_row=[2, 9]", "--set", "skew=0"]
    done = CliRunner().invoke(
        app, ["study", "run", "class-list-coding", "--seeds", "2", *sizes, "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["rows"] == 2 * 2 * 6
    assert figures["bytes_per_row delta planes zstd"] < figures["bytes_per_row raw"]
    assert (tmp_path / "chart.svg").read_text().startswith("<?xml")


def test_the_legend_of_silent_loss_hides_no_swatch():
    """Each swatch stands on the page's white, not on a bar of its own colour."""
    figures = {"headgate": (2086, 17914, 0), "mosquitto": (2397, 0, 17603), "nats": (2622, 17378, 0)}
    columns = ["system", "received", "declared_lost", "undeclared_lost", "measured"]
    results = pd.DataFrame([(name, *found, True) for name, found in figures.items()], columns=columns)
    with charts.styled():
        figure = load("silent-loss").chart(results)
        figure.canvas.draw()
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["received", "declared lost", "undeclared lost"]
    bars = [bar.get_window_extent() for bar in figure.axes[0].patches if bar.get_height()]
    for swatch in legend.get_patches():
        assert not any(swatch.get_window_extent().overlaps(bar) for bar in bars)
