"""What was published at a site, on its way up: read from its outbox, sent in parcels, kept until the root has it.

The root's answer is the only thing that lets go of a message: the outbox is purged up to the place that the root has
taken. Several parcels are on their way at a time; where one is lost, all from there on are sent again, and the root
drops what it has. So nothing on the way needs to be stored, and what waits is counted at one place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.protocol.port import FabricError, MachinePort, Stored
from headgate.protocol.records import ParcelAnswer
from headgate.protocol.reports import OutboxReport
from headgate.relay.way_up import rate_up, way_up
from headgate.wire.parcel import LARGE, ROWS, UNSENT, Parcel, ParcelItem
from headgate.wire.snapshot import Snapshot

PARCELS: Final = 8
"""So many parcels are on their way at a time."""
PARCEL_BYTES: Final = 512 << 10
PARCEL_S: Final = 0.5
_FEWEST_BYTES: Final = 16 << 10
_MESSAGES: Final = 1024
_SPARE: Final = 0.95  # of the largest message is for one that was published; the rest for what a parcel adds
_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 8.0
_ANSWER_S: Final = 10.0
_SLOWER: Final = 4.0  # an answer may take so many times as long as the way takes for what is on it

Rise = Callable[[Parcel, float], Awaitable[ParcelAnswer]]
"""Sends a parcel up and gives the root's answer, which may take so many seconds."""


@dataclass
class _Stream:
    """Where one stream stands: what the root has, and when to try again after a failure."""

    upto: int | None = None
    messages: int | None = None
    busy: bool = False
    failures: int = 0
    again_s: float = 0.0
    problem: str = ""
    oldest_ms: int | None = None
    first: int = 0


class Outbox:
    """Carries what was published at one site."""

    def __init__(self, port: MachinePort, site: str, rise: Rise, newest: Callable[[], Snapshot | None]) -> None:
        self._port = port
        self._site = site
        self._rise = rise
        self._newest = newest
        self._streams: dict[str, _Stream] = {}

    def wake(self, waiting: dict[str, int]) -> None:
        """Carry what waits, by stream, unless that is under way or has failed just now."""
        for stream in waiting:
            known = self._streams.setdefault(stream, _Stream())
            if not known.busy and self._port.now >= known.again_s:
                known.busy = True
                self._port.machine.spawn(self._carry(stream, known), f"outbox of {stream}")

    def report(self, waiting: dict[str, int]) -> dict[str, OutboxReport]:
        """What waits of each stream, and what was ever published, once the root has answered or cannot be reached."""
        return {
            stream: OutboxReport(
                waiting=waiting.get(stream, 0),
                published=None if known.messages is None else known.messages + waiting.get(stream, 0),
                first=known.first,
                oldest_ms=known.oldest_ms if waiting.get(stream) else None,
                problem=known.problem,
            )
            for stream, known in self._streams.items()
            if known.messages is not None or known.problem
        }

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that something was published into."""
        return tuple(self._streams)

    async def _carry(self, stream: str, known: _Stream) -> None:
        try:
            while await self._round(stream, known):
                known.failures, known.problem = 0, ""
        except FabricError as error:
            known.problem = " ".join(str(error).split())[:300]
            known.failures += 1
            known.again_s = self._port.now + min(_PAUSE_S * 2 ** (known.failures - 1), _LONGEST_PAUSE_S)
        finally:
            known.busy = False

    async def _round(self, stream: str, known: _Stream) -> bool:
        """Send the next messages, and let go of what the root has; False where nothing waits any more."""
        port, logs, log = self._port, self._port.logs, self._port.logs.outbox(self._site)
        subjects = logs.outbox_of(self._site, stream)
        if known.upto is None:
            for oldest in await port.read(log, subjects, 0, limit=1):
                known.first, known.oldest_ms = oldest.sequence, int(oldest.time_s * 1000)
            await self._let_go(stream, known, await self._rise(Parcel(stream, self._site, 0, 0), _ANSWER_S))
        assert known.upto is not None
        found = await port.read(log, subjects, known.upto, limit=_MESSAGES)
        if not found:
            known.oldest_ms = None
            return False
        known.oldest_ms = int(found[0].time_s * 1000)
        rate = self._rate(stream)
        parcels = self._cut(stream, known.upto, found, rate)
        size = sum(parcel.size for parcel in parcels)
        wait_s = (_ANSWER_S + (0.0 if rate is None else _SLOWER * size / rate)) * 2.0 ** min(known.failures, 6)
        answers = await port.gather(*(self._answered(parcel, wait_s) for parcel in parcels))
        best = max((each for each in answers if not each.error), key=lambda each: each.upto, default=None)
        if best is None:
            raise FabricError(answers[0].error)
        if best.upto <= known.upto and (problem := next((each.error for each in answers if each.error), "")):
            raise FabricError(problem)
        await self._let_go(stream, known, best)
        return True

    async def _answered(self, parcel: Parcel, wait_s: float) -> ParcelAnswer:
        try:
            return await self._rise(parcel, wait_s)
        except FabricError as error:
            return ParcelAnswer(error=str(error) or repr(error))

    async def _let_go(self, stream: str, known: _Stream, answer: ParcelAnswer) -> None:
        """Delete what the root has, and then go on from there; it may also have less than it had, after a loss."""
        if answer.upto:
            port = self._port
            await port.purge(port.logs.outbox(self._site), port.logs.outbox_of(self._site, stream), answer.upto + 1)
        known.upto, known.messages = answer.upto, answer.messages

    def _rate(self, stream: str) -> float | None:
        newest = self._newest()
        return None if newest is None else rate_up(newest.deployment, way_up(newest, self._site, stream))

    def _cut(self, stream: str, after: int, found: Sequence[Stored], rate: float | None) -> list[Parcel]:
        """Parcels of the first messages: small enough for the slowest link of the way, as many as may be on it."""
        most = PARCEL_BYTES if rate is None else int(min(max(rate * PARCEL_S, _FEWEST_BYTES), PARCEL_BYTES))
        parcels: list[Parcel] = []
        items: list[ParcelItem] = []
        size = 0
        for stored in found:
            if items and size + len(stored.data) > most:
                parcels.append(Parcel(stream, self._site, after, items[-1].sequence, items))
                after, items, size = items[-1].sequence, [], 0
                if len(parcels) == PARCELS:
                    return parcels
            items.append(self._item(stored))
            size += len(items[-1].data)
        return [*parcels, Parcel(stream, self._site, after, items[-1].sequence, items)]

    def _item(self, stored: Stored) -> ParcelItem:
        kind = UNSENT if stored.subject.endswith(f".{UNSENT}") else ROWS
        if len(stored.data) > self._port.max_payload * _SPARE:
            return ParcelItem(stored.sequence, LARGE, stored.identity, str(len(stored.data)).encode())
        return ParcelItem(stored.sequence, kind, stored.identity, stored.data)
