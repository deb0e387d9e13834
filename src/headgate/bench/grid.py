"""`headgate bench grid`: the query tree's cost, region matching against Spark joins, and load at first refusal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from headgate.bench import grid_tree


def run(*, queries: list[int] | None = None, rounds: int = 200, seed: int = 1) -> dict[str, Any]:
    """Print the tables and return the figures; `queries` lists the tree sizes to measure."""
    console = Console(width=160)
    rows = grid_tree.cost(tuple(queries or (1_000, 10_000, 100_000, 1_000_000)), seed)
    _print(console, "GBD-tree against the number of queries (up to 4 parts a query, 4 dimensions)", rows)
    wrong = grid_tree.mismatches(rounds, seed)
    console.print(f"serve, loads and removals against sets of cells: {wrong} mismatches in {rounds} random trees")
    return {
        "insert_us": round(rows[-1]["insert_us"], 3),
        "serve_us": round(rows[-1]["serve_us"], 3),
        "queries": rows[-1]["queries"],
        "mismatches": wrong,
    }


def _print(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{v:,.2f}" if isinstance(v, float) else f"{v:,}" for v in row.values()))
    console.print(table)
