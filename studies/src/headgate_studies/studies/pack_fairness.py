"""Fairness between subscriptions whose paths cross, which the paper leaves open: share, delay and loss of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headgate_studies.studies import charts
from headgate_studies.studies.pack_network import PackFlow, fair_shares, simulate
from headgate_studies.studies.papers import PACK
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_RANDOM = {"levels": [{"random": 0.1}, {"random": 0.25}, {"random": 0.5}]}
_SENSOR = {"levels": [{"delta": {"attribute": "value", "change": 0.5}}, {"latest": 20}]}
_EVERY = {"levels": [{"every": 2}, {"every": 2}], "controller": "ladder"}
CASES: dict[str, tuple[list[PackFlow], dict[str, float]]] = {
    "crossing": (
        [
            PackFlow("modest", 10, ("x", "y")),
            PackFlow("local x", 20, ("x",)),
            PackFlow("long", 60, ("x", "y"), _RANDOM),
            PackFlow("greedy y", 100, ("y",), _SENSOR),
        ],
        {"x": 40.0, "y": 60.0},
    ),
    "three in a row": (
        [
            PackFlow("long", 40, ("x", "y", "z"), _EVERY),
            PackFlow("first", 40, ("x",), _SENSOR),
            PackFlow("second", 80, ("y",), _RANDOM),
            PackFlow("third", 15, ("z",)),
        ],
        {"x": 50.0, "y": 50.0, "z": 40.0},
    ),
    "one link": (
        [
            PackFlow(f"p{number}", 10.0 * 2**number, ("x",), policy)
            for number, policy in enumerate([None, _RANDOM, _SENSOR, _EVERY])
        ],
        {"x": 60.0},
    ),
}


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """One network for `seconds`; a row a subscription."""
    flows, capacity = CASES[str(parameters["case"])]
    seconds = float(parameters["seconds"])
    ours = str(parameters["queue"]) == "headgate"
    found = simulate(flows, capacity, seconds=seconds, limit=int(parameters["limit"]), ours=ours, seed=seed)
    fair = fair_shares(flows, capacity)
    counted = seconds * 0.8
    return [
        {
            "subscription": flow.name,
            "wanted": flow.rate,
            "fair": fair[flow.name],
            "got": found[flow.name].delivered / counted,
            "loss": 1 - found[flow.name].delivered / max(1, found[flow.name].sent),
            "delay_s": float(np.mean(found[flow.name].delay_s or [float("nan")])),
        }
        for flow in flows
    ]


def _worst(results: pd.DataFrame, queue: str) -> float:
    means = results[results["queue"] == queue].groupby(["case", "subscription"])[["got", "fair"]].mean()
    return float((means["got"] / means["fair"] - 1).abs().max())


def _fair(results: pd.DataFrame) -> tuple[str, str]:
    ours, tail = _worst(results, "headgate"), _worst(results, "drop-tail")
    text = f"largest difference from the max-min fair share: {ours:.0%}; first in, first out with drop-tail: {tail:.0%}"
    return text, REPRODUCES if ours < 0.1 else PARTLY if ours < tail / 2 else FAILS


def _modest(results: pd.DataFrame) -> tuple[str, str]:
    asked = results[(results["queue"] == "headgate") & (results["wanted"] <= results["fair"] + 1e-9)]
    worst = float(asked.groupby(["case", "subscription"])["loss"].mean().max())
    return (
        f"largest mean loss of such a subscription: {worst:.1%}",
        REPRODUCES if worst < 0.02 else PARTLY if worst < 0.1 else FAILS,
    )


def _busy(results: pd.DataFrame) -> tuple[str, str]:
    total = results.groupby(["queue", "case", "seed"])["got"].sum().groupby("queue").mean()
    ratio = float(total["headgate"] / total["drop-tail"])
    return f"rows delivered in all: {ratio:.2f} of drop-tail's", REPRODUCES if ratio > 0.85 else FAILS


def chart(results: pd.DataFrame) -> Figure:
    """Rows per second of each subscription beside its fair share, one panel a network."""
    cases = [case for case in CASES if case in set(results["case"])]
    figure, panels = charts.panels(len(cases), 1, width=4.6)
    for axes, case in zip(panels, cases, strict=True):
        mine = results[results["case"] == case]
        names = [flow.name for flow in CASES[case][0]]
        for number, queue in enumerate(("drop-tail", "headgate")):
            got = mine[mine["queue"] == queue].groupby("subscription")["got"].mean()
            places = np.arange(len(names)) + 0.36 * number
            axes.bar(places, [got[name] for name in names], width=0.34, color=charts.COLOURS[number], label=queue)
        fair = mine.groupby("subscription")["fair"].mean()
        for place, name in enumerate(names):
            axes.plot(
                [place - 0.2, place + 0.56], [fair[name]] * 2, color="black", label="fair" if place == 0 else None
            )
        axes.set_xticks(np.arange(len(names)) + 0.18, names)
        axes.set(title=case, ylabel="rows/s")
    panels[0].legend()
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """The largest relative difference from the fair share."""
    return {f"{queue} worst": round(_worst(results, queue), 4) for queue in ("headgate", "drop-tail")}


STUDY = Study(
    name="pack-fairness",
    about="Crossing paths with mixed policies: what each subscription gets against its max-min fair share.",
    parameters={"queue": ["headgate", "drop-tail"], "case": list(CASES), "limit": [200], "seconds": [150]},
    run=run,
    chart=chart,
    statements=(
        Statement("each subscription gets its max-min fair share, within 10 % (ours)", _fair),
        Statement("who asks for no more than the fair share loses nothing to others (ours)", _modest),
        Statement("fairness does not idle the links (ours)", _busy),
    ),
    summary=summary,
    seeds=10,
    paper=PACK,
    notes="The paper names fairness across crossing subscriptions as future work. Links are simulated with "
    "`LinkBuffer` (`headgate_studies.models`), the buffer of a link by itself, not with `Output`, which relays run: "
    "that one also keeps coverage and accounts, sends blocks and holds budgets. `pack-queue-live` and "
    "`headgate bench stalled` run relays.",
)
