"""What did not arrive at a site: where each stream goes on after a start, and asking for ranges that are missing.

A block is dropped as covered only where this site has had the range before. How far it has is in its last report of
what all of its outputs have passed; where it has reported nothing, it has had nothing. What lies between that and the
first block that arrives is a gap like any other: it may be on its way by a parent of an earlier plan, or never have
been for this site, which the root knows (`headgate.relay.entitlement`).
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from headgate.protocol.kernel import Task
from headgate.protocol.port import FabricError
from headgate.protocol.records import Owed, RangeRequest
from headgate.relay.asking import ask_owed, ask_sent, fetch_blocks
from headgate.relay.backfill import backfill
from headgate.relay.core import Gap, Key
from headgate.relay.holds import HeldRanges
from headgate.relay.restoring import restore_outputs
from headgate.relay.routes import Routes
from headgate.relay.state import SiteState
from headgate.wire.frame import WireError

_GRACE_S: Final = 1.0


class Gaps:
    """The gaps in one relay's inputs."""

    def __init__(self, state: SiteState, held: HeldRanges) -> None:
        self._state = state
        self._held = held
        self._had: dict[str, int] = {}
        self._mending: dict[str, Task[None]] = {}
        self._parents: dict[str, str] = {}

    async def restore(self) -> None:
        """Take up what this site has reported before."""
        self._had = {stream: upto for stream, (upto, _) in (await self._state.settled_before()).items()}

    def had(self, stream: str) -> int:
        """How far this site had stated before its start that all of its outputs have passed a stream."""
        return self._had.get(stream, 0)

    def begin(self, stream: str) -> None:
        """Let a stream go on from what this site has had of it, before its first block."""
        self._state.core.begin(stream, self._had.get(stream, 0))

    def expect(self, stream: str, sender: str, upto: int) -> None:
        """Somebody who serves this site has come so far: what has not come here is a gap from now on."""
        if upto > max(self._state.core.coverage(stream) or 0, self._had.get(stream, 0)):
            self.begin(stream)
            self._state.core.expect(stream, upto)
            self.mend(stream, sender, same=False)

    def mend(self, stream: str, parent: str, *, same: bool) -> None:
        """See to a gap, if nobody does yet. `same`: the block before it had the same version."""
        self._parents[stream] = parent or self._parents.get(stream, "")
        if stream not in self._mending:
            # Where versions differ, this site may not have been in the tree in between: nothing will come by itself.
            work = self._mend(stream, _GRACE_S if same else 0.0)
            self._mending[stream] = self._state.port.machine.spawn(work, f"gap of {stream}")

    async def _mend(self, stream: str, grace_s: float) -> None:
        try:
            await self._state.port.sleep(grace_s)
            await self._fill(stream, at_root=not grace_s)
        finally:
            self._mending.pop(stream, None)

    async def _fill(self, stream: str, *, at_root: bool) -> None:
        """Ask for missing ranges until there are none, in turns the parent, the root and the parent of an earlier plan.

        The parent is asked for rows. The root is asked what of a range is owed to this site at all, once for each
        range, and then how far it has forgotten the range. Rows that are owed and are not the parent's to send come
        from the parent of an earlier plan, into the site log; what it has sent there and could not be read is asked for
        again. What another parent had sent, and was purged to make room (`headgate.relay.upkeep`), is asked for again
        there. The root is not asked for rows: what an earlier parent gave up of them, and is still to tell, would come
        for a range that is covered by then.
        """
        state, turn, asked, failed = self._state, int(at_root), -1, 0
        while (gap := await self._first(stream)) is not None:
            at_root = turn % 3 == 1
            try:
                if at_root and gap.upto != asked:
                    await self._pass_over(gap, max(turn - 1, failed))
                    turn, asked = 0, gap.upto
                    continue
                if turn % 3 == 2 or not (gap.shown or at_root):
                    answers = await self._sent_before(gap, max(turn, failed))
                else:
                    root = await self._root_of(stream)
                    place, upto = (root, gap.upto) if at_root else self._sender(gap, failed, root)
                    serve = stream in state.standbys or state.vital.silent(self._parents[stream], state.port.now)
                    request = RangeRequest(
                        stream=stream, after=gap.after, upto=upto, child=state.site, past=at_root, serve=serve
                    )
                    answers = await fetch_blocks(state.port, place, request, max(turn, failed))
                await self._take_all(stream, answers)
            except (FabricError, WireError):
                state.totals.failures += 1
                turn, failed = turn + 1, failed + (not at_root)
                await state.port.sleep(state.stall_s)
                continue
            turn = 0

    async def _first(self, stream: str) -> Gap | None:
        """The first gap of a stream, once everything that has come is routed."""
        async with self._state.routing:
            return self._state.core.gap(stream)

    async def _sent_before(self, gap: Gap, tries: int) -> list[Any]:
        """What the parent of the plan that a gap's first rows were routed by has sent of it, up to where it has.

        What it has not sent is still to come, and perhaps not all of it: it may give rows up, and then says so in a
        message of its own. So the answer ends where one of its messages does, and is taken in at once.
        """
        state, stream = self._state, gap.stream
        owed = await self._owed(gap, tries)
        routes = await state.tables.routes(owed.version, state.site, stream) if owed.version else None
        if routes is None or routes.parent is None or owed.begins > gap.after:
            raise FabricError(f"nothing of {stream!r} in ({gap.after}, {gap.upto}] was sent to {state.site} before")
        reached, found, place, end = gap.after, [], routes.parent, owed.ends
        state.vital.wait_for(place, stream, state.port.now)
        dead = state.vital.silent(place, state.port.now)
        if dead:
            place = await self._root_of(stream)  # what the dead parent had decided on and not sent is void
        else:
            request = RangeRequest(stream=stream, after=reached, upto=end, child=state.site, sent=True)
            end = await ask_sent(state.port, place, request)
        while reached < end:
            request = RangeRequest(stream=stream, after=reached, upto=end, child=state.site, serve=dead)
            answers = await fetch_blocks(state.port, place, request, tries)
            found += answers
            reached = state.port.codec.coverage(answers[-1])[1]
        if not found:
            raise FabricError(f"{routes.parent} has sent nothing of {stream!r} in ({gap.after}, {owed.ends}] yet")
        return found

    def sent(self, request: RangeRequest) -> int:
        """How far this site has sent a range to a child: up to the end of a message, or to what it has not got yet.

        A child asks for what it is owed, and so this site is: what has not come here is a gap from now on.
        """
        state, stream = self._state, request.stream
        mine = max(state.core.coverage(stream) or 0, self._had.get(stream, 0))
        if stream not in state.roots:
            self.expect(stream, "", request.upto)
        output = state.core.outputs.get(Key(stream, child=request.child))
        if output is not None and (output.queue or output.busy is not None or output.packing):
            mine = min(mine, output.coverage or 0)
        return min(max(mine, request.after), request.upto)

    def _sender(self, gap: Gap, failed: int, root: str) -> tuple[str, int]:
        """Whom to ask for rows, and up to where: the parent, or after failures those whose later messages have come.

        Messages of one sender come in order, so it has sent everything of its own before the last of them. In place of
        a parent that has fallen silent its standby is asked, and after a failure the root.
        """
        state, parent = self._state, self._parents[gap.stream]
        sent = {parent: gap.upto}
        if state.vital.silent(parent, state.port.now):
            sent = {state.standbys.get(gap.stream, root): gap.upto, root: gap.upto}
        for each in state.taken.get(gap.stream, ()):
            if each.upto > gap.after:
                sent.setdefault(each.subject.rsplit(".", 1)[-1], min(each.upto, gap.upto))
        return list(sent.items())[failed % len(sent)]

    async def _pass_over(self, gap: Gap, tries: int) -> None:
        """Count the beginning of a gap as received where nothing of it is owed to this site."""
        state, owed = self._state, await self._owed(gap, tries)
        if owed.begins > gap.after:
            async with state.routing:
                state.core.cover(gap.stream, owed.begins, state.port.now)
                await state.pack_overfull()

    async def _owed(self, gap: Gap, tries: int) -> Owed:
        """What of a gap is owed to this site, as the root knows."""
        request = RangeRequest(stream=gap.stream, after=gap.after, upto=gap.upto, owed=self._state.site)
        return await ask_owed(self._state.port, await self._root_of(gap.stream), request, tries)

    async def _take_all(self, stream: str, answers: list[Any]) -> None:
        """Take in an answer, after stating that its versions are in use here."""
        codec = self._state.port.codec
        ends = {codec.version(data): codec.coverage(data)[1] for data in answers}
        if not await self._held.take(stream, ends):
            await self._state.port.sleep(self._state.stall_s)  # it came too late to be used: ask again
            return
        async with self._state.routing:  # of one message all or nothing, as a message that comes late declares for all
            for data in answers:
                await self._take(stream, data)

    async def _take(self, stream: str, data: Any) -> None:
        """Take in a block of an answer."""
        state, version = self._state, self._state.port.codec.version(data)
        routes = await state.tables.routes(version, state.site, stream)
        # A version that does not route the stream here has nothing in its range but the coverage.
        routes = routes or Routes(state.site, stream, version, self._parents[stream], pa.schema([]), (), ())
        block = state.port.codec.block(data, routes.schema)
        routes = await state.serving(routes)
        await restore_outputs(state, routes)
        await backfill(state, routes, block.after)  # the first block of a subscription may come this way
        state.core.receive(block, routes, state.port.now)
        await state.pack_overfull()
        state.totals.repairs += 1

    async def _root_of(self, stream: str) -> str:
        """The site where a stream starts."""
        return (await self._state.tables.newest()).deployment.streams[stream].root
