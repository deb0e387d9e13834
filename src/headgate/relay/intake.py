"""What comes in: manifests of streams that start here, and blocks that parents have put into the site log."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headgate.protocol.port import GoneError, Stored
from headgate.protocol.records import RelayMark
from headgate.relay.backfill import backfill
from headgate.relay.core import key_of
from headgate.relay.gaps import Gaps
from headgate.relay.restoring import restore_outputs
from headgate.relay.root import load_block
from headgate.relay.routes import Routes
from headgate.relay.state import Intake, SiteState
from headgate.wire.block import Block
from headgate.wire.frame import WireError
from headgate.wire.manifest import Manifest


class Intakes:
    """The inputs of one relay."""

    def __init__(self, state: SiteState, gaps: Gaps) -> None:
        self._state = state
        self._gaps = gaps
        self._versions: dict[str, int] = {}

    async def follow_root(self, stream: str) -> None:
        """Read the root log of a stream that starts here."""
        state, logs = self._state, self._state.port.logs
        log, subject = logs.root(stream), logs.commit(stream)
        mark = await state.record(RelayMark, logs.mark(state.site, stream))
        done, place, reached = (-1 if mark is None else mark.upto), 0, None
        while True:
            for stored in await state.port.next(log, subject, place):
                place = stored.sequence
                try:
                    manifest = state.port.codec.manifest(stored.data)
                except WireError as error:
                    state.put_aside(log, stored, error)
                    continue
                if reached is not None and manifest.after > reached:
                    state.stopped[stream] = (
                        f"the commit of rows {reached + 1} to {manifest.after} cannot be read in {log.name} before "
                        f"sequence {stored.sequence}: restore the log from a backup"
                    )
                    return
                reached = max(manifest.upto, reached or 0)
                if manifest.upto > done and manifest.evaluated and stream in state.roots:
                    await self._commit(manifest, stored)

    async def _commit(self, manifest: Manifest, stored: Stored) -> None:
        """Take in the rows of a manifest."""
        routes = await self._state.tables.routes(manifest.version, self._state.site, manifest.stream)
        if routes is not None:
            block = await self._state.insist(partial(load_block, self._state.port, manifest, routes.schema, routes))
            await self._receive(block, routes, stored)

    async def follow_site(self) -> None:
        """Read what parents have published into the site log."""
        state, logs = self._state, self._state.port.logs
        log, place = logs.site(state.site), 0
        while True:
            for stored in await state.port.next(log, logs.links_into(state.site), place):
                place = stored.sequence
                try:
                    await self._take(stored)
                except WireError as error:
                    # The next block shows the gap, and the range is asked for again.
                    state.put_aside(log, stored, error)

    async def _take(self, stored: Stored) -> None:
        """Take in a message of the site log."""
        state = self._state
        stream, parent = stored.subject.split(".")[-2:]
        version = state.port.codec.version(stored.data)
        try:
            routes = await state.tables.routes(version, state.site, stream)
        except GoneError:  # a version goes when this relay has stated that all of it is settled
            async with state.routing:
                self._gaps.begin(stream)
                state.core.cover(stream, state.port.codec.coverage(stored.data)[1], state.port.now)
                await state.pack_overfull()
            return
        state.vital.heard(parent, state.port.now)
        state.meters.took(parent, stored, state.port.wall_s, state.port.now, real=state.is_real(parent))
        if routes is None:
            raise WireError(f"version {version} does not route {stream!r} to {state.site!r}")
        block = state.port.codec.block(stored.data, routes.schema)
        await self._receive(block, routes, stored)

    async def _receive(self, block: Block, routes: Routes, stored: Stored) -> None:
        """Route a block, and see to what is missing before it."""
        state, stream = self._state, routes.stream
        async with state.routing:
            if routes.parent is not None and block.upto <= self._gaps.had(stream):
                routes = replace(routes, children=())  # all links have passed it, and some may not be ours any more
            else:
                routes = await state.serving(routes)
            if state.routed.get(stream) is not routes:
                await restore_outputs(state, routes)
                state.current[stream] = frozenset(key_of(stream, target) for target in routes.targets)
                state.routed[stream] = routes
            await backfill(state, routes, block.after)
            if routes.parent is not None:
                self._gaps.begin(stream)
            gap = state.core.receive(block, routes, state.port.now)
            same = self._versions.get(stream) == block.version
            if gap is None:
                self._versions[stream] = block.version
            await state.pack_overfull()
        state.meters.blocks += 1
        taken = Intake(block.upto, stored.sequence, stored.subject, block.version, stored.size)
        state.taken.setdefault(stream, []).append(taken)
        if gap is not None and routes.parent is not None:
            self._gaps.mend(gap.stream, routes.parent, same=same)
