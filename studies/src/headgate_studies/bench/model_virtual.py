"""The relays of a deployment in virtual time: real rows, real matching, real queues and messages, a clock of our own.

What a run shows does not depend on how busy the machine is. Beside Spark and NATS everything is what runs live: the
rows of the generators, the index, the relays' cores, their budgets, the encoding, the subscribers' accounts.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.catalog import Catalog
from headgate.model import Deployment, Stream
from headgate.pipeline.classes import index_of
from headgate.pipeline.sources import generate
from headgate.planning import plan_deployment, plan_problem
from headgate.planning.measured import Measured, measured_problem
from headgate.relay.budget import MESSAGE_S, Budgets
from headgate.relay.core import Key, RelayCore, Room, key_of
from headgate.relay.output import Output, QueueLimits, limits_of
from headgate.relay.routes import Routes, build_routes
from headgate.service.observer import Link, calibrated
from headgate.service.sampling import Sample, observed, sample
from headgate.wire.block import Block, Commit
from headgate.wire.ledger import Account, Tally
from headgate.wire.message import encode_block
from headgate.wire.snapshot import Snapshot
from headgate_studies.bench.model_demo import scaled
from headgate_studies.bench.model_lines import (
    LINGER_S,
    SEARCH,
    Line,
    Times,
    describe,
    describe_load,
    difference,
    judged,
    lines_of,
    show,
)

_TICK_S = 0.02
_ANY = 20_000
_COUNT_S = 10.0
_LATE_S = 0.6  # a micro-batch comes each second, at most so much late
_START = 1 << 40  # milliseconds: the clock starts here, so that no time is 0


@dataclass
class SteadyRows:
    """The rows of a stream, one block a second."""

    stream: Stream
    snapshot: Snapshot
    head: int = 0

    def __post_init__(self) -> None:
        self._index = index_of(self.snapshot, self.stream.name)
        self._kind = str(self.stream.source.options["kind"])
        self._seed = int(self.stream.source.options.get("seed", 0))
        self._rows = int(self.stream.rate_rows_per_s or 1.0)

    def block(self, now: float) -> Block:
        """The next second's rows, as the root's relay reads them."""
        rows = generate(self._kind, self._seed, self.head, self.head + self._rows)
        lists = self._index.match(rows)
        matched = lists.rows_matched()
        after, self.head = self.head, self.head + self._rows
        commit = Commit(after, self.head, self.snapshot.revision, _START + int(now * 1000))
        return Block(
            self.stream.name,
            after,
            self.head,
            (commit,),
            matched.astype(np.uint64) + np.uint64(after + 1),
            rows.take(pa.array(matched)),
            lists.take(matched),
        )


@dataclass
class ModelWorld:
    """All sites of a snapshot, with what its links carried and what its subscribers counted."""

    snapshot: Snapshot
    now: float = 0.0
    accounts: dict[int, Account] = field(default_factory=dict)
    links: dict[Link, tuple[int, int, int]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        deployment = self.snapshot.deployment
        limits = limits_of(deployment, QueueLimits(linger_s=LINGER_S))
        self.cores = {site: RelayCore(site, limits) for site in deployment.sites}
        self._budgets = Budgets(deployment)
        self._feeds = [SteadyRows(stream, self.snapshot) for stream in deployment.streams.values()]
        self._chance = np.random.default_rng(1)
        self._due = [number / len(self._feeds) for number in range(len(self._feeds))]
        self._commits = [0] * len(self._feeds)
        self._row_bytes: dict[tuple[str, Key], float] = {}
        self._coming: list[tuple[float, int, str, Block]] = []
        self._number = 0
        self._routes: dict[tuple[str, str], Routes] = {}
        for site in deployment.sites:
            for stream in deployment.streams:
                routes = build_routes(self.snapshot, site, stream)
                if routes is not None:
                    self._routes[site, stream] = routes
                    for target in routes.targets:
                        self.cores[site].restore(key_of(stream, target), None, 0)
        for identity in self.snapshot.subscription_ids.values():
            self.accounts[identity] = Account(Tally(identity))

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.now + seconds
        while self.now < end:
            self.now = round(self.now + _TICK_S, 6)
            for number, feed in enumerate(self._feeds):
                if self.now >= self._due[number]:
                    self._commits[number] += 1
                    on_time = self._commits[number] + number / len(self._feeds)
                    self._due[number] = on_time + self._chance.uniform(0.0, _LATE_S)
                    self._commit(feed)
            while self._coming and self._coming[0][0] <= self.now:
                _, _, site, block = heapq.heappop(self._coming)
                self._receive(site, block)
            for site, core in self.cores.items():
                self._send(site, core)

    def _commit(self, feed: SteadyRows) -> None:
        block = feed.block(self.now)
        found = self.samples.setdefault(feed.stream.name, [])
        if len(found) < 8 and self.now > 5:
            rows = [each for (name, _, _), each in self.links.items() if name == feed.stream.name and each[2]]
            size = round(sum(each[1] for each in rows) / max(1, sum(each[2] for each in rows)))
            found.append(sample(block, self.snapshot.revision, max(1, size)))
        self._receive(feed.stream.root, block)

    def _receive(self, site: str, block: Block) -> None:
        routes = self._routes.get((site, block.stream))
        if routes is not None:
            assert self.cores[site].receive(block, routes, self.now) is None

    def _send(self, site: str, core: RelayCore) -> None:
        def room(key: Key, output: Output) -> Room:
            del output
            if key.child is None:
                return Room(_ANY)
            rate = self._budgets.rate(site, key.child)
            if rate is None:
                return Room(_ANY)
            if not self._budgets.ready(site, key.child, self.now):
                return Room(0, narrow=self._budgets.narrow(site, key.child, self.now))
            row_bytes = self._row_bytes.get((site, key), 64.0)
            return Room(max(int(rate * MESSAGE_S / row_bytes), 1), row_bytes, shared=True)

        for send in core.sends(self.now, room):
            self._number += 1
            key, block = send.key, send.block
            if key.subscription is not None:
                self.accounts[key.subscription].add(block, self._number, _START + int(self.now * 1000))
            else:
                assert key.child is not None
                size = len(encode_block(block))
                self._budgets.spend(site, key.child, size, self.now)
                core.settle(send, size)
                self._count(site, key, size, len(block.seqs))
                delay_s = self.snapshot.deployment.links.between(site, key.child).delay_s
                heapq.heappush(self._coming, (self.now + delay_s, self._number, key.child, block))
            core.outputs[key].published(self._number)

    def _count(self, site: str, key: Key, size: int, rows: int) -> None:
        assert key.child is not None
        before = self.links.get((key.stream, site, key.child), (0, 0, 0))
        self.links[key.stream, site, key.child] = (before[0] + size, before[1] + rows, before[2] + 1)
        self.sent[site] = self.sent.get(site, 0) + size
        if rows:
            seen = self._row_bytes.get((site, key), size / rows)
            self._row_bytes[site, key] = 0.8 * seen + 0.2 * size / rows

    def tallies(self) -> dict[int, Tally]:
        """What subscribers have counted so far, as they would acknowledge it."""
        return {identity: Tally.decode(account.tally.encode()) for identity, account in self.accounts.items()}

    def least_owed(self, before: Mapping[int, Tally]) -> int:
        """The rows that the subscriber with the fewest was owed since then."""
        return min(difference(before[identity], tally)[0] for identity, tally in self.tallies().items())

    def measured(self, links: Mapping[Link, tuple[int, int, int]]) -> Measured:
        """What the observer would say of these counts of links."""
        found = {}
        for name, stream in self.snapshot.deployment.streams.items():
            wanted = frozenset(
                self.snapshot.class_ids[each.name]
                for each in self.snapshot.deployment.subscriptions.values()
                if each.stream == name
            )
            seen = observed(self.samples[name], stream.rate_rows_per_s or 1.0, wanted)
            found[name] = calibrated(name, self.snapshot, seen, links)
        return Measured(found)


def snapshot_of(deployment: Deployment) -> Snapshot:
    """The catalog's snapshot of a deployment with a plan."""
    with Catalog.open("sqlite://") as catalog:
        catalog.apply(deployment)
        assert deployment.plan is not None
        catalog.set_plan(deployment.plan)
        return catalog.snapshot()


def lines(demo: Deployment, scales: list[float], factor: float, times: Times) -> list[Line]:
    """The same in virtual time: a run without limits, then one for each scale from the first row on."""
    wide = scaled(demo, factor * 1000)
    free = ModelWorld(snapshot_of(replace(wide, plan=plan_deployment(wide, "brush").plan)))
    free.run(5.0)
    start = dict(free.links)
    free.run(times.free_s)
    measured = free.measured(_grown(start, free.links))
    describe(demo, measured)
    found: list[Line] = []
    for scale in scales:
        deployment = scaled(demo, factor * scale)
        problem = measured_problem(deployment, free.snapshot.class_ids, measured)
        before = plan_problem(problem, "search", 0, SEARCH)
        given = replace(deployment, plan=before.plan)
        world = ModelWorld(snapshot_of(given))
        world.run(times.settle_s)
        first, links, sent = world.tallies(), dict(world.links), dict(world.sent)
        seconds = 0.0
        while seconds < times.seconds or (seconds < times.most_s and world.least_owed(first) < times.rows):
            world.run(_COUNT_S)
            seconds += _COUNT_S
            print(f"scale {scale:g}: {seconds:.0f} s counted", flush=True)
        loaded = world.measured(_grown(links, world.links))
        under_load = judged(deployment, world.snapshot.class_ids, loaded, before.plan)
        describe_load(scale, measured, loaded)
        for name, site in deployment.sites.items():
            used = (world.sent.get(name, 0) - sent.get(name, 0)) / seconds
            if site.upload_bytes_per_s and used > 0.5 * site.upload_bytes_per_s:
                print(f"  upload of {name}: {used / site.upload_bytes_per_s:.1%} used")
        identities, earlier = world.snapshot.subscription_ids, (plan_deployment(given), before)
        mine = lines_of(scale, identities, demo.subscriptions, earlier, under_load, first, world.tallies())
        show(mine, times.rows)
        found += mine
    return found


def _grown(before: Mapping[Link, tuple[int, int, int]], now: Mapping[Link, tuple[int, int, int]]) -> dict[Link, Any]:
    """What counts have grown by."""
    return {
        link: tuple(new - old for new, old in zip(counts, before.get(link, (0, 0, 0)), strict=True))
        for link, counts in now.items()
    }
