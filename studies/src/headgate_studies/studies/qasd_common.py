"""What the QASD studies share: one random problem per seed, the same for every setting, and a row per construction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headgate.planning import ALGORITHMS, measure
from headgate.planning.construct import construct
from headgate.planning.generate import Workload, generate
from headgate_studies.studies import charts
from headgate_studies.studies.intervals import band
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

NAMES = tuple(algorithm.name for algorithm in ALGORITHMS)
PLAIN = ("brush", "chain", "unfas", "unfag")
SEEDS = 100


def rows(workload: Workload, seed: int, names: tuple[str, ...] = NAMES) -> list[dict[str, Any]]:
    """One row per construction: every metric of the graph it builds, and its rounds per join."""
    problem = generate(workload, seed)
    found = []
    for name in names:
        built = construct(problem, name, seed)
        metrics = measure(built.graph)
        found.append(
            {
                "algorithm": name,
                "geometric": metrics.geometric_mean_paper,
                "geometric_without_zeros": metrics.geometric_mean,
                "arithmetic": metrics.arithmetic_mean,
                "bandwidth_mb_per_s": metrics.total_bandwidth_bytes_per_s / 1e6,
                "fairness": metrics.fairness,
                "delay_variance": metrics.delay_variance,
                "rounds": built.rounds_per_join,
            }
        )
    return found


def changed(**settings: Any) -> Workload:
    """Table 2 with some settings changed."""
    return replace(Workload(), **settings)


def means(results: pd.DataFrame, x: str, value: str) -> Any:
    """Mean of a metric as a frame of settings by algorithms."""
    return results.pivot_table(index=x, columns="algorithm", values=value, aggfunc="mean")


def lead(table: Any, at: float, ours: str = "qasdg") -> tuple[float, str]:
    """How far a construction is ahead of the best plain one at a setting (1 = twice as good), and which that is."""
    line = table.loc[at]
    best = str(line[[name for name in PLAIN if name in table.columns]].idxmax())
    return float(line[ours] / line[best] - 1), best


def draw(axes: Axes, results: pd.DataFrame, x: str, value: str, names: tuple[str, ...] = NAMES) -> None:
    """A line with its 95 % band per algorithm."""
    bands = band(results, ["algorithm", x], value)
    for number, name in enumerate(names):
        charts.draw_band(axes, bands[bands["algorithm"] == name], x, name.upper(), number)
    axes.legend()


def verdict(full: bool, partly: bool) -> str:
    """The verdict on a statement that holds as it stands, in its direction only, or not at all."""
    return REPRODUCES if full else PARTLY if partly else FAILS
