"""A scenario from one seed: a deployment, a load, and a schedule of changes and faults, all of it plain data.

Because the schedule is a list, a failure can be shrunk by leaving entries out. Times are virtual seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from headgate.model import Deployment, Plan, Schema, Site, Source, Stream, Subscription, Tree
from headgate.model.sharing import find_inbox, next_stay
from headgate.model.start import NOW
from headgate.wire.snapshot import Snapshot

SCHEMA: Final = Schema.of({"value": "bigint", "extra": "bigint"})
POLICIES: Final[tuple[dict[str, Any] | None, ...]] = (
    None,
    None,
    {"levels": [{"every": 2, "attribute": "value"}, {"latest": 5, "key": "extra"}], "digest": ["max(value)"]},
    {"levels": [{"drop": {"gt": 30}, "attribute": "value"}], "max_rows": 40},
    {"max_age": "3 s"},
)


@dataclass(frozen=True, slots=True)
class Action:
    """Something that happens at a time: what, to whom, with which numbers."""

    time_s: float
    kind: str
    place: str = ""
    other: str = ""
    number: float = 0.0

    def __str__(self) -> str:
        """One line of a schedule."""
        return f"{self.time_s:7.2f} s  {self.kind:<12} {self.place} {self.other} {self.number:g}".rstrip()


ROOMY: Final = 2 << 30
"""Bytes of a root log that never fills."""


@dataclass(frozen=True)
class Scenario:
    """Where it begins, and what happens."""

    seed: int
    first: Snapshot
    actions: tuple[Action, ...]
    length_s: float
    max_rows: int
    inbox_messages: int
    max_bytes: int
    max_block: int
    heavy_rows: int
    delay_s: float
    squeeze: bool = False
    """Whether the past of root logs is given up as soon as it may be; then nobody subscribes to the past."""
    root_bytes: int = ROOMY
    """How much a root log holds; where that is little, nobody subscribes to the past either."""
    gateway_messages: int = 0
    """How many messages the gateway of each site holds in memory; 0 where readers read their inboxes themselves."""

    senders: int = 0
    """How many senders publish at sites; where there are any, nothing else comes to the source."""
    pace_s: float = 0.1
    """How long a sender rests between two messages."""

    @property
    def forgets(self) -> bool:
        """Whether root logs give up their past while it runs."""
        return self.squeeze or self.root_bytes < ROOMY

    def without(self, left_out: frozenset[int]) -> Scenario:
        """The same with some actions left out, by their places."""
        kept = tuple(each for place, each in enumerate(self.actions) if place not in left_out)
        return replace(self, actions=kept)


FAULTS: Final = (
    ("kill", 10), ("pause", 4), ("replace", 4), ("cut", 4), ("lossy", 5), ("kill_reader", 8), ("stall_reader", 5),
    ("fill_inbox", 3), ("fill_site", 3), ("disk_full", 2), ("flip_inbox", 2), ("flip_site", 3), ("flip_part", 1),
    ("flip_state", 1), ("hints", 1), ("skew", 2), ("stray_part", 2), ("bandwidth", 3),
    ("power", 2), ("detach", 4), ("replace_reader", 2), ("lossy_reader", 2),
    ("restore_site", 2), ("old_ack", 2), ("flip_ack", 1), ("oversize", 1), ("lock_catalog", 1), ("flip_rows", 1),
    ("flip_last", 2), ("loop_again", 3),
)  # fmt: skip
CHANGES: Final = (("replan", 6), ("subscribe", 4), ("unsubscribe", 1), ("move", 6), ("change", 2))
SERVICE_FAULTS: Final[tuple[tuple[str, int], ...]] = (
    ("kill_service", 5),
    ("replace_service", 3),
    ("pause_service", 2),
    ("cut_service", 3),
)
AS_PLANNED: Final = "as planned"
"""The other place of an action that leaves the plan as it is."""
_STORMS: Final = 0.3
_SQUEEZED: Final = 0.5
_SMALL_ROOTS: Final = 0.25
_SHARED: Final = 0.5
_KINDS: Final = (*FAULTS, *CHANGES)


def make_any(seed: int, length_s: float = 40.0) -> Scenario:
    """A scenario of any kind: everything about it follows from the seed."""
    random = Random(seed)
    sites = [f"s{number}" for number in range(random.randint(2, 5))]
    streams = [f"t{number}" for number in range(random.choice((1, 1, 2)))]
    roots = {stream: random.choice(sites) for stream in streams}
    subscriptions = {
        name: make_subscription(random, name, random.choice(streams), random.choice(sites))
        for name in (f"u{number}" for number in range(random.randint(1, 5)))
    }
    squeeze = Random(f"squeeze {seed}").random() < _SQUEEZED
    small = Random(f"root log {seed}")
    root_bytes = small.choice((150_000, 400_000)) if small.random() < _SMALL_ROOTS else ROOMY
    if squeeze or root_bytes < ROOMY:
        subscriptions = {name: replace(each, start="now") for name, each in subscriptions.items()}
    deployment = Deployment(
        {name: Stream(name, SCHEMA, Source("generator"), roots[name]) for name in streams},
        {name: Site(name, random.choice((None, None, 4e4)), random.choice((None, None, 4e4))) for name in sites},
        subscriptions=subscriptions,
    )
    ids = {name: number for number, name in enumerate(subscriptions, 1)}
    classes = {name: random.randint(1, 6) for name in subscriptions}
    first = Snapshot(1, deployment, make_plan(random, deployment), ids, classes)
    actions = [*_commits(random, streams, length_s), *_troubles(random, sites, streams, length_s)]
    actions += _service_troubles(Random(f"services {seed}"), length_s)
    sharing = Random(f"sharing {seed}")
    if sharing.random() < _SHARED:
        first = with_company(sharing, first)
        kinds = sharing.choices(("share", "regroup", "rejoin"), k=sharing.choice((0, 3, 6)))
        actions += [Action(sharing.uniform(0.0, length_s), kind, sharing.choice(sites)) for kind in kinds]
    max_rows, inbox_messages = random.choice((30, 200, 100_000)), random.choice((8, 64, 4096))
    max_bytes, max_block = random.choice((40_000, 1 << 20, 1 << 29)), random.choice((400, 1 << 20, 1 << 20))
    return Scenario(
        seed,
        first,
        tuple(sorted(actions, key=lambda each: each.time_s)),
        length_s,
        max_rows=max_rows,
        inbox_messages=inbox_messages,
        max_bytes=max_bytes,
        max_block=min(max_block, max_bytes // 8),  # several messages fit a log
        heavy_rows=random.choice((10, 5_000)),
        delay_s=random.choice((0.02, 0.02, 0.3)),
        squeeze=squeeze,
        root_bytes=root_bytes,
    )


def make_subscription(random: Random, name: str, stream: str, site: str) -> Subscription:
    """A subscription of any kind."""
    return Subscription(
        name,
        stream,
        site,
        select=random.choice((None, None, ("value",))),
        policy=random.choice(POLICIES),
        start=random.choice(("now", "now", "now", "earliest")),
        expires_s=random.choice((None, None, None, 4.0)),
        weight=random.choice((1.0, 2.0)),
        format=random.choice(("arrow", "arrow", "json")),
    )


def make_plan(random: Random, deployment: Deployment) -> Plan:
    """Any trees over any of the sites that must be in them."""
    trees = {}
    for name, stream in deployment.streams.items():
        served = {each.site for each in deployment.subscriptions.values() if each.stream == name}
        members = sorted(
            site for site in deployment.sites if site != stream.root and (site in served or random.random() < 0.5)
        )
        random.shuffle(members)
        parents: dict[str, str] = {}
        for site in members:
            parents[site] = random.choice([stream.root, *parents])
        trees[name] = Tree(name, stream.root, parents)
    return Plan(trees)


def moved(subscription: Subscription, site: str, reading: int) -> Subscription:
    """The subscription at another site: what its reader has not finished is left behind."""
    return next_stay(subscription, replace(subscription, site=site), reading)


def another_of(subscription: Subscription, name: str) -> Subscription:
    """A subscription that wants the same rows, from now on; both may share an inbox."""
    return replace(subscription, name=name, start=NOW, expires_s=None, stay=0, left=(), shared=None)


def with_company(random: Random, first: Snapshot) -> Snapshot:
    """The snapshot with a few more subscriptions that want what others want, in the inboxes of those."""
    known, ids, classes = dict(first.deployment.subscriptions), dict(first.subscription_ids), dict(first.class_ids)
    for _ in range(random.randint(1, 3)):
        like, name = random.choice(sorted(known)), f"u{len(known)}"
        known[like] = replace(known[like], expires_s=None)
        made = another_of(known[like], name)
        others = [(ids[each], classes[each], known[each]) for each in known]
        ids[name], classes[name] = max(ids.values()) + 1, classes[like]
        known[name] = replace(made, shared=find_inbox(made, classes[name], others))
    deployment = replace(first.deployment, subscriptions=known)
    return replace(first, deployment=deployment, subscription_ids=ids, class_ids=classes)


def _commits(random: Random, streams: list[str], length_s: float) -> list[Action]:
    """Micro-batches of all sizes, some of them empty."""
    found = []
    for stream in streams:
        now, pace_s, size = 0.0, random.choice((0.1, 0.3, 1.0)), random.choice((3, 12, 60))
        while now < length_s:
            now += random.uniform(0.2, 1.8) * pace_s
            rows = random.choice((0, 1, size, size, 4 * size))
            found.append(Action(now, "commit", stream, number=float(rows)))
    return found


def _troubles(random: Random, sites: list[str], streams: list[str], length_s: float) -> list[Action]:
    """Faults and changes: sometimes none, sometimes one after the other, sometimes all within a few seconds."""
    found = []
    middle_s, spread_s = length_s / 2, length_s / 2
    if random.random() < _STORMS:
        middle_s, spread_s = random.uniform(3.0, length_s - 3.0), random.choice((0.3, 1.5))
    for _ in range(random.choice((0, 4, 12, 30))):
        kind = random.choices([name for name, _ in _KINDS], [weight for _, weight in _KINDS])[0]
        place = random.choice(streams) if kind in ("flip_part", "flip_rows", "stray_part") else random.choice(sites)
        number = random.uniform(0.1, 9.0)
        time_s = random.uniform(middle_s - spread_s, middle_s + spread_s)
        found.append(Action(time_s, kind, place, random.choice(sites), round(number, 3)))
    return found


def _service_troubles(random: Random, length_s: float) -> list[Action]:
    """Faults of drivers, keepers of books and the purger."""
    kinds, weights = zip(*SERVICE_FAULTS, strict=True)
    return [
        Action(random.uniform(0.0, length_s), kind, number=round(random.uniform(0.1, 9.0), 3))
        for kind in random.choices(kinds, weights, k=random.choice((0, 2, 6)))
    ]
