"""`run_study`: a study from its declaration to its page."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headgate_studies.studies import charts
from headgate_studies.studies.report import Judged, judge, write_page, write_parquet
from headgate_studies.studies.rows import run_here, run_on_spark
from headgate_studies.studies.study import Study, StudyError

_NONE: Mapping[str, Any] = {}


def run_study(
    study: Study,
    *,
    seeds: int | None = None,
    master: str = "local[*]",
    options: Mapping[str, str] = _NONE,
    parameters: Mapping[str, Any] = _NONE,
    out: Path | None = None,
    state_dir: Path | None = None,
) -> dict[str, Any]:
    """Run a study and write its chart, page and Parquet; returns its figures as one flat dict.

    The chart and the page go to `out` (`docs/studies/NAME`), the Parquet file too where `out` is given, and else to
    `artifacts/studies/NAME`, which is not kept under version control.
    """
    seeds = study.seeds if seeds is None else seeds
    if seeds < 1:
        raise StudyError(f"a study cannot run with {seeds} seeds", hint="give --seeds a number of at least 1")
    study = study.with_parameters(parameters)
    began = time.monotonic()
    if study.live:
        results = run_here(study, seeds)
    else:
        from headgate_studies.session import make_session

        spark = make_session(f"study {study.name}", master, options, state_dir)
        results = run_on_spark(study, seeds, spark)
    judged = judge(study, results)
    figures = dict(study.summary(results)) if study.summary else {}
    directory = Path("docs/studies") / study.name if out is None else out
    write_parquet(results, (Path("artifacts/studies") / study.name if out is None else out) / "results.parquet")
    with charts.styled():
        figure = study.chart(results)
    charts.save(figure, directory)
    write_page(study, seeds, judged, figures, directory)
    print_table(judged)
    return {
        "study": study.name,
        "rows": len(results),
        "seeds": seeds,
        "seconds": round(time.monotonic() - began, 1),
        "out": str(directory),
        **{f"statements: {verdict}": count for verdict, count in _counts(judged).items()},
        **figures,
    }


def print_table(judged: list[Judged]) -> None:
    """Statement, ours, verdict on the standard output."""
    from rich.console import Console
    from rich.table import Table

    if not judged:
        return
    console = Console()
    table = Table(show_lines=True, expand=not console.is_terminal and console.width < 100)
    for name, share in (("statement", 4), ("ours", 4), ("verdict", 2)):
        table.add_column(name, ratio=share)
    for row in judged:
        table.add_row(*row)
    console.print(table, markup=False)


def _counts(judged: list[Judged]) -> dict[str, int]:
    found: dict[str, int] = {}
    for _, _, verdict in judged:
        found[verdict] = found.get(verdict, 0) + 1
    return found
