"""What a relay does once a second beside relaying: records, purges, expires and reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from heapq import nlargest
from typing import Final

from headgate.protocol.port import FabricError
from headgate.protocol.reports import RelayReport
from headgate.relay.core import Key
from headgate.relay.holds import HeldRanges
from headgate.relay.inboxes import Inboxes
from headgate.relay.output import Output
from headgate.relay.root_log import KEPT_COMMITS, RootLogs
from headgate.relay.state import Intake, SiteState

_UPKEEP_S: Final = 1.0
_END: Final = 1 << 62
_REPORTED: Final = 1_000  # inboxes in a report


class Upkeep:
    """Keeps one relay's logs: what is settled is purged by its owner, here, and by nobody else."""

    def __init__(self, state: SiteState, held: HeldRanges) -> None:
        self._state = state
        self._port = state.port
        self._held = held
        self._inboxes = Inboxes(state)
        self._settled: dict[str, tuple[int, int]] = {}
        self._stated: dict[str, tuple[int, int]] = {}
        self._root_logs = RootLogs(state)

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
            if stream in self._stated:
                await self._root_logs.let_go(stream, self._stated[stream][0])

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
        if stream in state.roots:
            await self._root_logs.free(stream, [each for each in done if each.subject == logs.commit(stream)])
        if gone <= 0:
            return
        # The last one of each subject stays: a parent that no longer serves this site goes on from it one day.
        lasts = {each.subject: each.place for each in done[: gone + 1]}
        for subject, place in lasts.items():
            if subject == logs.commit(stream):
                await self._root_logs.mark(stream, settled)
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

    async def _forget_gone(self) -> None:
        """Drop outputs that the newest routes no longer have, once everything they were owed is sent.

        A subscription that has ended is owed what its inbox has room for; one that reads on elsewhere, and a site that
        has another parent now, have got what waits here by asking for it. Behind a full log it would keep the site's
        logs full for all the others: also for that site, if it has become the parent of this one.
        """
        state = self._state
        async with state.routing:
            for key, output in list(state.core.outputs.items()):
                gone = key not in state.current.get(key.stream, ()) and state.core.gap(key.stream) is None
                if not gone or output.packing or output.busy is not None:
                    continue
                if not output.queue or (output.stalled and await self._left(key, output.queue[-1].block.upto)):
                    state.core.forget(key)
                    state.targets.pop(key, None)

    async def _left(self, key: Key, upto: int) -> bool:
        """Whether an output is for nobody any more.

        Its subscription has ended, its reader has gone on to a later stay, or its site has passed on everything up to
        the end of what waits.
        """
        if key.child is not None:
            report: RelayReport | None = await self._state.record(
                RelayReport, self._port.logs.stats("relay", key.child)
            )
            same = report and report.incarnations.get(key.stream) == self._state.incarnations.get(key.stream)
            return bool(report and same and report.settled.get(key.stream, (0, 0))[0] >= upto)
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
            seconds=dict(state.seconds),
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
    for count, each in enumerate(reversed(done[-KEPT_COMMITS:])):
        size += each.size
        if size > most_bytes:
            return max(count, 1)
    return KEPT_COMMITS
