"""Which versions of the catalog are named, by what, and how that could end: what must be known to delete the others.

Names travel: a pin becomes a manifest in the root log, its rows become blocks in the site logs, those become messages
in inboxes, and each is deleted only after the next one was stored. So they are read in that order. What moves on
meanwhile is caught by what relays state once a second (`headgate.relay.upkeep`): how far all of their outputs have
passed a stream, and under which version. A relay deletes nothing that it has not stated before, so between two readings
of the statements a name can leave a site log unseen only where the statement has changed, and then it is of the stated
version or newer.

A log or a statement that cannot be read is an error, and then nothing is deleted. A site that is cut off has settled
what it stated last, and one that never stated anything has settled nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Final

from headgate.protocol.codec import Codec
from headgate.protocol.port import LogPort, Stored
from headgate.protocol.records import Holds, Pin
from headgate.protocol.reports import RelayReport
from headgate.service.books import read_tallies
from headgate.service.reports import read_reports
from headgate.wire.logs import Log
from headgate.wire.snapshot import Snapshot

ALL_LATER: Final = 1 << 62
_EXACT: Final = 64
_LASTS: Final = 512
_AT_ONCE: Final = 16
_MOST_MANIFESTS: Final = 20_000
_ALL_STAY: Final = "every version of the catalog is kept until it can be read"
_UNREAD: Final = "let its reader come back, give the subscription `expires`, or end it"

Range = tuple[int, int]
"""Versions from the first to the last, both named."""

EVERYTHING: Final[tuple[Range, ...]] = ((0, ALL_LATER),)


@dataclass(frozen=True, slots=True)
class Named:
    """Versions that something names: who that is, and what ends it, which may come by itself."""

    who: str
    fix: str
    ranges: tuple[Range, ...]
    by_itself: bool = False

    def has(self, version: int) -> bool:
        """Whether a version is named."""
        return any(low <= version <= high for low, high in self.ranges)


def holders(names: Iterable[Named], version: int) -> list[Named]:
    """Everything that names a version, first what somebody has to do something about."""
    return sorted((each for each in names if each.has(version)), key=lambda each: each.by_itself)


def covered(names: Iterable[Named], versions: Sequence[int]) -> set[int]:
    """Those of some versions, in order, that anything names; as cheap for many names as for many versions.

    >>> sorted(covered([Named("a log", "", ((2, 4), (9, 12))), Named("another", "", ((4, 5),))], [1, 2, 5, 7, 12]))
    [2, 5, 12]
    """
    changes = [0] * (len(versions) + 1)
    for each in names:
        for low, high in each.ranges:
            changes[bisect_left(versions, low)] += 1
            changes[bisect_right(versions, high)] -= 1
    return {version for version, count in zip(versions, accumulate(changes), strict=False) if count}


def joined(versions: Iterable[int]) -> tuple[Range, ...]:
    """Versions as ranges.

    >>> joined([3, 1, 2, 7, 7])
    ((1, 3), (7, 7))
    """
    found: list[Range] = []
    for version in sorted(set(versions)):
        if found and found[-1][1] == version - 1:
            found[-1] = (found[-1][0], version)
        else:
            found.append((version, version))
    return tuple(found)


class RootVersions:
    """The versions that the manifests of one root log name, read once each and remembered by their last place."""

    def __init__(self, port: LogPort, stream: str) -> None:
        self._port = port
        self._stream = stream
        self._place = 0
        self.lasts: dict[int, tuple[int, int]] = {}
        """By version the place of its last manifest, and the sequence number that it ends with."""

    async def read(self) -> bool:
        """Take in what was committed, and forget what was purged; False when there was too much for one time."""
        log, subject = self._port.logs.root(self._stream), self._port.logs.commit(self._stream)
        for _ in range(_MOST_MANIFESTS // 256):
            batch = await self._port.read(log, subject, self._place)
            if not batch:
                first = await self._port.read(log, subject, 0, limit=1)
                begin = first[0].sequence if first else self._place + 1
                self.lasts = {version: last for version, last in self.lasts.items() if last[0] >= begin}
                return True
            for stored in batch:
                # What cannot be read names no version that anybody could ask for.
                manifest = self._port.quarantine.take(log, stored, self._port.codec.manifest)
                if manifest is not None:
                    self.lasts[manifest.version] = (stored.sequence, manifest.upto)
            self._place = batch[-1].sequence
        return False


async def read_pins(port: LogPort) -> list[Named]:
    """The versions that micro-batches under way, or to be replayed, are matched with."""
    found = []
    for stored in await _latest(port, f"{port.logs.namespace}.pin.*"):
        stream = stored.subject.rsplit(".", 1)[1]
        pin = port.quarantine.take(port.logs.state, stored, Pin.decode, _ALL_STAY)
        ranges: tuple[Range, ...] = EVERYTHING if pin is None else ((pin.version, pin.version),)
        fix = "its next micro-batch takes the newest version"
        found.append(Named(f"the last micro-batch of stream {stream!r}", fix, ranges, by_itself=True))
    return found


async def read_holds(port: LogPort) -> list[Named]:
    """The versions that relays have in memory only."""
    found = []
    for stored in await _latest(port, f"{port.logs.namespace}.hold.*"):
        site = stored.subject.rsplit(".", 1)[1]
        holds = port.quarantine.take(port.logs.state, stored, Holds.decode, _ALL_STAY)
        ranges = EVERYTHING if holds is None else joined(each for held in holds.versions.values() for each in held)
        fix = f"start the relay of {site!r}, or let it catch up"
        found.append(Named(f"the queues of site {site!r}", fix, ranges))
    return found


async def _latest(port: LogPort, pattern: str) -> list[Stored]:
    found: list[Stored] = []
    while batch := await port.read(port.logs.state, pattern, found[-1].sequence if found else 0):
        found += batch
    return found


class Upstream:
    """What names versions before they reach an inbox: pins, root logs, relays, site logs."""

    def __init__(self, port: LogPort) -> None:
        self._port = port
        self.roots: dict[str, RootVersions] = {}
        self.passed: dict[tuple[str, str], int] = {}
        """By stream and site what the site has settled, for every site that was ever sent a block of it."""

    async def read(self) -> tuple[list[Named], list[Named]] | None:
        """The names of root logs, and all others; None when the root logs were too long to be read at one time."""
        others = await read_pins(self._port)
        before = await self._statements()
        roots = await self._read_roots()
        if roots is None:
            return None
        others += await read_holds(self._port)
        self.passed = {}
        for name in await self._port.names(f"{self._port.logs.namespace}.site.>"):
            site = name.removeprefix(self._port.logs.site("x").name[:-1])
            others += await self._site(site, before.get(site, {}))
        return roots, others + _moved(before, await self._statements())

    async def _statements(self) -> dict[str, dict[str, tuple[int, int]]]:
        reports = await read_reports(self._port, RelayReport)
        return {site: report.settled for site, report in reports.items()}

    async def _read_roots(self) -> list[Named] | None:
        logs, found, whole = self._port.logs, [], True
        names = await self._port.names(f"{logs.namespace}.root.*.commit")
        streams = [name.removeprefix(logs.root("x").name[:-1]) for name in names]
        self.roots = {stream: self.roots.get(stream) or RootVersions(self._port, stream) for stream in streams}
        for stream, versions in self.roots.items():
            whole = await versions.read() and whole
            fix = (
                f"it lets go of its past when the relay of its root runs; delete {logs.root(stream).name} if it is over"
            )
            found.append(Named(f"the root log of stream {stream!r}", fix, joined(versions.lasts)))
        return found if whole else None

    async def _site(self, site: str, settled: Mapping[str, tuple[int, int]]) -> list[Named]:
        """Blocks that have not been passed on by a site, and decisions that it has recorded."""
        logs, found = self._port.logs, []
        log = logs.site(site)
        for subject, count in (await self._port.subjects(log, f"{logs.namespace}.site.>")).items():
            kind, *rest = subject.split(".")[3:]
            if (kind, len(rest)) not in (("in", 2), ("held", 1)):
                continue  # nothing that a relay would read
            mark = settled.get(rest[0], (-1, 0))[0] if kind == "in" else -1
            if kind == "in":
                self.passed[rest[0], site] = mark
            versions = await _named_in(self._port, log, subject, count, mark)
            what = f"{rest[0]!r} from {rest[1]!r}" if kind == "in" else f"output {rest[0]!r}, which is held up"
            fix = f"start the relay of {site!r}, or let it catch up; delete {log.name} if the site is gone for good"
            found.append(Named(f"the log of site {site!r}: {what}", fix, versions))
        return found


def _moved(
    before: Mapping[str, Mapping[str, tuple[int, int]]], after: Mapping[str, Mapping[str, tuple[int, int]]]
) -> list[Named]:
    """What may have passed through sites while their logs were read."""
    found = []
    for site in {*before, *after}:
        had, has = before.get(site, {}), after.get(site, {})
        lows = [had.get(stream, (0, 0))[1] for stream in {*had, *has} if had.get(stream) != has.get(stream)]
        if lows:
            found.append(
                Named(f"what passes through site {site!r}", "it goes on", ((min(lows), ALL_LATER),), by_itself=True)
            )
    return found


async def _named_in(
    port: LogPort, log: Log, subject: str, count: int, mark: int, last: Stored | None = None
) -> tuple[Range, ...]:
    """The versions of a subject's messages that cover something past a mark; those of many as one range."""
    last = last or await port.last(log, subject)
    if last is None:
        return ()
    names_of = partial(block_names, codec=port.codec)
    end = port.quarantine.take(log, last, names_of)
    if end is not None and end[0] <= mark:
        return ()
    batch = await port.read(log, subject, 0, limit=min(count, _EXACT))
    names = [name for stored in batch if (name := port.quarantine.take(log, stored, names_of)) is not None]
    found = [version for upto, version in names if upto > mark]
    if end is not None:
        found.append(end[1])
    # Along a subject versions only grow, so what was read is older than what comes behind it.
    newest = ALL_LATER if end is None else end[1]
    many = ((min(found, default=0), newest),) if count > len(batch) else ()
    return (*joined(found), *many)


def block_names(data: Any, codec: Codec) -> tuple[int, int]:
    """Where a block ends, and its version."""
    return codec.coverage(data)[1], codec.version(data)


@dataclass(frozen=True, slots=True)
class NamedInboxes:
    """What inboxes name, and the subscriptions that have anything in one."""

    names: tuple[Named, ...] = ()
    subscriptions: frozenset[int] = frozenset()


async def read_inboxes(port: LogPort, snapshot: Snapshot, ended_s: float) -> NamedInboxes:
    """The versions of messages in inboxes; those that name the same are told as one.

    Nobody can open the inbox of a subscription that has ended: what was read of it names nothing, and what was not
    read does for `ended_s` after it came, for a reader who has it open.
    """
    names = {identity: name for name, identity in snapshot.subscription_ids.items()}
    for name, each in snapshot.deployment.subscriptions.items():
        for stay in each.stays:
            names.setdefault(stay.inbox_of(snapshot.subscription_ids[name])[0], name)
    tallies = await read_tallies(port)
    found: list[Named] = []
    seen: set[int] = set()
    for log_name in await port.names(f"{port.logs.namespace}.inbox.>"):
        site = log_name.removeprefix(port.logs.inbox("x").name[:-1])
        log = port.logs.inbox(site)
        counts = await port.subjects(log, f"{port.logs.namespace}.inbox.>")
        seen.update(map(_identity, counts))
        alike: dict[tuple[bool, tuple[Range, ...]], list[int]] = {}
        async for stored, ranges in _ranges(port, log, counts):
            identity = _identity(stored.subject)
            tally = tallies.get(identity)
            read = tally is not None and tally.inbox >= stored.sequence
            if identity in names or not (read or port.wall_s - stored.time_s > ended_s):
                alike.setdefault((read, ranges), []).append(identity)
        for (read, ranges), identities in alike.items():
            who = names.get(identities[0])
            what = f"subscription {who!r}" if who is not None else f"the ended subscription {identities[0]}"
            more = f" and {len(identities) - 1} more" if identities[1:] else ""
            fix = "it goes with the next row of the stream" if read else _UNREAD
            found.append(Named(f"the inbox of {what} at {site!r}{more}", fix, ranges, by_itself=read))
    return NamedInboxes(tuple(found), frozenset(seen))


async def _ranges(
    port: LogPort, log: Log, counts: Mapping[str, int]
) -> AsyncIterator[tuple[Stored, tuple[Range, ...]]]:
    """The last message of each inbox, and the versions that all of its messages name."""
    subjects = list(counts)
    for start in range(0, len(subjects), _LASTS):
        lasts = await port.lasts(log, subjects[start : start + _LASTS])
        several = [each for each in lasts.values() if counts[each.subject] > 1]
        for each in lasts.values():
            if counts[each.subject] == 1:
                name = port.quarantine.take(log, each, partial(block_names, codec=port.codec))
                yield each, () if name is None else ((name[1], name[1]),)
        for first in range(0, len(several), _AT_ONCE):
            part = several[first : first + _AT_ONCE]
            named = await port.gather(
                *(_named_in(port, log, each.subject, counts[each.subject], -1, each) for each in part)
            )
            for each, ranges in zip(part, named, strict=True):
                yield each, ranges


def _identity(subject: str) -> int:
    """The subscription of an inbox; -1, which nobody has, where the subject names none."""
    name = subject.rsplit(".", 1)[1].partition("-")[0]
    return int(name) if name.isdigit() else -1
