"""What a study leaves behind: Parquet for machines, a chart, and a page with statement, ours, verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate_studies.studies.study import Study

if TYPE_CHECKING:
    import pandas as pd

Judged = tuple[str, str, str]
"""A statement, our figure and the verdict."""


def judge(study: Study, results: pd.DataFrame) -> list[Judged]:
    """Every statement of the study with what our results say."""
    return [(claim, *verdict(results)) for claim, verdict in study.statements]


def write_parquet(results: pd.DataFrame, path: Path) -> None:
    """All rows of the results."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pandas(results, preserve_index=False), path)


def write_page(study: Study, seeds: int, judged: Sequence[Judged], figures: Mapping[str, Any], directory: Path) -> None:
    """The page README.md. It holds no dates and no times, so that it changes only when results do."""
    lines = [f"# {study.name}", "", study.about, ""]
    if study.paper:
        lines += [f"From: {study.paper}.", ""]
    lines += [f"![{study.name}](chart.svg)", ""]
    if judged:
        lines += ["| statement | ours | verdict |", "|---|---|---|"]
        lines += [f"| {_cell(claim)} | {_cell(ours)} | {_cell(verdict)} |" for claim, ours, verdict in judged]
        lines.append("")
    if study.notes:
        lines += [study.notes.strip(), ""]
    lines += ["## How", "", _how(study, seeds), ""]
    lines += [f"Run again: `headgate study run {study.name} --seeds {seeds}`.", ""]
    if figures:
        lines += ["| figure | value |", "|---|---|"]
        lines += [f"| {_cell(name)} | {_number(value)} |" for name, value in figures.items()]
        lines.append("")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "README.md").write_text("\n".join(lines), encoding="utf-8")


def _how(study: Study, seeds: int) -> str:
    cases = study.cases()
    seeded = f"{len(cases)} sets of parameters times {seeds} seeds"
    runs = len(study.work(seeds))
    if runs < len(cases) * seeds:
        seeded += f" (fewer where one run takes long; {runs} runs)"
    alone = ", measured alone, one after another" if study.live else ""
    values: dict[str, list[str]] = {}
    for case in cases:
        for name, value in case.items():
            shown = value if isinstance(value, str) else json.dumps(value)
            if shown not in values.setdefault(name, []):
                values[name].append(shown)
    grid = "; ".join(f"`{name}` {', '.join(found)}" for name, found in values.items())
    return f"{seeded}{alone}: {grid}."


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else _cell(str(value))
