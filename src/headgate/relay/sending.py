"""What goes out: messages of outputs that are due, within the site's bandwidth, each fenced by the one before it."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from headgate.protocol.port import FabricError, FencedError, LogFullError, TooLargeError
from headgate.relay.budget import MESSAGE_S
from headgate.relay.core import NO_ROOM, Key, Room, Send
from headgate.relay.output import Output
from headgate.relay.routes import Receiver
from headgate.relay.state import SiteState
from headgate.wire.block import Block
from headgate.wire.sizes import fenced_size

TICK_S: Final = 0.02
"""Outputs are looked at so often at most; after a pause at once."""
_ROWS: Final = 20_000
_ROW_BYTES: Final = 64.0  # of a row on a link that has not carried any yet
_HEAVY_ROWS: Final = 5_000
_ANSWERS: Final = 2.0  # a message takes the link for so many times as long as an answer takes
_MOST_S: Final = 0.2
# Of so many messages on a link one is so much smaller: from how much sooner it comes its receiver sees the link's rate.
_SMALL_EACH: Final = 8
_SMALLER: Final = 4
_IN_FLIGHT: Final = 256  # messages to inboxes; with more of them everything else that waits for the server starves


class Sending:
    """The publishing side of one relay."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self._retry_at: dict[Key, float] = {}
        self._row_bytes: dict[Key, float] = {}
        self._answer_s: dict[Key, float] = {}
        self._sent: dict[Key, int] = {}
        self._in_flight = 0

    async def run(self) -> None:
        """Publish what is due; sleep while nothing is."""
        state, looked_s = self._state, 0.0
        while True:
            state.waiting.clear()
            looked_s = state.port.now
            # Each message is paid for before the next output is asked, so that it sees what is left.
            free = max(_IN_FLIGHT - self._in_flight, 0)
            for send in state.core.sends(state.port.now, self._room, free):
                self._in_flight += send.key.child is None
                self._pay(send, send.charge)
                state.port.machine.spawn(self._publish(send), f"publish on {send.key.token}")
            pause_s = state.core.wake_in(state.port.now, TICK_S) if self._in_flight < _IN_FLIGHT else None
            if pause_s is None or pause_s > TICK_S:
                await state.waiting.wait(pause_s)
            await state.port.sleep(looked_s + TICK_S - state.port.now)

    def _room(self, key: Key, output: Output) -> Room:
        """What an output may send now."""
        state, now = self._state, self._state.port.now
        if output.stalled and now < self._retry_at.get(key, 0.0):
            return NO_ROOM
        if key.child is None or state.budgets is None:
            return Room(_ROWS)
        if not state.budgets.ready(state.site, key.child, now):
            return Room(0, narrow=state.budgets.narrow(state.site, key.child, now))
        rate = state.budgets.rate(state.site, key.child)
        if rate is None:
            return Room(_ROWS)
        row_bytes = self._row_bytes.get(key, _ROW_BYTES)
        rows = max(int(rate * self._message_s(key) / row_bytes), 1)
        if self._sent.get(key, 0) % _SMALL_EACH == 0:
            rows = max(rows // _SMALLER, 1)
        return Room(rows, row_bytes, shared=True)

    def _message_s(self, key: Key) -> float:
        """How much of a link's time the next message may take: more where the last ones were answered late.

        One message is on its way at a time, so one that is sent faster than it is answered would leave the link idle.
        """
        return min(max(MESSAGE_S, _ANSWERS * self._answer_s.get(key, 0.0)), _MOST_S)

    def _pay(self, send: Send, size: float) -> None:
        state = self._state
        if send.key.child is not None and state.budgets is not None:
            state.budgets.spend(state.site, send.key.child, size, state.port.now)

    async def _publish(self, send: Send) -> None:
        """Append one message, and let the next one go when there were too many on their way."""
        await self._append(send)
        self._in_flight -= send.key.child is None
        self._state.waiting.set()

    async def _append(self, send: Send) -> None:
        """Append one message, and tell its output what became of it."""
        state, key, output = self._state, send.key, self._state.core.outputs[send.key]
        subject = state.subject(key)
        data = await self._encode(send)
        size = fenced_size(subject, state.port.codec.size(data), send.expect)
        self._pay(send, size - send.charge)
        state.core.settle(send, size)
        began = state.port.now
        try:
            sequence = await state.port.publish(subject, data, expect=send.expect)
        except LogFullError:
            state.totals.refused += 1
            self._pay(send, -size)
            output.refused()
            self._retry_at[key] = state.port.now + state.stall_s
        except TooLargeError:
            state.totals.oversize += 1
            self._pay(send, -size)
            output.too_large()
        except FabricError as error:
            # Stored or not, and by whom, is in the log: go on from its tail.
            state.totals.failures += 1
            state.resume(key, output, *await state.tail(key))
            if not isinstance(error, FencedError):
                await state.port.sleep(state.stall_s)
        else:
            if key.child is not None:
                took_s = state.port.now - began
                state.meters.sent.note(key.child, took_s / 2)
                self._answer_s[key] = 0.8 * self._answer_s.get(key, took_s) + 0.2 * took_s
            output.published(sequence)
            output.tail_bytes = size
            self._count(key, send.block, size)

    async def _encode(self, send: Send) -> Any:
        state, target = self._state, self._state.targets[send.key]
        as_json = isinstance(target, Receiver) and target.subscription.format == "json"
        codec = state.port.codec
        make = partial(codec.encode, send.block, as_json=as_json)
        if len(send.block.seqs) > _HEAVY_ROWS:
            return await state.port.work(make)
        if send.key.child is not None:
            return make()
        return state.core.shared.encode(send.block, as_json=as_json, make=make, size=codec.size)

    def _count(self, key: Key, block: Block, size: int) -> None:
        totals = self._state.totals
        totals.messages += 1
        totals.rows += len(block.seqs)
        if key.child is None:
            totals.inbox_bytes += size
            totals.inbox_messages += 1
            return
        self._sent[key] = self._sent.get(key, 0) + 1
        link = f"{key.stream}:{key.child}"
        totals.link_bytes[link] = totals.link_bytes.get(link, 0) + size
        totals.link_messages[link] = totals.link_messages.get(link, 0) + 1
        totals.link_rows[link] = totals.link_rows.get(link, 0) + len(block.seqs)
        if len(block.seqs):
            seen = self._row_bytes.get(key, size / len(block.seqs))
            self._row_bytes[key] = 0.8 * seen + 0.2 * size / len(block.seqs)
