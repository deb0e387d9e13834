"""A member of a group: rows of a group subscription, each of which goes to one member alone."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.client.errors import ClientError
from headgate.diagnostics import CLIENT, noted
from headgate.fabric import Fabric, FabricError
from headgate.protocol.deals import Dealt, GivenUp, MemberCall
from headgate.wire.frame import WireError

_WAIT_S: Final = 5.0
_ANSWER_S: Final = 20.0
_AGAIN_S: Final = 0.5
_PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class MemberDelivery:
    """Rows that are this member's for `lease_s`, in the order of their sequence numbers.

    `notes` say what was given up of the group's rows, by reason and range; one member hears of it.
    """

    rows: pa.RecordBatch
    seqs: npt.NDArray[np.uint64]
    lease_s: float
    notes: tuple[GivenUp, ...] = ()

    def __len__(self) -> int:
        return len(self.seqs)

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        found: list[dict[str, Any]] = self.rows.to_pylist()
        return found


def new_member() -> str:
    """A name for a member that was given none: the host, the process, and a chance."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"[:128]


class GroupMember:
    """One member of a group: iterate over it. Use it as an async context manager, so that it says when it leaves.

    A delivery is done when the loop asks for the next one, or when `done` is called: its rows are acknowledged with the
    next question. Rows of a member that leaves, is not heard of, or takes longer than the lease for them go to another
    one. `lost` counts rows that were acknowledged too late: another member had them by then.
    """

    def __init__(
        self, fabric: Fabric, name: str, member: str | None = None, *, context: Mapping[str, Any], max_rows: int
    ) -> None:
        """Made by `Client.join`."""
        self.name = name
        self.member = member or new_member()
        self.context = dict(context)
        """Its values for the group's `deal`; a change holds from the next question on."""
        self.max_rows = max_rows
        self.lost = 0
        self._fabric = fabric
        self._session = secrets.token_hex(8)
        self._turn = 0
        self._held: tuple[int, ...] = ()
        self._done: tuple[int, ...] = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with noted(CLIENT, "the group hears later that a member has left", ClientError, FabricError):
            await self.leave()

    def done(self) -> None:
        """Say that the last delivery was dealt with."""
        self._done, self._held = (*self._done, *self._held), ()

    async def __aiter__(self) -> AsyncIterator[MemberDelivery]:
        while True:
            found = await self.next()
            if found is not None:
                yield found

    async def next(self, wait_s: float = _WAIT_S) -> MemberDelivery | None:
        """The next rows, None where none came in that time. What came before counts as done."""
        self.done()
        self._turn += 1
        found = await self._ask(wait_s=wait_s)
        self._held = tuple(found.seqs.tolist())
        if found.rows is None:
            if not found.notes:
                return None
            return MemberDelivery(pa.RecordBatch.from_pylist([]), found.seqs, found.lease_s, found.notes)
        return MemberDelivery(found.rows, found.seqs, found.lease_s, found.notes)

    async def leave(self) -> None:
        """Go: what is done is acknowledged, what is not goes to other members."""
        self._turn += 1
        found = await self._ask(wait_s=0.0, leave=True)
        if not found.stored:
            raise ClientError(f"what member {self.member!r} of {self.name!r} has done could not be acknowledged")

    async def _ask(self, *, wait_s: float, leave: bool = False) -> Dealt:
        """Ask until there is an answer: the same question gets the same rows."""
        call = MemberCall(
            name=self.name,
            member=self.member,
            session=self._session,
            turn=self._turn,
            room=self.max_rows,
            done=list(self._done),
            context=self.context,
            wait_s=wait_s,
            leave=leave,
        )
        loop = asyncio.get_running_loop()
        given_up_s = loop.time() + _PATIENCE_S
        while True:
            try:
                data = await self._fabric.request(self._fabric.logs.control("deal"), call.encode(), wait_s + _ANSWER_S)
                found = Dealt.decode(data)
            except (FabricError, WireError) as error:
                if loop.time() > given_up_s or leave:
                    raise ClientError(
                        f"nobody deals the rows of {self.name!r}: {error}",
                        hint="is the deployment up?",
                        kind="unavailable",
                    ) from error
                CLIENT.debug("rows are asked for again: %s", error)
                await asyncio.sleep(_AGAIN_S)
                continue
            if found.error:
                raise ClientError(found.error, hint=found.hint, kind=found.kind or None)
            self.lost += len(found.lost)
            if found.stored:
                self._done = ()
            return found
