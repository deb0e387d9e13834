"""The past of subscriptions that start before their first block, as the root log holds it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from msgspec import structs

from headgate.protocol.records import RangeRequest
from headgate.relay.asking import ask_blocks, ask_owed
from headgate.relay.core import key_of
from headgate.relay.repair import HISTORY
from headgate.relay.routes import Receiver, Routes
from headgate.relay.state import SiteState
from headgate.wire.block import Block


async def backfill(state: SiteState, routes: Routes, upto: int) -> None:
    """Give subscriptions that start earlier what the root log holds of their class, before their first block.

    A relay may have stopped in the middle of it: it goes on behind what was published or recorded. What waits to be
    sent stays within the limits of the queue, whatever the size of the past.
    """
    for target in routes.of_the_past:
        key = key_of(routes.stream, target)
        output = state.core.outputs[key]
        mine = target.subscription
        reached = output.reach or 0
        if reached >= upto:
            continue
        stream, port = routes.stream, state.port
        root = (await state.tables.snapshot(routes.version)).deployment.streams[stream].root
        # Where an earlier stay was served, it has the past. One that was left before its first commit has nothing.
        served = RangeRequest(stream=stream, after=0, upto=upto, served=target.id, stay=mine.stay)
        if mine.stay and (await state.insist(partial(ask_owed, port, root, served))).begins < upto:
            continue
        begins, served = upto, structs.replace(served, stay=mine.stay + 1)
        if output.reach is not None:
            begins = (await state.insist(partial(ask_owed, port, root, served))).begins
        while reached < begins:
            history = RangeRequest(
                stream=stream,
                after=reached,
                upto=begins,
                class_id=target.class_id,
                columns=target.schema.names,
                start=mine.start,
            )
            answers = await state.insist(partial(ask_blocks, port, root, history))
            if not answers:
                break
            for data in answers:
                block = _as_own(port.codec.block(data, target.schema), target, routes.version)
                state.core.offer(key, block, target, port.now)
                await state.pack_overfull()
                reached = block.upto


def _as_own(block: Block, target: Receiver, version: int) -> Block:
    """A block of history as if it had been routed to this receiver, under the version that now serves it."""
    return replace(
        block,
        classes=None,
        commits=tuple(
            replace(commit, version=version, whole={target.id: commit.whole[HISTORY]} if commit.whole else {})
            for commit in block.commits
        ),
    )
