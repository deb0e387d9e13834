"""Planning with wrong or unknown bandwidths: feedback learns them, a search believes what it was told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.model import Plan
from headgate.planning import Graph, Problem, measure
from headgate.planning.construct import construct
from headgate.planning.difference import moves
from headgate.planning.generate import generate
from headgate.planning.measured import cautious, forwarded
from headgate.planning.replan import Effort, replan
from headgate.planning.search import Search, improve
from headgate_studies.studies import charts
from headgate_studies.studies.papers import QASD
from headgate_studies.studies.qasd_common import changed, draw, means, verdict
from headgate_studies.studies.study import Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

METHODS = ("brush", "qasdg", "search believing", "search after feedback", "replanned after feedback")


def declared(problem: Problem, error: float, seed: int) -> Problem:
    """The problem with bandwidths wrong by a factor of up to (1 + error) either way, or all unknown."""
    random = np.random.default_rng([seed, 9])
    factors = (1.0 + error) ** random.uniform(-1.0, 1.0, (len(problem.sites), 2)) if np.isfinite(error) else None
    sites = []
    for index, site in enumerate(problem.sites):
        up, down = site.upload_bytes_per_s, site.download_bytes_per_s
        if factors is None or up is None or down is None:
            sites.append(replace(site, upload_bytes_per_s=None, download_bytes_per_s=None))
        else:
            changed_up, changed_down = up * factors[index, 0], down * factors[index, 1]
            sites.append(replace(site, upload_bytes_per_s=changed_up, download_bytes_per_s=changed_down))
    return replace(problem, sites=tuple(sites))


def learned(problem: Problem, told: Problem, graph: Graph) -> Problem:
    """What is known after running a graph: a site that sheds shows its bandwidth, one that does not shows a bound."""
    n, sites = len(problem.sites), []
    permeable, capacity = graph.net.resource["permeable"], graph.net.resource["capacity"]
    sent = forwarded(graph)
    for index, site in enumerate(told.sites):
        up, down = site.upload_bytes_per_s, site.download_bytes_per_s
        if permeable[index] < 1 - 1e-9:
            up = float(capacity[index])
        elif up is not None:
            up = max(up, float(sent[index]))
        if permeable[n + index] < 1 - 1e-9:
            down = float(capacity[n + index])
        sites.append(replace(site, upload_bytes_per_s=up, download_bytes_per_s=down))
    return replace(told, sites=tuple(sites))


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """Plans made from declared bandwidths, judged with the true ones; moves of those that are changed by feedback."""
    error, steps, rounds = float(parameters["error"]), int(parameters["steps"]), int(parameters["rounds"])
    problem = generate(changed(), seed)
    told = declared(problem, error if error >= 0 else float("inf"), seed)
    # QASD never reads a declared bandwidth: its feedback comes from the true network.
    informed = construct(problem, "qasdg", seed).graph.plan()
    brush = construct(problem, "brush", seed).graph.plan()

    def searched(known: Problem, plan: Plan, number: int) -> Plan:
        return improve(Graph.of(known, plan), seed + number, Search(steps=steps)).graph.plan()

    def replanned(known: Problem, plan: Plan, number: int) -> Plan:
        return replan(known, plan, seed + number, Effort(steps=steps)).plan

    found = dict(zip(METHODS, ((brush, 0), (informed, 0), (searched(told, informed, 0), 0)), strict=False))
    for name, change in zip(METHODS[3:], (searched, replanned), strict=True):
        found[name] = _with_feedback(problem, told, informed, rounds, change)
    rows = []
    for name, (plan, moved) in found.items():
        metrics = measure(Graph.of(problem, plan))
        row = {"algorithm": name, "geometric": metrics.geometric_mean, "arithmetic": metrics.arithmetic_mean}
        rows.append(row | {"moves_per_round": moved / rounds})
    return rows


def _with_feedback(
    problem: Problem, told: Problem, plan: Plan, rounds: int, change: Callable[[Problem, Plan, int], Plan]
) -> tuple[Plan, int]:
    """Change the plan, run it, learn what shed, and again; and how many members were moved by all that.

    A plan that turned out worse than an earlier one is taken back, which moves members once more.
    """
    known, best, quality, moved = told, plan, measure(Graph.of(problem, plan)), 0
    for number in range(rounds):
        known = learned(problem, known, Graph.of(problem, plan))
        following = change(cautious(Graph.of(known, best)), best, number)
        moved += moves(plan, following)
        plan, now = following, measure(Graph.of(problem, following))
        if now.better_than(quality):
            best, quality = plan, now
    return best, moved + moves(plan, best)


def _feedback(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "error", "geometric")
    line = table.loc[max(table.index)]
    text = f"bandwidths wrong by up to {1 + max(table.index):g} times: believing {line['search believing']:.3f},"
    text += f" after feedback {line['search after feedback']:.3f}, QASDG {line['qasdg']:.3f}"
    return text, verdict(
        bool(line["search after feedback"] > 1.2 * line["qasdg"]), bool(line["search after feedback"] > line["qasdg"])
    )


def _unknown(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "error", "geometric")
    if -1.0 not in table.index:
        return "not run", verdict(False, False)
    line = table.loc[-1.0]
    text = f"nothing declared: believing {line['search believing']:.3f}, after feedback"
    text += f" {line['search after feedback']:.3f}, QASDG {line['qasdg']:.3f}"
    return text, verdict(
        bool(line["search after feedback"] > line["qasdg"]), bool(line["search after feedback"] > line["brush"])
    )


def _few(results: pd.DataFrame) -> tuple[str, str]:
    table, worth = means(results, "error", "moves_per_round"), means(results, "error", "geometric")
    ours, free = table["replanned after feedback"].mean(), table["search after feedback"].mean()
    part = (worth["replanned after feedback"] / worth["search after feedback"]).mean()
    text = f"{ours:.0f} of 600 members move a round instead of {free:.0f}, for {part:.0%} of the quality"
    return text, verdict(bool(ours <= 0.5 * free and part >= 0.95), bool(ours < free and part >= 0.8))


def chart(results: pd.DataFrame) -> Figure:
    """Quality over the error of what was declared."""
    figure, (axes,) = charts.panels()
    draw(axes, results[results["error"] >= 0], "error", "geometric", METHODS)
    axes.set(title="quality with wrong bandwidths", xlabel="declared within (1 + error) times either way")
    return figure


STUDY = Study(
    name="qasd-unknown",
    about="quality of plans made from wrong or unknown bandwidths",
    parameters={"error": [0.0, 0.25, 0.5, 1.0, 3.0, -1.0], "steps": [60_000], "rounds": [6]},
    run=run,
    chart=chart,
    statements=(
        Statement("Ours: with feedback the search stays ahead of QASDG however wrong the figures are", _feedback),
        Statement("Ours: without any declared bandwidth, slack is learned from shedding", _unknown),
        Statement("Ours: a search that pays for moves learns as well with half of them", _few),
    ),
    seeds=20,
    paper=QASD,
    notes="An error of -1 stands for nothing declared at all.",
)
