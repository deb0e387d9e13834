"""A crowd that crosses the field: replicas that follow it, that are there ahead of it, and that go when it has left.

Beyond the grid paper. Queries arrive around a centre that moves at a steady speed and stay for a while. A site that
looks `ahead_s` into the future has the regions on the crowd's way replicated before it comes. What is measured is how
long a query waits until it is served (virtual time, 20 ms a message), how many are refused, and what replication costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.grid.serving import Partition, ServingOverlay
from headgate_studies.studies import charts
from headgate_studies.studies.intervals import band, paired_interval
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study
from headgate_studies.workloads.serving import STEPS, HotSpot, cut, index_space

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_TIMES, _STAY_S, _DIGITS, _EXPONENT = 4, 6.0, 8, 0.7


def run(parameters: Parameters, seed: int) -> dict[str, Any]:
    """One crossing of the field, and the calm after it."""
    speed, rate = float(parameters["speed"]), float(parameters["rate"])
    space = index_space(4)
    partition = Partition.squares(space, 4)
    capacity = _TIMES * space.cells // 16
    overlay = ServingOverlay(partition, capacity, limit=_DIGITS, ahead_s=float(parameters["ahead_s"]))
    rng = np.random.default_rng(seed)
    boxes = HotSpot(_EXPONENT, most=0.05 * _TIMES / 16).boxes(rng)
    length_s = 0.7 / speed
    arrivals = np.sort(rng.uniform(0, length_s, int(rate * length_s)))
    leaving: list[tuple[float, int]] = []
    waits, refused, carried, next_tick = [], 0, [], 1.0
    placements = {}
    for identity, at in enumerate(arrivals.tolist()):
        while next_tick <= at:
            _until(overlay, next_tick, leaving)
            overlay.tick()
            carried.append(overlay.replication / overlay.capacity)
            next_tick += 1.0
        _until(overlay, at, leaving)
        low, high = _shifted(*next(boxes), at * speed - 0.35, 0.3 * np.sin(4 * at * speed))
        overlay.ask(partition.sites[int(rng.integers(16))], cut(space, identity, low, high, _DIGITS))
        placements[identity] = overlay.clients[identity]
        leaving.append((at + _STAY_S, identity))
    _until(overlay, length_s + _STAY_S + 1, leaving)
    for _ in range(30):
        overlay.tick()
        overlay.run(until=overlay.now + 1.0)
    overlay.run()
    for placement in placements.values():
        refused += placement.refused
        if placement.complete_at is not None:
            waits.append(placement.complete_at - placement.asked_at)
    return {
        "wait_ms": 1e3 * float(np.mean(waits)),
        "wait_p95_ms": 1e3 * float(np.quantile(waits, 0.95)),
        "refused": refused / len(placements),
        "replication": float(np.mean(carried)),
        "offers": overlay.messages["Offer"] / len(placements),
        "left_over": overlay.connections,
        "still_served": overlay.client_load,
        "queries": len(placements),
    }


def _until(overlay: ServingOverlay, time: float, leaving: list[tuple[float, int]]) -> None:
    """Run to a time, letting clients go when theirs has come; those in the list come in the order of their leaving."""
    while leaving and leaving[0][0] <= time:
        at, identity = leaving.pop(0)
        overlay.run(until=at)
        overlay.cancel(identity)
    overlay.run(until=time)


def _shifted(
    low: tuple[int, ...], high: tuple[int, ...], dx: float, dy: float
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The box elsewhere in the field; what would lie outside is cut off, but a step always remains."""
    moved_low, moved_high = list(low), list(high)
    for d, by in enumerate((dx, dy)):
        moved_low[d] = min(max(0, low[d] + round(by * STEPS)), STEPS - 1)
        moved_high[d] = max(min(STEPS, high[d] + round(by * STEPS)), moved_low[d] + 1)
    return tuple(moved_low), tuple(moved_high)


def _sooner(results: pd.DataFrame) -> tuple[str, str]:
    table = results.pivot_table(index=["speed", "seed"], columns="ahead_s", values="wait_ms")
    parts, better = [], []
    for ahead in [float(column) for column in table.columns if float(column) > 0]:
        gain = paired_interval(table[0.0], table[ahead])
        parts.append(f"{ahead:g} s ahead: {gain} ms less waiting in the mean")
        better.append(gain.low > 0)
    return "; ".join(parts), REPRODUCES if better and all(better) else PARTLY if any(better) else FAILS


def _cheap(results: pd.DataFrame) -> tuple[str, str]:
    means = results.groupby("ahead_s")[["replication", "offers", "refused"]].mean()
    text = ", ".join(
        f"{ahead:g} s: replication {row.replication:.2%}, {row.offers:.2f} offers a query, {row.refused:.2%} refused"
        for ahead, row in means.iterrows()
    )
    extra = float(means["replication"].max() - means["replication"].iloc[0])
    return text, REPRODUCES if extra < 0.05 else PARTLY


def _gone(results: pd.DataFrame) -> tuple[str, str]:
    left = int(results["left_over"].max())
    return f"at most {left} connections left", REPRODUCES if left == 0 else FAILS


def chart(results: pd.DataFrame) -> Figure:
    """Waiting and replication against how far sites look ahead, a line for each speed."""
    figure, axes = charts.panels(3, 1, width=4.4, height=3.4)
    shown = (
        ("wait_ms", "mean wait (ms)", 1.0),
        ("wait_p95_ms", "95th percentile of the wait (ms)", 1.0),
        ("replication", "replication (% of all bandwidth)", 100.0),
    )
    for panel, (name, title, scale) in zip(axes, shown, strict=True):
        for number, (speed, rows) in enumerate(results.groupby("speed")):
            scaled = rows.assign(shown=rows[name] * scale)
            charts.draw_band(panel, band(scaled, "ahead_s", "shown"), "ahead_s", f"{speed} fields/s", number)
        panel.set_xlabel("looking ahead (s)")
        panel.set_title(title)
        panel.set_ylim(bottom=0)
    axes[0].legend(title="speed of the crowd")
    return figure


STUDY = Study(
    name="grid-moving-hotspot",
    about="a crowd crosses the field: replicas follow, go ahead, retreat",
    parameters={"speed": [0.02, 0.05], "ahead_s": [0.0, 1.0, 3.0], "rate": [80.0]},
    run=run,
    chart=chart,
    statements=(
        Statement("looking ahead shortens the wait of queries around a moving crowd", _sooner),
        Statement("and costs little bandwidth", _cheap),
        Statement("when the crowd has left, every replica has gone", _gone),
    ),
    seeds=4,
    notes="The paper names moving hot spots as future work; there is no figure to compare with. Most of a wait is the "
    "way from site to site, 20 ms a message, which looking ahead does not shorten: what it saves is the offers that a "
    "query would have had to wait for. A second is too little for that at both speeds.",
)
