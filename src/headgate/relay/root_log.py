"""Keeping the root logs of the streams that start at a site within their limits: which of their past goes, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.protocol.records import Oldest, Past, RelayMark
from headgate.relay.history import MARGIN_S
from headgate.relay.root import place_behind, readable
from headgate.relay.state import Intake, SiteState
from headgate.wire.frame import WireError
from headgate.wire.manifest import Manifest
from headgate.wire.sums import Matched

KEPT_COMMITS: Final = 64
"""So many settled commits stay for sites below that may ask for them again, while there is room for them."""
_CROWDED: Final = 0.5  # of a root log: from then on what is settled goes
_FULL: Final = 0.9  # of a root log: then rows go that were to be kept for longer
_ASKED_S: Final = 60.0  # for so long a request to give up the past holds


class RootLogs:
    """Purges what the root logs of one site need no more."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self._port = state.port
        self._freed: dict[str, tuple[int, int]] = {}
        self._let: dict[str, int] = {}
        self._aged: dict[str, int] = {}  # by stream, the place of the oldest manifest that is young enough to be kept

    async def mark(self, stream: str, upto: int) -> None:
        """Note that nothing up to a sequence number need be read again after a start."""
        await self._port.publish(self._port.logs.mark(self._state.site, stream), RelayMark(upto=upto).encode())

    async def free(self, stream: str, done: Sequence[Intake]) -> None:
        """Free a root log once it is half full: parts and dead letters before a settled commit go first.

        The last settled commits stay for sites below that may ask for them, as long as others are there that can go:
        else a few large ones would fill the log for ever. Where the stream says how long rows are kept, they go when
        they are older, and before that only when the log is nearly full.
        """
        port, logs = self._port, self._port.logs
        log, usage = logs.root(stream), await self._port.usage(logs.root(stream))
        found = (await self._state.tables.newest()).deployment.streams.get(stream)
        keep_s = None if found is None else found.keep_s
        if not done or usage is None or (keep_s is None and usage.bytes < log.max_bytes * _CROWDED):
            return
        full = usage.bytes >= log.max_bytes * _FULL
        place = done[-KEPT_COMMITS if len(done) > KEPT_COMMITS else -1].place
        if keep_s is not None and not full:
            place = min(place, await self._older_than(stream, keep_s + MARGIN_S))
        summed = min(place, await self._summed(stream))
        if self._freed.get(stream) == (place, summed):
            return
        await self.mark(stream, done[-1].upto)
        for subject in (logs.part(stream), logs.dead(stream)):
            await port.purge(log, subject, place)
        await self._forget(stream, summed)
        self._freed[stream] = (place, summed)

    async def let_go(self, stream: str, stated: int) -> None:
        """Give up the past of a stream as far as the tables of its versions have no room.

        Its rows were passed on to everybody, by all sites, and the ledger has summed them up. The last manifest stays,
        and so does what this site has not stated to be settled.
        """
        port, logs = self._port, self._port.logs
        asked = await self._asked()
        place = 0 if asked is None else asked.places.get(stream, 0)
        if place <= self._let.get(stream, 0):
            return
        found = await self._manifest_from(stream, place)
        sums = await self._sums(stream)
        if found is None or found[1].after > stated or sums is None or sums.place < found[0]:
            return
        sequence, manifest = found
        staged = [part.log_sequence for part in (*manifest.parts, *manifest.dead_parts) if part.log_sequence]
        await self._forget(stream, sequence)
        for subject in (logs.part(stream), logs.dead(stream)):
            await port.purge(logs.root(stream), subject, min([*staged, sequence]))
        self._let[stream] = place

    async def _forget(self, stream: str, place: int) -> None:
        """Purge the manifests before one of them, and say so first: who asks for their rows hears that they are gone.

        Without a manifest nobody knows whom its rows were for, nor that they were owed to anybody.
        """
        port, logs = self._port, self._port.logs
        found = await self._manifest_from(stream, place) if place else None
        if found is not None:
            await port.publish(logs.past(stream), Past(upto=found[1].after).encode())
            await port.purge(logs.root(stream), logs.commit(stream), found[0])

    async def _manifest_from(self, stream: str, place: int) -> tuple[int, Manifest] | None:
        """The first manifest from a place on, or the last one there is."""
        port, log, subject = self._port, self._port.logs.root(stream), self._port.logs.commit(stream)
        kept = await port.read(log, subject, place - 1, limit=1)
        stored = kept[0] if kept else await port.last(log, subject)
        if stored is None:
            return None
        try:
            return stored.sequence, port.codec.manifest(stored.data)
        except WireError as error:
            self._state.put_aside(log, stored, error)
            return None

    async def _summed(self, stream: str) -> int:
        """The place before which no manifest is needed any more.

        The ledger has summed them up, and every subscriber has read their rows. Where the log is nearly full, it is
        enough that every site has passed the rows on.
        """
        sums = await self._sums(stream)
        if sums is None:
            return 0
        asked = await self._asked()
        passed = 0 if asked is None else asked.passed.get(stream, 0)
        return min(sums.place, await place_behind(self._port, stream, max(sums.mark, passed)))

    async def _asked(self) -> Oldest | None:
        """What the service wants to be given up, if it has said so of late."""
        asked: Oldest | None = await self._state.record(Oldest, self._port.logs.oldest)
        return None if asked is None or self._port.wall_s - asked.time_ms / 1000 >= _ASKED_S else asked

    async def _sums(self, stream: str) -> Matched | None:
        """What the ledger has summed up, None where there is nothing to read."""
        stored = await self._port.last(self._port.logs.state, self._port.logs.ledger(stream))
        try:
            return None if stored is None else Matched.decode(stored.data, stream)
        except WireError:
            return None  # the ledger's keeper names what it finds there

    async def _older_than(self, stream: str, keep_s: float) -> int:
        """The place in a root log below which everything is of commits that are older than that."""
        port, logs = self._port, self._port.logs
        oldest_ms, place = (port.wall_s - keep_s) * 1000, self._aged.get(stream, 1)
        while batch := await port.read(logs.root(stream), logs.commit(stream), place - 1):
            for stored in batch:
                manifest = next((each for _, each in readable(port, [stored])), None)
                if manifest is not None and manifest.time_ms >= oldest_ms:
                    self._aged[stream] = stored.sequence
                    staged = [part.log_sequence for part in (*manifest.parts, *manifest.dead_parts)]
                    return min([each for each in staged if each], default=stored.sequence)
            place = batch[-1].sequence + 1
        return place
