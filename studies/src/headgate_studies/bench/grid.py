"""`headgate bench grid`: the query tree's cost, region matching against Spark joins, and load at first refusal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from headgate_studies.bench import grid_load, grid_regions, grid_tree
from headgate_studies.models.serving import LARGE


def run(
    *,
    queries: list[int] | None = None,
    rounds: int = 200,
    seeds: int = 2,
    digits: int = 8,
    subscriptions: int = 100_000,
    sample: int = 100_000,
    points: int = 500_000,
    seed: int = 1,
) -> dict[str, Any]:
    """Print the tables and return the figures; `queries` lists the tree sizes, `seeds` counts replication runs."""
    console = Console(width=160)
    rows = grid_tree.cost(tuple(queries or (1_000, 10_000, 100_000, 1_000_000)), seed)
    _print(console, "GBD-tree against the number of queries (up to 4 parts a query, 4 dimensions)", rows)
    chosen = grid_tree.depths((8, 12, 16, 20), seed)
    _print(
        console, "cells taken in, as a multiple of the query: digits shared evenly, and chosen for the queries", chosen
    )
    wrong = grid_tree.mismatches(rounds, seed)
    console.print(f"serve, loads and removals against sets of cells: {wrong} mismatches in {rounds} random trees")
    figures: dict[str, Any] = {
        "insert_us": round(rows[-1]["insert_us"], 3),
        "serve_us": round(rows[-1]["serve_us"], 3),
        "queries": rows[-1]["queries"],
        "mismatches": wrong,
    }
    if seeds:
        figures |= _load(console, seeds, digits)
    if subscriptions:
        matched = _regions(console, subscriptions, sample, points, seed)
        figures["mismatches"] += matched.pop("mismatches")
        figures |= matched
    return figures


def _regions(console: Console, subscriptions: int, sample: int, points: int, seed: int) -> dict[str, Any]:
    found = grid_regions.compare(subscriptions, sample, points, seed)
    rows = [
        {
            "points": size,
            "matches_per_point": found[f"matches_per_point_{size}"],
            **{f"{way}_s": found.get(f"{way}_{size}_s", float("nan")) for way in ("sql_join", "tiled_join", "index")},
        }
        for size in (sample, points)
    ]
    _print(console, f"points against {subscriptions:,} regions in Spark", rows)
    return {
        "vs_sql_join": round(found[f"sql_join_{sample}_s"] / found[f"index_{sample}_s"], 2),
        "vs_tiled_join": round(found[f"tiled_join_{points}_s"] / found[f"index_{points}_s"], 2),
        "vs_tiled_join_sample": round(found[f"tiled_join_{sample}_s"] / found[f"index_{sample}_s"], 2),
        "matches_per_point": round(found[f"matches_per_point_{points}"], 2),
        "region_index_build_s": round(found["build_s"], 3),
        "mismatches": found["mismatches"],
    }


def _load(console: Console, seeds: int, digits: int) -> dict[str, Any]:
    saved = grid_load.saving(seeds, digits, LARGE)
    title = f"replication, large hot spot, 16 sites, {digits} digits, {seeds} seeds (% of capacity)"
    _print(console, title, saved)
    refusal = grid_load.first_refusal(seeds, digits)
    for name, loads in refusal.items():
        spread = " ".join(f"{100 * load:.1f}" for load in sorted(loads))
        console.print(f"client load at first refusal, {name} hot spot, queries of at most 1 % of a site (%): {spread}")
    every = [load for loads in refusal.values() for load in loads]
    at = {row["client_load"]: row["saving"] for row in saved}
    ours = {row["client_load"]: row["saving_ours"] for row in saved}
    return {
        "replication_saving_large": round(at.get(grid_load.AT, 0.0), 4),
        "replication_saving_large_at_client_load": grid_load.AT,
        "replication_saving_large_80": round(at.get(0.8, 0.0), 4),
        "replication_saving_large_ours_80": round(ours.get(0.8, 0.0), 4),
        "max_load_first_refusal": round(sum(every) / len(every), 4),
        "min_load_first_refusal": round(min(every), 4),
    }


def _print(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(_shown(value) for value in row.values()))
    console.print(table)


def _shown(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else value if isinstance(value, str) else f"{value:,}"
