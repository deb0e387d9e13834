"""What a relay does once a second beside relaying: records, purges, expires and reports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, Final

from headgate.fabric import FabricError
from headgate.relay.core import Key
from headgate.relay.expiry import expire_messages, expire_rows
from headgate.relay.output import Output
from headgate.relay.routes import Receiver
from headgate.wire.block import Block
from headgate.wire.ledger import Tally
from headgate.wire.message import block_version, decode_block, encode_block

if TYPE_CHECKING:
    from headgate.relay.node import RelayNode

_UPKEEP_S: Final = 1.0
_CACHE_MESSAGES: Final = 64


class Upkeep:
    """Keeps one relay's logs: what is settled is purged by its owner, here, and by nobody else."""

    def __init__(self, node: RelayNode) -> None:
        self.node = node
        self.fabric = node.fabric
        self.core = node.core
        self.site = node.site

    async def run(self) -> None:
        """Record what stalled outputs gave up, purge what is settled, and publish what was measured."""
        while True:
            await asyncio.sleep(_UPKEEP_S)
            with contextlib.suppress(FabricError):
                await self._record_held()
                for stream in list(self.node.marks):
                    await self._purge_settled(stream)
                await self._keep_inboxes()
                await self._forget_gone()
                await self._publish_stats()

    async def _record_held(self) -> None:
        for key, output in list(self.core.outputs.items()):
            block = output.hold()
            if block is not None:
                subject = self.fabric.logs.held(self.site, key.token)
                await self.fabric.publish(subject, encode_block(block), replace=True)
                output.held = block.upto

    async def _purge_settled(self, stream: str) -> None:
        settled = self.core.settled(stream)
        ends = self.node.marks[stream].ends
        if settled is None:
            return
        done = [entry for entry in ends if entry[0] <= settled]
        if len(done) <= _CACHE_MESSAGES:
            return
        logs = self.fabric.logs
        _, place, subject = done[-_CACHE_MESSAGES]
        if subject == logs.commit(stream):
            await self.fabric.publish(logs.mark(self.site, stream), str(settled).encode())
            await self._purge_root(stream, place)
        else:
            await self.fabric.purge(logs.site(self.site), subject, place)
        del ends[: len(done) - _CACHE_MESSAGES]

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
                if key not in self.node.current.get(key.stream, ()) and not output.queue and output.busy is None:
                    self.core.forget(key)

    async def _keep_inboxes(self) -> None:
        """Purge what subscribers have acknowledged, and expire what those who are away have left too long."""
        logs = self.fabric.logs
        for key, output in list(self.core.outputs.items()):
            if key.subscription is None or output.sequence == 0:
                continue
            stored = await self.fabric.last(logs.state, logs.ack(key.subscription))
            tally = (Tally.read(stored.data) if stored is not None else None) or Tally(key.subscription)
            if tally.inbox > output.purged:
                await self.fabric.purge(
                    logs.inbox(self.site), self.node.subject(key), min(tally.inbox, output.sequence)
                )
                output.purged = tally.inbox
            target = self.node.targets[key]
            if isinstance(target, Receiver) and target.subscription.expires_s is not None and output.busy is None:
                await self._expire(key, output, target, target.subscription.expires_s, tally)

    async def _expire(self, key: Key, output: Output, target: Receiver, grace_s: float, tally: Tally) -> None:
        unread = await self.fabric.read(self.fabric.logs.inbox(self.site), self.node.subject(key), tally.inbox)
        seen_s = max(tally.time_ms / 1000, unread[0].time_s if unread else time.time())
        if not unread or time.time() - seen_s < grace_s:
            return
        # A reader may have stopped inside its last message: what it was handed is not expired.
        blocks = [(await self._decode_inbox(each.data, target)).since(tally.mark) for each in unread]
        if not any(len(block.seqs) for block in blocks) or unread[-1].sequence != output.sequence:
            return
        gone = encode_block(expire_messages(blocks, target.id))
        output.busy = blocks[-1]  # nothing else is published meanwhile
        try:
            sequence = await self.fabric.publish(self.node.subject(key), gone, expect=output.sequence, replace=True)
        except FabricError:
            output.resume(*await self.node.tail(key))
            return
        output.busy = None
        output.sequence = sequence
        output.give_up_all(lambda block: expire_rows(block, target.id))

    async def _decode_inbox(self, data: bytes, target: Receiver) -> Block:
        snapshot = await self.node.tables.snapshot(block_version(data))
        mine = snapshot.deployment.subscriptions.get(target.subscription.name, target.subscription)
        return decode_block(data, snapshot.deployment.streams[mine.stream].schema.select(mine.select).arrow)

    async def _publish_stats(self) -> None:
        logs = self.fabric.logs
        outputs = {
            key.token: {
                "rows": output.rows,
                "bytes": output.bytes,
                "coverage": output.coverage,
                "stalled": output.stalled,
                "came": output.came,
                "reduced": output.reduced,
                "reasons": dict(output.reducer.reasons),
                "level": output.reducer.level,
                "packs": output.reducer.packs,
            }
            for key, output in self.core.outputs.items()
        }
        document: dict[str, Any] = {
            "site": self.site,
            "time_ms": int(time.time() * 1000),
            **{name: getattr(self.node.stats, name) for name in self.node.stats.__dataclass_fields__},
            **self.node.meters.report(),
            "outputs": outputs,
        }
        await self.fabric.publish(logs.stats("relay", self.site), json.dumps(document).encode())
