"""What did not arrive at a site: where each stream goes on after a start, and asking for ranges that are missing.

A block is dropped as covered only where this site has had the range before. How far it has is in its last statement of
what all of its outputs have passed (`headgate.relay.upkeep`); where it has stated nothing, it has had nothing. What
lies between that and the first block that arrives is a gap like any other: it may be on its way by a parent of an
earlier plan, or never have been for this site, which the root knows (`headgate.relay.owed`).
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headgate.fabric import FabricError
from headgate.relay.owed import fetch_owed
from headgate.relay.repair import fetch_range
from headgate.relay.routes import Routes
from headgate.relay.upkeep import read_settled
from headgate.wire.message import block_range, block_version, decode_block

if TYPE_CHECKING:
    from headgate.relay.core import Gap
    from headgate.relay.node import RelayNode

_GRACE_S: Final = 1.0
_STALL_S: Final = 0.5


class Gaps:
    """The gaps in one relay's inputs."""

    def __init__(self, node: RelayNode) -> None:
        self._node = node
        self._had: dict[str, int] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def restore(self) -> None:
        """Take up what this site has stated before."""
        logs = self._node.fabric.logs
        stored = await self._node.last(logs.state, logs.stats("relay", self._node.site))
        settled = read_settled(json.loads(stored.data)) if stored is not None else {}
        self._had = {stream: upto for stream, (upto, _) in settled.items()}

    def begin(self, stream: str) -> None:
        """Let a stream go on from what this site has had of it, before its first block."""
        self._node.core.begin(stream, self._had.get(stream, 0))

    def mend(self, stream: str, parent: str, *, same: bool) -> None:
        """See to a gap, if nobody does yet. `same`: the block before it had the same version."""
        if stream not in self.tasks:
            # Where versions differ, this site may not have been in the tree in between: nothing will come by itself.
            task = asyncio.create_task(self._repair(stream, parent, _GRACE_S if same else 0.0))
            self.tasks[stream] = task
            task.add_done_callback(lambda _: self.tasks.pop(stream, None))

    async def _repair(self, stream: str, parent: str, grace_s: float) -> None:
        """Ask the parent for ranges that did not come, after giving them the time to come by themselves.

        Where it does not answer, the root is asked in turns with it what is owed at all and what was forgotten: it
        alone knows. Without time to come by itself, that is the first question. Rows that are owed and are not the
        parent's to send come from the parent of their version, as late as it likes.
        """
        node = self._node
        await asyncio.sleep(grace_s)
        turn, asked = (0 if grace_s else 1), -1
        while (gap := node.core.gap(stream)) is not None:
            at_root = turn % 2 == 1
            try:
                if at_root and gap.upto != asked:
                    await self._pass_over(gap)
                    turn, asked = 0, gap.upto
                    continue
                place = await self._root_of(stream) if at_root else parent
                answers = await fetch_range(
                    node.fabric, place, stream, gap.after, gap.upto, child=node.site, tries=turn, past=at_root
                )
            except FabricError:
                turn += 1
                await asyncio.sleep(_STALL_S)
                continue
            turn = 0
            if await self._hold(stream, answers):
                for data in answers:
                    await self._take(stream, parent, data)

    async def _pass_over(self, gap: Gap) -> None:
        """Count the beginning of a gap as received where nothing of it is owed to this site."""
        node, stream = self._node, gap.stream
        root = await self._root_of(stream)
        begins = await fetch_owed(node.fabric, root, stream, gap.after, gap.upto, node.site)
        if begins > gap.after:
            async with node.routing:
                node.core.cover(stream, begins, time.monotonic())
                await node.pack_overfull()

    async def _take(self, stream: str, parent: str, data: bytes) -> None:
        """Take in a block of an answer."""
        node, version = self._node, block_version(data)
        routes = await node.tables.routes(version, node.site, stream)
        # A version that does not route the stream here has nothing in its range but the coverage.
        routes = routes or Routes(node.site, stream, version, parent, pa.schema([]), (), ())
        block = decode_block(data, routes.schema)
        async with node.routing:
            await node.restore_outputs(routes)
            node.core.receive(block, routes, time.monotonic())
            await node.pack_overfull()
        node.stats.repairs += 1

    async def _root_of(self, stream: str) -> str:
        """The site where a stream starts."""
        return (await anext(self._node.tables.heads())).deployment.streams[stream].root

    async def _hold(self, stream: str, answers: list[bytes]) -> bool:
        """State that the versions of an answer are in use here; False when it came too late to be used."""
        ends = {block_version(data): block_range(data)[1] for data in answers}
        try:
            held = await self._node.holds.take(stream, ends)
        except FabricError:
            held = False
        if not held:
            await asyncio.sleep(_STALL_S)
        return held
