"""The dealer of a group as a machine: it reads the group's inbox as its one reader and deals the rows to members.

What all members are done with is acknowledged as any reader does it, with the rows beyond that they are done with, so
that the next dealer deals these to nobody again. A member's acknowledgement is answered when it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.client.errors import ClientError
from headgate.client.reader import ReaderMachine, Reading
from headgate.gateway.dealing import Attendee, Dealing, Rank, Share
from headgate.model import GroupRule
from headgate.protocol.codec import Codec
from headgate.protocol.deals import LONGEST_WAIT_S, Dealt, MemberCall
from headgate.protocol.kernel import Signal
from headgate.protocol.quarantine import Quarantine
from headgate.wire.block import Block
from headgate.wire.ledger import Tally
from headgate.wire.logs import Logs

DEAL: Final = "deal"
PIECE_ROWS: Final = 256
"""Rows of a block that are settled together."""
_STORE_S: Final = 5.0
_AGAIN_S: Final = 0.2
_NOTHING: Final = np.zeros(0, dtype=np.uint64)


class DealerMachine(ReaderMachine):
    """Deals one group until it is closed. It answers `DEAL`, a `MemberCall`, with `Dealt`."""

    def __init__(
        self,
        reading: Reading,
        rule: GroupRule,
        logs: Logs,
        max_payload: int,
        codec: Codec | None = None,
        quarantine: Quarantine | None = None,
        *,
        rank: Rank | None = None,
    ) -> None:
        """`rank` says how well rows suit a member, None where they are dealt in turn."""
        super().__init__(reading, logs, max_payload, codec, quarantine)
        reading.confirming, reading.max_rows = True, PIECE_ROWS
        tally = reading.account.tally
        beyond = [(first, last) for first, last in tally.beyond if last > tally.mark]
        self.dealing = Dealing(rule.lease_s, rank, beyond, tally.mark)
        tally.beyond = []
        self._rule = rule
        self._settled = tally.encode()
        self._room, self._arrived = Signal(self), Signal(self)
        self.serve(DEAL, self._answer_member)
        self.spawn(self._watch(), "leases")

    async def _hand_over(self, block: Block) -> None:
        """Take a block in, and wait until there is room for another one."""
        self.dealing.add(block, self._reading.account.tally.encode(), self._reading.id)
        if not len(block.seqs):
            self._settle()
        self._deal()
        while self.dealing.full:
            self._room.clear()
            await self._room.wait()

    def _pass(self, place: int) -> None:
        """A message cannot be read: its place is acknowledged with what was taken in before it."""
        self._reading.account.tally.inbox = place
        if self.dealing.empty:
            self._settled = self._reading.account.tally.encode()
            self._note()

    def _deal(self) -> None:
        if self.dealing.deal(self.now.monotonic_s):
            self._arrived.set()

    def _settle(self) -> None:
        """Acknowledge what is done."""
        tally = self.dealing.settle()
        if tally is not None:
            self._settled = tally
            self._room.set()
            self._note()

    def _note(self) -> None:
        tally = Tally.decode(self._settled)
        known = self._reading.account.tally
        tally.incarnation, tally.run, tally.time_ms = known.incarnation, known.run, int(self.now.wall_s * 1000)
        tally.beyond = self.dealing.beyond()
        self._reading.acks.note(tally)

    async def _watch(self) -> None:
        """Deal rows again whose members are gone or take too long."""
        while True:
            await self._port.sleep(min(max(self._rule.lease_s / 8, 0.05), 1.0))
            if self.dealing.expire(self.now.monotonic_s):
                self._deal()

    async def _answer_member(self, call: MemberCall) -> Dealt:
        until_s = self.now.monotonic_s + min(max(call.wait_s, 0.0), LONGEST_WAIT_S)
        member = self.dealing.attend(call, {**self._rule.context, **call.context}, self.now.monotonic_s)
        member.asking += 1
        try:
            lost = self.dealing.acknowledge(member, call.done)
            if call.leave:
                self.dealing.leave(call.member)
            if call.done:
                self._settle()
                self._note()
            self._deal()
            stored = not call.done or await self._store_now(max(until_s, self.now.monotonic_s + _STORE_S))
            found = [] if call.leave else await self._rows_of(member, call.turn, until_s)
        except ClientError as error:
            return Dealt(call.turn, _NOTHING, None, stored=False, error=error.message, hint=error.hint, kind=error.kind)
        finally:
            member.asking, member.heard_s = member.asking - 1, self.now.monotonic_s
        return self._dealt(call.turn, found, stored=stored, lost=lost)

    async def _store_now(self, until_s: float) -> bool:
        """Store what is acknowledged; False where nobody knows by then whether it is."""
        acks = self._reading.acks
        while True:
            if acks.taken_over is not None:
                raise acks.taken_over
            try:
                await acks.store()
            except ClientError as error:
                acks.taken_over = error
                raise
            if acks.pending is None:
                return True
            if self.now.monotonic_s >= until_s:
                return False
            await self._port.sleep(_AGAIN_S)

    async def _rows_of(self, member: Attendee, turn: int, until_s: float) -> list[Share]:
        """The rows of a member's turn, as soon as there are any."""
        while True:
            if self._reading.acks.taken_over is not None:
                raise self._reading.acks.taken_over
            if self.dealing.members.get(member.name) is not member:
                return []  # another run of it has come
            found = self.dealing.collect(member, turn, self.now.monotonic_s, self._port.max_payload // 2)
            rest_s = until_s - self.now.monotonic_s
            if found or rest_s <= 0:
                return found
            self._arrived.clear()
            await self._arrived.wait(rest_s)

    def _dealt(self, turn: int, found: list[Share], *, stored: bool, lost: list[int]) -> Dealt:
        notes, self.dealing.notes = tuple(self.dealing.notes), []
        seqs = np.concatenate([block.seqs[indices] for block, indices in found]) if found else _NOTHING
        told: Mapping[str, Any] = {"stored": stored, "lost": tuple(lost), "lease_s": self._rule.lease_s}
        parts = [block.rows.take(pa.array(indices)) for block, indices in found]
        rows = pa.Table.from_batches(parts).combine_chunks().to_batches()[0] if parts else None
        return Dealt(turn, seqs, rows, notes=notes, members=len(self.dealing.members), **told)
