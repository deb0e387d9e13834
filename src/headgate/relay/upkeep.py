"""What a relay does once a second beside relaying: records, purges, expires and reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from heapq import nlargest
from typing import Final

from headgate.protocol.port import FabricError
from headgate.protocol.records import Oldest, Past, RelayMark
from headgate.protocol.reports import RelayReport
from headgate.relay.core import Key
from headgate.relay.history import MARGIN_S
from headgate.relay.holds import HeldRanges
from headgate.relay.inboxes import Inboxes
from headgate.relay.output import Output
from headgate.relay.root import readable
from headgate.relay.state import Intake, SiteState
from headgate.wire.frame import WireError
from headgate.wire.manifest import Manifest
from headgate.wire.sums import Matched

_UPKEEP_S: Final = 1.0
_CACHE_MESSAGES: Final = 64
_END: Final = 1 << 62
_REPORTED: Final = 1_000  # inboxes in a report
_FULL: Final = 0.9  # of a root log: then rows go that were to be kept for longer
_ASKED_S: Final = 60.0  # for so long a request to give up the past holds


class Upkeep:
    """Keeps one relay's logs: what is settled is purged by its owner, here, and by nobody else."""

    def __init__(self, state: SiteState, held: HeldRanges) -> None:
        self._state = state
        self._port = state.port
        self._held = held
        self._inboxes = Inboxes(state)
        self._settled: dict[str, tuple[int, int]] = {}
        self._stated: dict[str, tuple[int, int]] = {}
        self._let: dict[str, int] = {}
        self._aged: dict[str, int] = {}  # by stream, the place of the oldest manifest that is young enough to be kept

    async def run(self) -> None:
        """Record what stalled outputs gave up, purge what is settled, and report."""
        await self._restore()
        while True:
            await self._port.sleep(_UPKEEP_S)
            for step in (self._keep_logs, self._inboxes.keep, self._forget_gone, self._release, self._report):
                try:
                    await step()
                except FabricError:  # one that cannot be done now hides no other, and is done again
                    self._state.totals.failures += 1

    async def _restore(self) -> None:
        """Go on with what was stated before."""
        self._settled = await self._state.settled_before()
        await self._state.insist(self._held.begin)

    async def _keep_logs(self) -> None:
        await self._record_held()
        for stream in list(self._state.taken):
            await self._purge_settled(stream)
            if self._state.core.gap(stream) is not None:
                await self._make_room(stream)
        for stream in self._state.roots:
            await self._let_go(stream)

    async def _record_held(self) -> None:
        """Record decisions of stalled outputs, and take back those that have been published."""
        state, logs = self._state, self._port.logs
        for key, output in list(state.core.outputs.items()):
            block = output.hold()
            if block is not None:
                subject = logs.held(state.site, key.token)
                await self._port.publish(subject, self._port.codec.encode(block), replace=True)
                output.held = block.upto
                state.recorded.add(key)
        for key in list(state.recorded):
            kept = state.core.outputs.get(key)
            if kept is None or kept.held is None:
                await self._port.purge(logs.site(state.site), logs.held(state.site, key.token), _END)
                state.recorded.discard(key)

    def _passed(self, stream: str) -> int:
        """The end of what every output has published; where there are none left, nothing is to be published."""
        core = self._state.core
        if not any(key.stream == stream for key in core.outputs) and core.gap(stream) is None:
            return _END
        return core.settled(stream) or 0

    async def _release(self) -> None:
        await self._held.release(self._passed)

    def _settle(self, stream: str) -> None:
        """See how far every output has passed a stream, and with which version."""
        settled = self._state.core.settled(stream)
        if settled is None or settled <= self._settled.get(stream, (-1, 0))[0]:
            return
        versions = [each.version for each in self._state.taken[stream] if each.upto <= settled]
        if versions:
            self._settled[stream] = (settled, max(versions))

    async def _purge_settled(self, stream: str) -> None:
        """Purge what is settled, and was stated to be: who reads the statement finds what it leaves out further on."""
        self._settle(stream)
        state, logs = self._state, self._port.logs
        settled = min(self._stated.get(stream, (-1, 0))[0], state.core.settled(stream) or -1)
        taken = state.taken[stream]
        done = [each for each in taken if each.upto <= settled]
        gone = len(done) - _kept_for_repair(done, logs.site(state.site).max_bytes // 4)
        if gone <= 0:
            return
        # The last one of each subject stays: a parent that no longer serves this site goes on from it one day.
        lasts = {each.subject: each.place for each in done[: gone + 1]}
        for subject, place in lasts.items():
            if subject == logs.commit(stream):
                await self._port.publish(logs.mark(state.site, stream), RelayMark(upto=settled).encode())
                await self._purge_root(stream, place)
            else:
                await self._port.purge(logs.site(state.site), subject, place)
        del taken[:gone]

    async def _make_room(self, stream: str) -> None:
        """Purge what waits behind a gap once the site log is half full: what fills the gap may have no room there.

        After a plan change the rows up to the switch still come from the old parent, and the new one may have filled
        the log before. What is purged is asked for again; the last message of each parent stays, and so does everything
        of a parent of whose messages some were routed and are not passed on.
        """
        state, log = self._state, self._port.logs.site(self._state.site)
        usage = await self._port.usage(log)
        if usage is None or usage.bytes < log.max_bytes // 2:
            return
        reached = state.core.coverage(stream) or 0
        settled = state.core.settled(stream) or 0
        owed = {each.subject for each in state.taken[stream] if settled < each.upto <= reached}
        behind = [each for each in state.taken[stream] if each.upto > reached]
        lasts = {each.subject: each for each in behind}
        state.core.let_go(stream, {each.upto for each in behind if each.subject in owed or each is lasts[each.subject]})
        for subject, last in lasts.items():
            if subject != self._port.logs.commit(stream) and subject not in owed:
                await self._port.purge(log, subject, last.place)

    async def _let_go(self, stream: str) -> None:
        """Give up the past of a stream that starts here as far as the tables of its versions have no room.

        Its rows were passed on to everybody, by all sites, and the ledger has summed them up. The last manifest stays.
        """
        port, logs = self._port, self._port.logs
        asked: Oldest | None = await self._state.record(Oldest, logs.oldest)
        if asked is None or port.wall_s - asked.time_ms / 1000 >= _ASKED_S:
            return
        place = asked.places.get(stream, 0)
        if place <= self._let.get(stream, 0) or stream not in self._stated:
            return
        log = logs.root(stream)
        found = await self._manifest_from(stream, place)
        if found is None or await self._summed(stream) < found[0]:
            return
        sequence, manifest = found
        if manifest.after <= self._stated[stream][0]:
            await port.publish(logs.past(stream), Past(upto=manifest.after).encode())
            staged = [part.log_sequence for part in (*manifest.parts, *manifest.dead_parts) if part.log_sequence]
            await port.purge(log, logs.commit(stream), sequence)
            for subject in (logs.part(stream), logs.dead(stream)):
                await port.purge(log, subject, min([*staged, sequence]))
            self._let[stream] = place

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
        """The place of the last manifest that the ledger has summed up."""
        stored = await self._port.last(self._port.logs.state, self._port.logs.ledger(stream))
        if stored is None:
            return 0
        try:
            return Matched.decode(stored.data, stream).place
        except WireError:
            return 0  # the ledger's keeper names what it finds there

    async def _purge_root(self, stream: str, place: int) -> None:
        """Free the root log once it is half full: parts and dead letters before a settled manifest go first.

        Where the stream says how long they are kept, they go when they are older, and before that only when the log is
        nearly full. Manifests stay while the ledger has not summed them up; they are small.
        """
        logs = self._port.logs
        log = logs.root(stream)
        usage = await self._port.usage(log)
        found = (await self._state.tables.newest()).deployment.streams.get(stream)
        keep_s = None if found is None else found.keep_s
        if usage is None or (keep_s is None and usage.bytes < log.max_bytes // 2):
            return
        if keep_s is not None and usage.bytes < log.max_bytes * _FULL:
            place = min(place, await self._older_than(stream, keep_s + MARGIN_S))
        await self._port.purge(log, logs.part(stream), place)
        await self._port.purge(log, logs.dead(stream), place)
        await self._port.purge(log, logs.commit(stream), min(place, await self._summed(stream)))

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

    async def _forget_gone(self) -> None:
        """Drop outputs that the newest routes no longer have, once everything they were owed is sent.

        A subscription that has ended is owed what its inbox has room for, and one that reads on elsewhere has got what
        waits here by asking for it: behind a full inbox that nobody reads it would keep the site's logs full for all
        the others.
        """
        state = self._state
        async with state.routing:
            for key, output in list(state.core.outputs.items()):
                gone = key not in state.current.get(key.stream, ()) and state.core.gap(key.stream) is None
                if not gone or output.packing or output.busy is not None:
                    continue
                if not output.queue or (output.stalled and await self._left(key)):
                    state.core.forget(key)
                    state.targets.pop(key, None)

    async def _left(self, key: Key) -> bool:
        """Whether an output is for a subscription that has ended, or whose reader has gone on to a later stay."""
        if key.subscription is None:
            return False
        known = set((await self._state.tables.newest()).subscription_ids.values())
        ended = all(subscription not in known for subscription, _ in self._state.readers(key))
        return ended or await self._state.read_out(key)

    def _to_report(self) -> list[tuple[Key, Output]]:
        """Links, and inboxes of which there is something to say; where these are many, those with most waiting."""
        outputs = self._state.core.outputs.items()
        links = [(key, output) for key, output in outputs if key.child is not None]
        inboxes = [(key, output) for key, output in outputs if key.child is None and output.remarkable]
        if len(inboxes) > _REPORTED:
            inboxes = nlargest(_REPORTED, inboxes, key=lambda each: (each[1].stalled, each[1].rows))
        return [*links, *inboxes]

    def _reached(self) -> dict[str, int]:
        """By stream, how far the output has got that has got furthest."""
        found: dict[str, int] = {}
        for key, output in self._state.core.outputs.items():
            if output.coverage is not None and _END > output.coverage > found.get(key.stream, 0):
                found[key.stream] = output.coverage
        return found

    async def _report(self) -> None:
        """Publish what was measured, and state what is settled."""
        state, now = self._state, self._port.now
        stated = dict(self._settled)
        report = RelayReport(
            site=state.site,
            time_ms=int(self._port.wall_s * 1000),
            settled=stated,
            recorded={key.token: output.held for key, output in state.core.outputs.items() if output.held is not None},
            incarnations=state.incarnations,
            outputs={key.token: output.report(now) for key, output in self._to_report()},
            inboxes=sum(key.child is None for key in state.core.outputs),
            passed=self._reached(),
            stopped=dict(state.stopped),
            standbys=dict(state.standbys),
            ahead=self._inboxes.ahead,
            blocks=state.meters.blocks,
            cpu_s=round(self._port.machine.now.cpu_s, 6),
            sent_s=state.meters.sent.report(),
            arrived_s=state.meters.arrived.report(),
            taken={parent: meter.report(now) for parent, meter in state.meters.links.items()},
            bounds=state.budgets.bounds(state.site) if state.budgets else {},
            **asdict(state.totals),
        )
        await self._port.publish(self._port.logs.stats("relay", state.site), report.encode())
        self._stated = stated


def _kept_for_repair(done: Sequence[Intake], most_bytes: int) -> int:
    """How many settled messages stay, for sites below that may ask for them again: the last ones, within limits."""
    size = 0
    for count, each in enumerate(reversed(done[-_CACHE_MESSAGES:])):
        size += each.size
        if size > most_bytes:
            return max(count, 1)
    return _CACHE_MESSAGES
