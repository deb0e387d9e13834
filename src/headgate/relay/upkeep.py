"""What a relay does once a second beside relaying: records, purges, expires and reports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.fabric import FabricError
from headgate.relay.core import Key
from headgate.relay.expiry import expire_rows
from headgate.relay.left import LeftInboxes, overdue, read_tally
from headgate.relay.output import Output
from headgate.relay.routes import Receiver
from headgate.wire.ledger import Tally
from headgate.wire.manifest import decode_manifest
from headgate.wire.message import encode_block

if TYPE_CHECKING:
    from headgate.relay.node import RelayNode

_UPKEEP_S: Final = 1.0
_CACHE_MESSAGES: Final = 64
_END: Final = 1 << 62
_ASKED_S: Final = 60.0  # for so long a request to give up the past holds


class Upkeep:
    """Keeps one relay's logs: what is settled is purged by its owner, here, and by nobody else."""

    def __init__(self, node: RelayNode) -> None:
        self.node = node
        self.fabric = node.fabric
        self.core = node.core
        self.site = node.site
        self._left = LeftInboxes(node)
        self._settled: dict[str, tuple[int, int]] = {}
        self._stated: dict[str, tuple[int, int]] = {}
        self._let: dict[str, int] = {}

    async def run(self) -> None:
        """Record what stalled outputs gave up, purge what is settled, and publish what was measured."""
        await self._restore()
        while True:
            await asyncio.sleep(_UPKEEP_S)
            with contextlib.suppress(FabricError):
                await self._record_held()
                for stream in list(self.node.marks):
                    await self._purge_settled(stream)
                for stream in self.node.roots:
                    await self._let_go(stream)
                await self._keep_inboxes()
                await self._left.keep()
                await self._forget_gone()
                await self.node.holds.release(self._passed)
            with contextlib.suppress(FabricError):  # apart, so that a log that does not answer hides no measurement
                await self._publish_stats()

    async def _record_held(self) -> None:
        for key, output in list(self.core.outputs.items()):
            block = output.hold()
            if block is not None:
                subject = self.fabric.logs.held(self.site, key.token)
                await self.fabric.publish(subject, encode_block(block), replace=True)
                output.held = block.upto
                self.node.recorded.add(key)
        for key in list(self.node.recorded):
            kept = self.core.outputs.get(key)
            if kept is None or kept.held is None:  # what was decided has been published
                log, subject = self.fabric.logs.site(self.site), self.fabric.logs.held(self.site, key.token)
                await self.fabric.purge(log, subject, _END)
                self.node.recorded.discard(key)

    async def _restore(self) -> None:
        """Go on with what was stated before."""
        while True:
            with contextlib.suppress(FabricError):
                stored = await self.fabric.last(self.fabric.logs.state, self.fabric.logs.stats("relay", self.site))
                self._settled = read_settled(json.loads(stored.data)) if stored is not None else {}
                await self.node.holds.begin()
                return
            await asyncio.sleep(_UPKEEP_S)

    def _passed(self, stream: str) -> int:
        """The end of what every output has published; where there are none left, nothing is to be published."""
        if not any(key.stream == stream for key in self.core.outputs) and self.core.gap(stream) is None:
            return _END
        return self.core.settled(stream) or 0

    def _settle(self, stream: str) -> None:
        """See how far every output has passed a stream, and with which version."""
        settled = self.core.settled(stream)
        if settled is None or settled <= self._settled.get(stream, (-1, 0))[0]:
            return
        versions = [version for upto, _, _, version in self.node.marks[stream].ends if upto <= settled]
        if versions:
            self._settled[stream] = (settled, max(versions))

    async def _purge_settled(self, stream: str) -> None:
        """Purge what is settled, and was stated to be: who reads the statement finds what it leaves out further on."""
        self._settle(stream)
        settled = min(self._stated.get(stream, (-1, 0))[0], self.core.settled(stream) or -1)
        ends = self.node.marks[stream].ends
        done = [entry for entry in ends if entry[0] <= settled]
        if len(done) > _CACHE_MESSAGES:
            logs = self.fabric.logs
            # The last one of each subject stays: a parent that no longer serves this site goes on from it one day.
            lasts = {subject: place for _, place, subject, _ in done[: len(done) - _CACHE_MESSAGES + 1]}
            for subject, place in lasts.items():
                if subject == logs.commit(stream):
                    await self.fabric.publish(logs.mark(self.site, stream), str(settled).encode())
                    await self._purge_root(stream, place)
                else:
                    await self.fabric.purge(logs.site(self.site), subject, place)
            del ends[: len(done) - _CACHE_MESSAGES]

    async def _let_go(self, stream: str) -> None:
        """Give up the past of a stream that starts here as far as the tables of its versions have no room.

        Its rows were passed on to everybody, by all sites, and the ledger has summed them up. The last manifest stays.
        """
        logs = self.fabric.logs
        stored = await self.fabric.last(logs.state, logs.oldest)
        asked: dict[str, Any] = {"time_ms": 0, "places": {}} if stored is None else json.loads(stored.data)
        place = int(asked["places"].get(stream, 0)) if time.time() - asked["time_ms"] / 1000 < _ASKED_S else 0
        if place <= self._let.get(stream, 0) or stream not in self._stated:
            return
        log = logs.root(stream)
        kept = await self.fabric.read(log, logs.commit(stream), place - 1, limit=1)
        last = kept[0] if kept else await self.fabric.last(log, logs.commit(stream))
        summed = await self.fabric.last(logs.state, logs.ledger(stream))
        if last is None or summed is None or int(summed.data.partition(b"\n")[0]) < last.sequence:
            return
        manifest = decode_manifest(last.data)
        if manifest.after <= self._stated[stream][0]:
            await self.fabric.publish(logs.past(stream), str(manifest.after).encode())
            staged = [part.log_sequence for part in (*manifest.parts, *manifest.dead_parts) if part.log_sequence]
            await self.fabric.purge(log, logs.commit(stream), last.sequence)
            for subject in (logs.part(stream), logs.dead(stream)):
                await self.fabric.purge(log, subject, min([*staged, last.sequence]))
            self._let[stream] = place

    async def _purge_root(self, stream: str, place: int) -> None:
        """Free the root log once it is half full: parts and dead letters before a settled manifest go first.

        Manifests stay while the ledger has not summed them up; they are small.
        """
        logs = self.fabric.logs
        log = logs.root(stream)
        info = await self.fabric.info(log)
        if info is None or info.state.bytes < log.max_bytes // 2:
            return
        await self.fabric.purge(log, logs.part(stream), place)
        await self.fabric.purge(log, logs.dead(stream), place)
        summed = await self.fabric.last(logs.state, logs.ledger(stream))
        if summed is not None:
            await self.fabric.purge(log, logs.commit(stream), min(place, int(summed.data.partition(b"\n")[0])))

    async def _forget_gone(self) -> None:
        """Drop outputs that the newest routes no longer have, once everything they were owed is sent."""
        async with self.node.routing:
            for key, output in list(self.core.outputs.items()):
                gone = key not in self.node.current.get(key.stream, ()) and self.core.gap(key.stream) is None
                if gone and not output.queue and not output.packing and output.busy is None:
                    self.core.forget(key)
                    self.node.targets.pop(key, None)

    async def _keep_inboxes(self) -> None:
        """Purge what subscribers have acknowledged, and expire what those who are away have left too long."""
        logs = self.fabric.logs
        for key, output in list(self.core.outputs.items()):
            if key.subscription is None or output.sequence == 0:
                continue
            tally = await read_tally(self.fabric, key.subscription)
            read = min(tally.place(key.stay), output.sequence)
            if tally.stay > key.stay and not output.queue and output.busy is None:
                read = output.sequence + 1  # its reader has moved on, and nothing will be written behind it
            if read > output.purged:
                await self.fabric.purge(logs.inbox(self.site), self.node.subject(key), read)
                output.purged = read
            target = self.node.targets[key]
            if isinstance(target, Receiver) and tally.stay <= key.stay and output.busy is None:
                await self._expire(key, output, target, tally)

    async def _expire(self, key: Key, output: Output, target: Receiver, tally: Tally) -> None:
        gone = await overdue(self.node, key, target.subscription, tally)
        if gone is None or gone.sequence != output.sequence:
            return
        output.busy = gone.block  # nothing else is published meanwhile
        data = encode_block(gone.block)
        try:
            sequence = await self.fabric.publish(self.node.subject(key), data, expect=output.sequence, replace=True)
        except FabricError:
            output.resume(*await self.node.tail(key))
            return
        output.busy = None
        output.sequence = sequence
        output.give_up_all(lambda block: expire_rows(block, target.id))

    async def _publish_stats(self) -> None:
        logs, now = self.fabric.logs, time.monotonic()
        outputs = {
            key.token: {
                **output.report(now),
                "coverage": output.coverage,
                "stalled": output.stalled,
                "came": output.came,
                "reduced": output.reduced,
                "reasons": dict(output.reducer.reasons),
                "level": output.reducer.level,
                "packs": output.reducer.packs,
                "reorderings": output.reducer.reorderings,
            }
            for key, output in self.core.outputs.items()
        }
        document: dict[str, Any] = {
            "site": self.site,
            "time_ms": int(time.time() * 1000),
            **{name: getattr(self.node.stats, name) for name in self.node.stats.__dataclass_fields__},
            **self.node.meters.report(),
            "settled": self._settled,
            "outputs": outputs,
        }
        stated = dict(self._settled)
        await self.fabric.publish(logs.stats("relay", self.site), json.dumps(document).encode())
        self._stated = stated


def read_settled(report: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """By stream, the end of what a relay's outputs have all passed, and the version that it was routed under.

    What comes later was routed under that version or a newer one.
    """
    return {stream: (int(upto), int(version)) for stream, (upto, version) in report.get("settled", {}).items()}
