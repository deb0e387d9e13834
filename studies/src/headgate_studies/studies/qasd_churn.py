"""A plan under joins, departures, failures and changing bandwidths, against a fresh plan of the same moment."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.planning import Problem, measure
from headgate.planning.construct import construct
from headgate.planning.generate import generate
from headgate.planning.living_plan import Happened, Life
from headgate.planning.planner import plan_problem
from headgate.planning.problem import tree_members
from headgate.planning.search import Search, improve
from headgate.planning.validity import require_valid
from headgate_studies.studies import charts
from headgate_studies.studies.papers import QASD
from headgate_studies.studies.qasd_common import changed, verdict
from headgate_studies.studies.study import Parameters, Statement, Study

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


def moment(life: Life) -> Problem:
    """The problem of this moment on its own: who takes part, with the bandwidths as they are."""
    known, net = life.graph.problem, life.graph.net
    active, n = {*life.active, *((flow.name, flow.root) for flow in known.flows)}, len(net.place)
    limits = net.resource["capacity"]
    sites = tuple(
        type(site)(site.name, float(limits[index]), float(limits[n + index])) for index, site in enumerate(known.sites)
    )
    members = tuple(member for member in known.members if (member.stream, member.site) in active)
    return Problem(sites, known.flows, members, known.delays)


def fresh(problem: Problem, seed: int, steps: int) -> float:
    """The quality of a plan made from nothing: a construction and so many steps of search from it."""
    return measure(improve(construct(problem, "qasdg", seed).graph, seed, Search(steps=steps)).graph).geometric_mean


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """A run of events; every so many, a fresh plan of the same moment for comparison.

    Less often it is also compared with what `headgate plan --algorithm search` gives for the moment, which searches
    longer. Neither is known to the living plan, which judges itself at other moments and with other seeds.
    """
    problem = generate(changed(sites=int(parameters["sites"]), scale=float(parameters["scale"])), seed)
    names = [(member.stream, member.site) for member in tree_members(problem)]
    random = np.random.default_rng([seed, 11])
    start = [names[index] for index in random.permutation(len(names))[: int(0.7 * len(names))]]
    steps, every, rarely = (int(parameters[name]) for name in ("steps", "every", "full_every"))
    life = Life(problem, start, seed)
    failed: list[str] = []
    rows: list[dict[str, Any]] = []
    seen: list[tuple[int, bool, float]] = []
    for number in range(1, int(parameters["events"]) + 1):
        began = time.process_time()
        happened = event(life, names, failed, random)
        seen.append((happened.moves, happened.replanned, time.process_time() - began))
        if number % every == 0:
            now, quality = moment(life), measure(life.graph).geometric_mean
            require_valid(now, life.graph.parents())
            again = fresh(now, seed + number, steps)
            full = plan_problem(now, "search", seed + number).metrics.geometric_mean if number % rarely == 0 else None
            moves, replans, seconds = np.array(seen, float).T
            row = {"event": number, "members": len(now.members), "quality": quality, "fresh": again}
            row |= {"share": quality / again, "full_share": math.nan if full is None else quality / full}
            row |= {"moves_per_event": float(moves.mean()), "moves_most": int(moves.max())}
            row |= {"replans": int(replans.sum()), "moves_in_replans": int(moves[replans > 0].sum())}
            rows.append(row | {"cpu_ms_per_event": 1e3 * float(seconds.mean())})
            seen = []
    return rows


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Share of a fresh plan's quality, moves and long searches per event, processor time."""
    every = int(results["event"].min())
    return {
        "events": int(results["event"].max()),
        "moments": len(results),
        "members": float(results["members"].mean()),
        "share_mean": float(results["share"].mean()),
        "share_worst": float(results["share"].min()),
        "moments_below_95": int((results["share"] < 0.95).sum()),
        "full_moments": int(results["full_share"].notna().sum()),
        "full_share_mean": float(results["full_share"].mean()),
        "full_share_worst": float(results["full_share"].min()),
        "moves_per_event": float(results["moves_per_event"].mean()),
        "moves_per_replan": float(results["moves_in_replans"].sum() / max(1, results["replans"].sum())),
        "full_searches_per_100_events": float(100 * results["replans"].mean() / every),
        "cpu_ms_per_event": float(results["cpu_ms_per_event"].mean()),
    }


def _stays(results: pd.DataFrame) -> tuple[str, str]:
    found = summary(results)
    text = f"{100 * found['share_mean']:.1f} % of a fresh plan's on average, {100 * found['share_worst']:.1f} % at the"
    text += f" worst of {found['moments']} moments over {found['events']} events"
    return text, verdict(found["share_worst"] >= 0.95 and found["events"] >= 1000, found["share_mean"] >= 0.95)


def _stays_full(results: pd.DataFrame) -> tuple[str, str]:
    found = summary(results)
    text = f"{100 * found['full_share_mean']:.1f} % on average, {100 * found['full_share_worst']:.1f} % at the worst of"
    text += f" {found['full_moments']} moments"
    return text, verdict(found["full_share_worst"] >= 0.95, found["full_share_mean"] >= 0.95)


def _few(results: pd.DataFrame) -> tuple[str, str]:
    found = summary(results)
    text = f"{found['moves_per_event']:.1f} of {found['members']:.0f} members get another parent per event, those in"
    text += f" long searches included ({found['full_searches_per_100_events']:.1f} in 100 events,"
    text += f" {found['moves_per_replan']:.0f} members each)"
    return text, verdict(found["moves_per_event"] <= 10, found["moves_per_event"] <= 30)


def chart(results: pd.DataFrame) -> Figure:
    """Quality of the living plan and of fresh ones, the worst share at each moment, and moves."""
    figure, axes = charts.panels(3)
    lines = results.groupby("event").mean(numeric_only=True).reset_index()
    axes[0].plot(lines["event"], lines["quality"], label="living plan", color=charts.COLOURS[0])
    axes[0].plot(lines["event"], lines["fresh"], label="fresh plan", color=charts.COLOURS[1], linestyle="--")
    axes[0].set(title="quality under events", xlabel="event", ylabel="geometric mean")
    axes[0].legend()
    worst = results.groupby("event")["share"].min()
    axes[1].plot(worst.index, worst, color=charts.COLOURS[0])
    axes[1].axhline(0.95, color=charts.COLOURS[1], linestyle="--")
    axes[1].set(title="living / fresh, worst of all seeds", xlabel="event")
    axes[2].plot(lines["event"], lines["moves_per_event"], color=charts.COLOURS[0])
    axes[2].set(title="members with another parent per event", xlabel="event")
    return figure


STUDY = Study(
    name="qasd-churn",
    about="a living plan under joins, departures, failures and bandwidth changes against fresh plans",
    parameters={
        "events": [1000],
        "every": [20],
        "full_every": [200],
        "sites": [60],
        "scale": [1.0],
        "steps": [60_000],
    },
    run=run,
    chart=chart,
    summary=summary,
    statements=(
        Statement("Ours: quality stays at least 95 % of a fresh plan's over 1,000 events", _stays),
        Statement("Ours: and of what `headgate plan --algorithm search` plans, 500 steps a member", _stays_full),
        Statement("Ours: an event moves few members", _few),
    ),
    seeds=4,
    paper=QASD,
)
