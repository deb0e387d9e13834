"""A plan whose assumptions turned out otherwise: gain and moves of replanning, with and without a price on moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.model import Plan
from headgate.planning import Graph, Metrics, Problem, measure
from headgate.planning.construct import construct
from headgate.planning.difference import moves
from headgate.planning.generate import Workload, generate
from headgate.planning.replan import Effort, replan
from headgate.planning.search import Search, improve
from headgate_studies.studies import charts
from headgate_studies.studies.papers import QASD
from headgate_studies.studies.qasd_common import changed, verdict
from headgate_studies.studies.study import Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FREE, LOOK, AGAIN, ANEW, TAKEN = "without a price", "a look", "the look after it", "a look anew", "the look after that"
METHODS = (FREE, LOOK, AGAIN, ANEW, TAKEN)
DEMO = 8  # sites, streams and members of about the demo's size


def workload(sites: int, scale: float) -> Workload:
    """Table 2, or three streams that most of a few sites want."""
    return changed(sites=sites, scale=scale, **({"streams": 3, "filters_per_stream": 7} if sites == DEMO else {}))


def turned_out(problem: Problem, error: float, seed: int) -> Problem:
    """The problem with uploads and rates that differ from what was assumed by up to (1 + error) times either way."""
    random = np.random.default_rng([seed, 13])

    def measured(assumed: float | None) -> float:
        return float((assumed or 0.0) * (1.0 + error) ** random.uniform(-1.0, 1.0))

    sites = tuple(replace(site, upload_bytes_per_s=measured(site.upload_bytes_per_s)) for site in problem.sites)
    flows = tuple(replace(flow, rate_rows_per_s=measured(flow.rate_rows_per_s)) for flow in problem.flows)
    return replace(problem, sites=sites, flows=flows)


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """A plan made of assumptions, and what each way to replan makes of it on the measured problem."""
    assumed = generate(workload(int(parameters["sites"]), float(parameters["scale"])), seed)
    problem = turned_out(assumed, float(parameters["error"]), seed)
    plan = improve(construct(assumed, "qasdg", seed).graph, seed, Search(steps=int(parameters["steps"]))).graph.plan()
    before, effort = measure(Graph.of(problem, plan)), Effort(move_gain=float(parameters["move_gain"]))
    rows: list[dict[str, Any]] = []

    def note(name: str, work: Callable[[], tuple[Plan, Metrics]]) -> Plan:
        began = time.process_time()
        found, metrics = work()
        row = {"method": name, "members": len(problem.members), "before": before.geometric_mean}
        row |= {"quality": metrics.geometric_mean, "zeros": metrics.zeros - before.zeros}
        row |= {"gain": metrics.geometric_mean / before.geometric_mean - 1, "moves": moves(plan, found)}
        rows.append(row | {"cpu_s": time.process_time() - began})
        return found

    def free() -> tuple[Plan, Metrics]:
        found = improve(Graph.of(problem, plan), seed, Search(steps=effort.steps, hot=0.3))
        return found.graph.plan(), found.metrics

    def look(number: int, candidate: Plan | None, anew: bool) -> tuple[Plan, Metrics]:
        found = replan(problem, plan, 1000 * number + seed, effort, candidate=candidate, anew=anew)
        return found.plan, found.metrics

    note(FREE, free)
    for number, (first, second, anew) in enumerate(((LOOK, AGAIN, False), (ANEW, TAKEN, True))):
        candidate = note(first, partial(look, number, None, anew))
        note(second, partial(look, number + 2, candidate, False))
    return rows


def _at(results: pd.DataFrame) -> Any:
    """Means by size, scale and method."""
    return results.groupby(["sites", "scale", "method"])[["gain", "moves", "members", "cpu_s"]].mean()


def _few(results: pd.DataFrame) -> tuple[str, str]:
    table, texts, good, some = _at(results), [], True, True
    for sites, scale in sorted({(line[0], line[1]) for line in table.index}):
        free, ours = table.loc[sites, scale, FREE], table.loc[sites, scale, AGAIN]
        texts.append(
            f"{sites} sites, scale {scale:g}: {ours['moves']:.0f} moves for {ours['gain']:+.0%} against"
            f" {free['moves']:.0f} for {free['gain']:+.0%}"
        )
        good &= bool(ours["moves"] <= 0.5 * free["moves"] and ours["gain"] >= 0.95 * free["gain"])
        some &= bool(ours["gain"] / max(1.0, ours["moves"]) >= free["gain"] / max(1.0, free["moves"]))
    return "; ".join(texts), verdict(good, some)


def _anew(results: pd.DataFrame) -> tuple[str, str]:
    table, texts, good = _at(results), [], True
    for sites, scale in sorted({(line[0], line[1]) for line in table.index}):
        free, ours = table.loc[sites, scale, FREE], table.loc[sites, scale, TAKEN]
        texts.append(f"{sites} sites, scale {scale:g}: {ours['moves']:.0f} moves for {ours['gain']:+.0%}")
        good &= bool(ours["moves"] <= 0.5 * free["moves"] and ours["gain"] >= 0.95 * free["gain"])
    return "; ".join(texts), verdict(good, False)


def _cpu(results: pd.DataFrame) -> tuple[str, str]:
    table, texts, good = _at(results)["cpu_s"].groupby(level=["sites", "method"]).max(), [], True
    for sites in sorted({line[0] for line in table.index}):
        line = table.loc[sites]
        texts.append(
            f"{sites} sites: {line[FREE]:.2f} s without a price, {line[LOOK]:.2f} s a look, {line[ANEW]:.2f} s anew"
        )
        good &= bool(line[AGAIN] <= 1.5 * line[FREE])
    return "; ".join(texts), verdict(good, False)


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Gain, moves and processor time of each method by size and scale."""
    found: dict[str, Any] = {"seeds": int(results["seed"].nunique()), "more_zeros": int((results["zeros"] > 0).sum())}
    for (sites, scale, method), line in _at(results).iterrows():
        key = f"{method}, {sites} sites, scale {scale:g}"
        found[key] = (
            f"{line['gain']:+.1%}, {line['moves']:.1f} of {line['members']:.0f} moved, {line['cpu_s']:.2f} CPU s"
        )
    return found


def chart(results: pd.DataFrame) -> Figure:
    """Gain over moves, a point per method and scale, for the larger size."""
    figure, axes = charts.panels(2)
    largest = results[results["sites"] == results["sites"].max()]
    for number, method in enumerate(METHODS):
        lines = largest[largest["method"] == method].groupby("scale")[["gain", "moves"]].mean()
        axes[0].plot(lines.index, lines["moves"], label=method, color=charts.COLOURS[number], marker="o")
        axes[1].plot(lines.index, lines["gain"], label=method, color=charts.COLOURS[number], marker="o")
    axes[0].set(title="members with another parent", xlabel="scale of the bandwidths")
    axes[1].set(title="growth of the geometric mean", xlabel="scale of the bandwidths")
    axes[0].legend()
    return figure


STUDY = Study(
    name="qasd-replan",
    about="a plan made of assumptions replanned on what was measured: gain, moves and processor time",
    parameters={
        "sites": [DEMO, 100],
        "scale": [0.5, 1.0, 2.0],
        "error": [0.5],
        "move_gain": [0.5],
        "steps": [60_000],
    },
    run=run,
    chart=chart,
    summary=summary,
    statements=(
        Statement("Ours: two looks gain 95 % of what a search without a price does, with half of its moves", _few),
        Statement("Ours: so they do when the first of them makes a plan from nothing", _anew),
        Statement("Ours: a look takes at most half as long again as the search without a price", _cpu),
    ),
    seeds=10,
    paper=QASD,
    notes="Two looks, because the service wants a gain confirmed and goes on from what the first has found.",
)
