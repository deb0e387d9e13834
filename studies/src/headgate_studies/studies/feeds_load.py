"""What polling once for everybody saves the servers of feeds, and how stale items are (XPORT, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.tuning.compile import compile_objective
from headgate.tuning.evaluate import TreeView, node_costs
from headgate.tuning.search import Tuner
from headgate_studies.studies import charts
from headgate_studies.studies.papers import XPORT
from headgate_studies.studies.study import FAILS, REPRODUCES, Parameters, Statement, Study
from headgate_studies.studies.xport import mean_text
from headgate_studies.workloads.tuning import plane_overlay, random_shape, zipf_profiles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_DAY_S = 86_400.0


def run(parameters: Parameters, seed: int) -> dict[str, Any]:
    """A day of feeds: requests and bytes at the servers, and the time from an item's appearance to its reader.

    Everybody polling: each client asks for each of its feeds every `client_min` minutes, from a random moment on.
    Headgate: the root asks for every wanted feed every `root_min` minutes and pushes new items down a tuned tree.
    """
    generator = np.random.default_rng(seed)
    clients, feeds, sites = (int(parameters[name]) for name in ("clients", "feeds", "sites"))
    profiles, counts = zipf_profiles(
        generator, sites, clients=clients, feeds=feeds, per_client=int(parameters["per_client"])
    )
    overlay = plane_overlay(generator, sites, profiles=(profiles, counts))
    compiled = compile_objective("minimise average(path_latency) over clients")
    tuned = Tuner(overlay, compiled).run(random_shape(generator, sites))
    latency = np.nan_to_num(node_costs(compiled, TreeView(overlay, tuned.shape)))
    client_s, root_s = 60.0 * float(parameters["client_min"]), 60.0 * float(parameters["root_min"])
    sizes = profiles.sizing.sizes(np.eye(feeds, dtype=np.bool_))
    wanted = profiles.bits.any(axis=0)
    rates = generator.lognormal(0.0, 1.0, feeds) * 10 / _DAY_S  # about ten items a day and feed
    pairs = [(site, feed) for site in range(sites) for feed in np.flatnonzero(profiles.bits[site])]
    weights = np.array([max(1, int(counts[site])) for site, _ in pairs])
    polled = _DAY_S / client_s * weights.sum()
    alone: list[Any] = []
    pushed: list[Any] = []
    root_phase = generator.uniform(0, root_s, feeds)
    for (site, feed), weight in zip(pairs, weights.tolist(), strict=True):
        appeared = generator.uniform(0, _DAY_S, max(1, int(generator.poisson(rates[feed] * _DAY_S))))
        alone.extend(_wait(appeared, client_s, phase) for phase in generator.uniform(0, client_s, weight))
        pushed.append(_wait(appeared, root_s, root_phase[feed]) + latency[site])
    asked = np.array([feed for _, feed in pairs])
    return {
        "requests_alone": polled,
        "requests_root": _DAY_S / root_s * wanted.sum(),
        "bytes_alone": float((_DAY_S / client_s * weights * sizes[asked]).sum()),
        "bytes_root": float(_DAY_S / root_s * sizes[wanted].sum()),
        "staleness_alone_s": float(np.mean(np.concatenate(alone))),
        "staleness_root_s": float(np.mean(np.concatenate(pushed))),
        "busiest_alone": float(np.bincount(asked, weights).max() * _DAY_S / client_s),
        "busiest_root": _DAY_S / root_s,
    }


def _wait(appeared: Any, interval_s: float, phase_s: float) -> Any:
    """Seconds from each moment to the next poll."""
    return (phase_s - appeared) % interval_s


def _requests(results: pd.DataFrame) -> tuple[str, str]:
    same = results[results["root_min"] == results["client_min"]]
    ratio = same["requests_alone"] / same["requests_root"]
    busiest = same["busiest_alone"] / same["busiest_root"]
    text = f"{mean_text(ratio)} times fewer requests at equal intervals, {mean_text(busiest)} for the busiest feed"
    return text, REPRODUCES if ratio.min() > 1 else FAILS


def _fresher(results: pd.DataFrame) -> tuple[str, str]:
    often = results[results["root_min"] < results["client_min"]]
    if often.empty:
        return "not run", FAILS
    ratio = often["staleness_alone_s"] / often["staleness_root_s"]
    fewer = often["busiest_alone"] / often["busiest_root"]
    text = f"items are {mean_text(ratio)} times fresher; the busiest feed sees {mean_text(fewer)} times fewer requests"
    return text, REPRODUCES if ratio.min() > 1 else FAILS


def chart(results: pd.DataFrame) -> Figure:
    """Requests at the servers and staleness, by the root's interval."""
    figure, (left, right) = charts.panels(2, width=4.6)
    means = results.groupby("root_min").mean(numeric_only=True)
    names = ["everybody polls", *(f"root, {minutes:g} min" for minutes in means.index)]
    charts.draw_bars(left, names, [means["requests_alone"].mean(), *means["requests_root"]])
    stale = [means["staleness_alone_s"].mean(), *means["staleness_root_s"]]
    charts.draw_bars(right, names, [value / 60 for value in stale])
    left.set_title("requests a day")
    right.set_title("minutes until an item arrives")
    for axes in (left, right):
        axes.tick_params(axis="x", labelrotation=15, labelsize=8)
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Means by the root's interval."""
    means = results.groupby("root_min").mean(numeric_only=True)
    wanted = (
        "requests_alone",
        "requests_root",
        "staleness_alone_s",
        "staleness_root_s",
        "busiest_alone",
        "busiest_root",
    )
    return {
        f"root {minutes:g} min: {name}": round(float(row[name]), 1)
        for minutes, row in means.iterrows()
        for name in wanted
    }


STUDY = Study(
    name="feeds-load",
    about="Requests at the servers of feeds and staleness of items: every client polling, or the root for everybody.",
    parameters={
        "sites": [40],
        "clients": [100],
        "feeds": [700],
        "per_client": [10],
        "client_min": [30],
        "root_min": [5, 30],
    },
    run=run,
    chart=chart,
    statements=(
        Statement("servers are asked by the root only, so hosting a feed costs less (section 5)", _requests),
        Statement(
            "the root can poll more often than a client would, so that items arrive fresher (section 5)", _fresher
        ),
    ),
    summary=summary,
    seeds=20,
    paper=XPORT,
    notes="700 feeds of 27.7 KB on average, popularity by a Zipf law with skew 0.97, 100 clients at 40 sites with ten "
    "feeds each, about ten items a day and feed, bytes without conditional requests. The paper states both effects "
    "without figures.",
)
