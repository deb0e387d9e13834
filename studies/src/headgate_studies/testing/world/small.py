"""Small deployments for families of scenarios: one stream, three sites, a few subscriptions, a short load."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Final

from headgate.model import Deployment, Plan, Site, Source, Stream, Subscription, Tree
from headgate.wire.snapshot import Snapshot
from headgate_studies.testing.world.scenario import SCHEMA, Action, Scenario

_CHAIN: Final = {"s1": "s0", "s2": "s1"}
LIMITED: Final = {"levels": [{"drop": {"gt": 30}, "attribute": "value"}], "max_rows": 20}
_DEFAULTS: Final = {
    "length_s": 14.0, "max_rows": 100_000, "inbox_messages": 64, "max_bytes": 1 << 20, "max_block": 1 << 20,
    "heavy_rows": 5_000, "delay_s": 0.02,
}  # fmt: skip


def subscription(name: str, site: str, **more: Any) -> Subscription:
    """A subscription to the stream of a small deployment."""
    return Subscription(name, "t0", site, **more)


def small_scenario(
    seed: int, subscriptions: Iterable[Subscription], actions: Iterable[Action], classes: int = 5, **changes: Any
) -> Scenario:
    """One stream from s0 down a chain of three sites."""
    known = {each.name: each for each in subscriptions}
    deployment = Deployment(
        {"t0": Stream("t0", SCHEMA, Source("generator"), "s0")},
        {name: Site(name) for name in ("s0", "s1", "s2")},
        subscriptions=known,
    )
    ids = {name: number for number, name in enumerate(known, 1)}
    first = Snapshot(1, deployment, Plan({"t0": Tree("t0", "s0", _CHAIN)}), ids, dict.fromkeys(ids, classes))
    ordered = tuple(sorted(actions, key=lambda each: each.time_s))
    limits: dict[str, Any] = {**_DEFAULTS, **changes}
    limits["max_block"] = min(limits["max_block"], limits["max_bytes"] // 8)  # several messages fit a log
    return Scenario(seed, first, ordered, **limits)


def commits(random: Random, pace_s: float, rows: int, until_s: float = 12.0) -> list[Action]:
    """Micro-batches of one row or some, at a pace."""
    found, now = [], 0.5
    while now < until_s:
        found.append(Action(now, "commit", "t0", number=float(random.choice((1, rows, rows)))))
        now += random.uniform(0.5, 1.5) * pace_s
    return found
