"""A plan under joins, departures, failures and changing bandwidths, against a fresh plan of the same moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.planning import Problem, measure
from headgate.planning.construct import construct
from headgate.planning.generate import generate
from headgate.planning.life import Happened, Life, Upkeep
from headgate.planning.problem import tree_members
from headgate.planning.search import Search, improve
from headgate.studies import charts
from headgate.studies.qasd_common import changed, verdict
from headgate.studies.study import Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def event(life: Life, names: list[tuple[str, str]], failed: list[str], random: np.random.Generator) -> Happened:
    """One random event; at most five sites are down at a time."""
    problem = life.graph.problem
    active = life.active
    chance = random.random()
    down = set(failed)
    outside = [name for name in names if name not in set(active) and name[1] not in down]
    if chance < 0.35 and outside:
        return life.join(*outside[random.integers(len(outside))])
    if chance < 0.65:
        return life.leave(*active[random.integers(len(active))])
    roots = {flow.root for flow in problem.flows}
    if chance < 0.8:
        if len(failed) >= 5 or (failed and random.random() < 0.5):
            return life.restore(failed.pop(int(random.integers(len(failed)))))
        free = [site.name for site in problem.sites if site.name not in roots and site.name not in down]
        failed.append(free[random.integers(len(free))])
        return life.fail(failed[-1])
    site = problem.sites[int(random.integers(len(problem.sites)))]
    assert site.upload_bytes_per_s is not None
    assert site.download_bytes_per_s is not None
    factors = random.uniform(0.5, 1.5, 2)
    return life.bandwidth(site.name, site.upload_bytes_per_s * factors[0], site.download_bytes_per_s * factors[1])


def fresh(life: Life, seed: int, steps: int) -> float:
    """The quality of a plan made from nothing for the members and bandwidths of the moment."""
    known, net = life.graph.problem, life.graph.net
    active, n = set(life.active), len(net.place)
    limits = net.resource["capacity"]
    sites = tuple(
        type(site)(site.name, float(limits[index]), float(limits[n + index])) for index, site in enumerate(known.sites)
    )
    members = tuple(member for member in known.members if (member.stream, member.site) in active)
    problem = Problem(sites, known.flows, members, known.delays)
    return measure(improve(construct(problem, "qasdg", seed).graph, seed, Search(steps=steps)).graph).geometric_mean


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """A run of events; every so many, a fresh plan of the same moment for comparison."""
    problem = generate(changed(sites=int(parameters["sites"]), scale=float(parameters["scale"])), seed)
    names = [(member.stream, member.site) for member in tree_members(problem)]
    random = np.random.default_rng([seed, 11])
    start = [names[index] for index in random.permutation(len(names))[: int(0.7 * len(names))]]
    steps, every = int(parameters["steps"]), int(parameters["every"])
    life = Life(problem, start, seed, Upkeep(search=Search(steps=steps, hot=0.5)))
    failed: list[str] = []
    rows: list[dict[str, Any]] = []
    moved, replans = [], 0
    for number in range(1, int(parameters["events"]) + 1):
        happened = event(life, names, failed, random)
        replans += happened.replanned
        if not happened.replanned:
            moved.append(happened.moves)
        if number % every == 0:
            again = fresh(life, seed + number, steps)
            quality = measure(life.graph).geometric_mean
            mean = float(np.mean(moved)) if moved else 0.0
            row = {"event": number, "quality": quality, "fresh": again, "share": quality / again}
            rows.append(row | {"moves_per_event": mean, "replans": replans})
            moved, replans = [], 0
    return rows


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Share of a fresh plan's quality, moves and full plans per event."""
    every = int(results["event"].min())
    return {
        "events": int(results["event"].max()),
        "share_mean": float(results["share"].mean()),
        "share_worst": float(results["share"].min()),
        "moves_per_event": float(results["moves_per_event"].mean()),
        "full_plans_per_100_events": float(100 * results["replans"].mean() / every),
    }


def _stays(results: pd.DataFrame) -> tuple[str, str]:
    found = summary(results)
    text = (
        f"{100 * found['share_mean']:.1f} % of a fresh plan's on average, {100 * found['share_worst']:.1f} % at worst"
    )
    text += f" over {found['events']} events"
    return text, verdict(found["share_worst"] >= 0.95 and found["events"] >= 1000, found["share_mean"] >= 0.95)


def _few(results: pd.DataFrame) -> tuple[str, str]:
    found = summary(results)
    text = f"{found['moves_per_event']:.1f} members get another parent per event, everything is planned again"
    text += f" {found['full_plans_per_100_events']:.1f} times in 100 events"
    return text, verdict(found["moves_per_event"] <= 10, found["moves_per_event"] <= 30)


def chart(results: pd.DataFrame) -> Figure:
    """Quality of the living plan and of fresh ones, and moves."""
    figure, axes = charts.panels(2)
    lines = results.groupby("event").mean(numeric_only=True).reset_index()
    axes[0].plot(lines["event"], lines["quality"], label="living plan", color=charts.COLOURS[0])
    axes[0].plot(lines["event"], lines["fresh"], label="fresh plan", color=charts.COLOURS[1], linestyle="--")
    axes[0].set(title="quality under events", xlabel="event", ylabel="geometric mean")
    axes[0].legend()
    axes[1].plot(lines["event"], lines["moves_per_event"], color=charts.COLOURS[0])
    axes[1].set(title="members with another parent per event", xlabel="event")
    return figure


STUDY = Study(
    name="qasd-churn",
    about="a living plan under joins, departures, failures and bandwidth changes against fresh plans",
    parameters={"events": [1000], "every": [50], "sites": [60], "scale": [1.0], "steps": [60_000]},
    run=run,
    chart=chart,
    summary=summary,
    statements=(
        Statement("Ours: quality stays at least 95 % of a fresh plan's over 1,000 events", _stays),
        Statement("Ours: an event moves few members", _few),
    ),
    seeds=4,
    paper="000",
)
