"""Watches a running deployment for the planner: rates, sizes, selectivities, what links carried, what was lost.

Everything is read from the logs, so it works as well for relays in processes of their own: manifests and now and then a
committed block for the streams, the relays' reports for links and sites, acknowledgements for subscriptions. Counters
only grow; what is measured is their difference over a window.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.diagnostics import SERVICE, noted, stream_log
from headgate.errors import HeadgateError
from headgate.fabric import Crew, Fabric, FabricError
from headgate.model import Links
from headgate.planning.measured import Bandwidth, Measured, Observed, crossings
from headgate.protocol.reports import RelayReport, StandingReport
from headgate.relay.core import Key
from headgate.relay.root import load_block
from headgate.relay.routes import Routes
from headgate.relay.tables import Tables
from headgate.service.books import read_tallies
from headgate.service.hop_delays import Hops, Pair
from headgate.service.link_status import full_links, latencies
from headgate.service.reports import read_reports
from headgate.service.sampling import Sample, observed, sample
from headgate.service.stalled_outputs import Standing
from headgate.wire.manifest import Manifest, decode_manifest
from headgate.wire.snapshot import Snapshot

WINDOW_S: Final = 30.0
_READ_S: Final = 1.0
_SAMPLE_S: Final = 5.0
_SAMPLES: Final = 6
_MESSAGE_ROWS: Final = 200  # until a link has carried any
SHEDS: Final = 0.01  # shedding less than this is no sign of a limit
_MOST_OFF: Final = 4.0


Link = tuple[str, str, str]
"""A stream, a parent and a child."""


@dataclass(frozen=True, slots=True)
class CounterReading:
    """Counters at a time: (bytes, rows, messages) of links, (came, reduced) of sites, what subscribers have counted.

    `hops` has the latency by sender and receiver where both ends have measured it of late, `full` the bytes a second
    that links carried while rows waited for them, where that bounds what their senders may send.
    """

    time_s: float
    links: Mapping[Link, tuple[int, int, int]]
    sites: Mapping[str, tuple[int, int]]
    subscribers: Mapping[int, tuple[int, int, float, int]]
    hops: Mapping[Pair, float] = field(default_factory=dict)
    full: Mapping[Pair, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Got:
    """What a subscription got over the window: rows, the part of them that was lost, mean delay from the commit."""

    rows: int
    drop: float
    delay_s: float | None


@dataclass
class _Stream:
    """What is kept of a stream: (time, sequence) of recent manifests, and samples of its newest version."""

    ends: deque[tuple[float, int]] = field(default_factory=deque)
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    sampled_s: float = 0.0


class Observer:
    """Measures while `run` runs; `measured`, `got` and `shed` say what is known now."""

    def __init__(self, fabric: Fabric, tables: Tables, window_s: float = WINDOW_S) -> None:
        self._fabric = fabric
        self._tables = tables
        self._window_s = window_s
        self._streams: dict[str, _Stream] = {}
        self._readings: deque[CounterReading] = deque()
        self._read_once = asyncio.Event()
        self._crew: Crew | None = None
        self._standing = Standing()
        self._stood = False

    async def run(self) -> None:
        """Measure until cancelled."""
        snapshot = await self._tables.newest()
        async with Crew() as crew:
            for name in {*self._streams, *snapshot.deployment.streams}:
                self._streams[name] = _Stream()
                crew.spawn(self._follow(name))
            self._crew = crew
            crew.spawn(self._read_loop())
            await crew.wait()

    def add(self, stream: str) -> None:
        """Measure one more stream."""
        if stream not in self._streams:
            self._streams[stream] = _Stream()
            if self._crew is not None:
                self._crew.spawn(self._follow(stream))

    def forget(self) -> None:
        """Start the window anew: what was measured before a change says nothing about what comes after it."""
        self._readings.clear()

    @property
    def seconds(self) -> float:
        """How long the window is by now."""
        return self._readings[-1].time_s - self._readings[0].time_s if self._readings else 0.0

    async def filled(self, seconds: float) -> None:
        """Wait until the window is so long."""
        while self.seconds < seconds:
            self._read_once.clear()
            await self._read_once.wait()

    async def _follow(self, name: str) -> None:
        logs, mine = self._fabric.logs, self._streams[name]
        last = await self._fabric.last(logs.root(name), logs.commit(name))
        log, subject = logs.root(name), logs.commit(name)
        async for batch in self._fabric.follow(log, subject, last.sequence - 1 if last else 0):
            for stored in batch:
                manifest = self._fabric.quarantine.take(log, stored, decode_manifest)
                if manifest is not None and manifest.stream == name:
                    await self._observe(mine, manifest)

    async def _observe(self, mine: _Stream, manifest: Manifest) -> None:
        mine.ends.append((manifest.time_ms / 1000, manifest.upto))
        while mine.ends[-1][0] - mine.ends[0][0] > self._window_s:
            mine.ends.popleft()
        if manifest.evaluated and time.monotonic() - mine.sampled_s > _SAMPLE_S:
            mine.sampled_s = time.monotonic()
            with noted(SERVICE, "its rows or its version are gone: another batch is sampled", HeadgateError):
                await self._sample(mine, manifest)

    async def _sample(self, mine: _Stream, manifest: Manifest) -> None:
        stream = (await self._tables.snapshot(manifest.version)).deployment.streams[manifest.stream]
        schema = stream.schema.arrow
        nobody = Routes(stream.root, stream.name, manifest.version, None, schema, (), ())
        try:
            block = await load_block(self._fabric, manifest, schema, nobody)
        except FabricError as error:
            stream_log(manifest.stream).debug("no sample of batch %s was taken: %s", manifest.batch, error)
            return
        if not block.declared:
            rows = self._message_rows(manifest.stream)
            mine.samples.append(await asyncio.to_thread(sample, block, manifest.version, rows))

    def _message_rows(self, stream: str) -> int:
        """Rows of a message on the links of a stream, in the mean."""
        found = [change for (name, _, _), change in self._links().items() if name == stream and change[2]]
        rows, messages = sum(each[1] for each in found), sum(each[2] for each in found)
        return max(1, round(rows / messages)) if messages and rows else _MESSAGE_ROWS

    async def _read_loop(self) -> None:
        while True:
            began = time.monotonic()
            with noted(SERVICE, "the flows were not read, the next reading counts", FabricError):
                self._readings.append(await self._read())
                self._read_once.set()
            while self._readings and self.seconds > self._window_s:
                self._readings.popleft()
            # Reading takes a tenth of the time at most, however many subscribers there are.
            await asyncio.sleep(max(_READ_S, 9 * (time.monotonic() - began)))

    async def _read(self) -> CounterReading:
        links: dict[Link, tuple[int, int, int]] = {}
        sites: dict[str, tuple[int, int]] = {}
        relays = await read_reports(self._fabric, RelayReport)
        await self._report_standing(relays)
        for site, report in relays.items():
            for link, size in report.link_bytes.items():
                stream, child = link.rsplit(":", 1)
                links[stream, site, child] = (size, report.link_rows.get(link, 0), report.link_messages[link])
            outputs = [output for token, output in report.outputs.items() if Key.parse(token).child is not None]
            sites[site] = (sum(each.came for each in outputs), sum(each.reduced for each in outputs))
        subscribers = {
            identity: (
                tally.delivered,
                sum(tally.reduced.values()),
                tally.commit_delay.total_ms,
                tally.commit_delay.count,
            )
            for identity, tally in (await read_tallies(self._fabric)).items()
        }
        return CounterReading(time.monotonic(), links, sites, subscribers, latencies(relays), full_links(relays))

    async def _report_standing(self, relays: Mapping[str, RelayReport]) -> None:
        """Publish which outputs stand still, as often as that is read; once more when none does any longer."""
        now_ms = int(time.time() * 1000)
        found = self._standing.update(relays, now_ms)
        if found or self._stood:
            report = StandingReport(time_ms=now_ms, outputs=found)
            await self._fabric.publish(self._fabric.logs.stats("standing", "_"), report.encode())
        self._stood = bool(found)

    def _links(self) -> dict[Link, tuple[int, int, int]]:
        """What links have carried over the window; one that was not there at its start carried all it ever did."""
        if not self._readings:
            return {}
        first, last = self._readings[0].links, self._readings[-1].links
        found = {}
        for link, now in last.items():
            before = first.get(link, (0, 0, 0))
            if now[0] >= before[0]:
                found[link] = (now[0] - before[0], now[1] - before[1], now[2] - before[2])
        return found

    def sent(self, site: str) -> float:
        """Bytes per second that a site has sent to others."""
        total = sum(size for (_, parent, _), (size, _, _) in self._links().items() if parent == site)
        return total / self.seconds if self.seconds else 0.0

    def hops(self, links: Links) -> Hops:
        """Delays between sites: over the window the mean of what both ends of a link have measured, else declared."""
        found: dict[Pair, list[float]] = {}
        for reading in self._readings:
            for pair, seconds in reading.hops.items():
                found.setdefault(pair, []).append(seconds)
        return Hops(links, {pair: sum(seen) / len(seen) for pair, seen in found.items()})

    def shed(self, site: str) -> float:
        """The part of what it should have forwarded that a site has given up over the window."""
        if not self._readings:
            return 0.0
        (came, reduced), (had, had_reduced) = (
            reading.sites.get(site, (0, 0)) for reading in (self._readings[-1], self._readings[0])
        )
        return min(max((reduced - had_reduced) / (came - had), 0.0), 1.0) if came > had else 0.0

    def got(self, identity: int) -> Got | None:
        """What a subscription got over the window, None when it settled nothing."""
        if not self._readings or identity not in self._readings[-1].subscribers:
            return None
        now = self._readings[-1].subscribers[identity]
        before = self._readings[0].subscribers.get(identity, (0, 0, 0.0, 0))
        rows, lost, delay_ms, counted = (one - other for one, other in zip(now, before, strict=True))
        if rows + lost <= 0:
            return None
        return Got(int(rows + lost), lost / (rows + lost), delay_ms / counted / 1000 if counted > 0 else None)

    def measured(self, snapshot: Snapshot) -> Measured:
        """What is known of the streams under the classes of a snapshot, and of sites with an unknown bandwidth."""
        return self._gathered(snapshot)()

    async def measured_aside(self, snapshot: Snapshot) -> Measured:
        """The same, worked out in a thread: it takes seconds where thousands of sites subscribe."""
        return await asyncio.to_thread(self._gathered(snapshot))

    def _gathered(self, snapshot: Snapshot) -> Callable[[], Measured]:
        """What has been read by now, to be worked out anywhere."""
        links = self._links()
        seen = {
            name: (tuple(mine.samples), tuple(mine.ends))
            for name, mine in self._streams.items()
            if name in snapshot.deployment.streams
        }
        sites = {
            name: Bandwidth(self.sent(name))
            for name, site in snapshot.deployment.sites.items()
            if site.upload_bytes_per_s is None and self.shed(name) > SHEDS
        }
        full = {frozenset(pair): rate for pair, rate in (self._readings[-1].full if self._readings else {}).items()}

        def work() -> Measured:
            found = {name: self._observed(name, snapshot, *each, links) for name, each in seen.items()}
            return Measured({name: each for name, each in found.items() if each is not None}, sites, full)

        return work

    def _observed(
        self,
        name: str,
        snapshot: Snapshot,
        samples: tuple[Sample, ...],
        ends: tuple[tuple[float, int], ...],
        links: Mapping[Link, tuple[int, int, int]],
    ) -> Observed | None:
        """A stream as it was seen; None as long as too little of the snapshot's classes was."""
        wanted = _classes(name, snapshot)
        known = [each for each in samples if each.column_bytes and wanted <= self._known(each, name)]
        if not known or len(ends) < 2 or ends[-1][0] <= ends[0][0]:
            return None
        rate = (ends[-1][1] - ends[0][1]) / (ends[-1][0] - ends[0][0])
        return calibrated(name, snapshot, observed(known, rate, wanted), links)

    def _known(self, found: Sample, stream: str) -> frozenset[int]:
        """The classes that a sample's version had."""
        snapshot = self._tables.known(found.version)
        return _classes(stream, snapshot) if snapshot else frozenset()


def calibrated(name: str, snapshot: Snapshot, seen: Observed, links: Mapping[Link, tuple[int, int, int]]) -> Observed:
    """A stream whose bytes agree with what its links carried: in the mean, and link by link through the sites' bulk.

    A link's messages have headers, and rows that are left after thinning are less alike, so links differ in what they
    take for a row. What is known of a link goes with the site that it leads to, whoever will serve that.
    """
    tree = snapshot.plan.trees.get(name) if snapshot.plan else None
    if tree is None:
        return seen
    mine = [each for each in snapshot.deployment.subscriptions.values() if each.stream == name]
    stream = snapshot.deployment.streams[name]
    used = {
        child: (size, rows)
        for (other, parent, child), (size, rows, _) in links.items()
        if other == name and rows and tree.parents.get(child) == parent
    }
    expected = crossings(stream, mine, snapshot.class_ids, seen, tree) if used else {}
    promised: dict[str, float] = {}
    carried: dict[str, float] = {}
    for child, (size, rows) in used.items():
        part, promise = expected[child]
        if part > 0:
            promised[child], carried[child] = rows * promise / part, float(size)
    if not promised:
        return seen
    mean = min(max(sum(carried.values()) / sum(promised.values()), 1 / _MOST_OFF), _MOST_OFF)
    bulk = {child: min(max(size / promised[child] / mean, 1 / _MOST_OFF), _MOST_OFF) for child, size in carried.items()}
    return replace(seen.scaled(mean), bulk=bulk)


def _classes(stream: str, snapshot: Snapshot) -> frozenset[int]:
    return frozenset(
        snapshot.class_ids[name] for name, each in snapshot.deployment.subscriptions.items() if each.stream == stream
    )
