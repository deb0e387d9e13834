"""Putting the announcement of the newest revision right when somebody has published garbage over it."""

from __future__ import annotations

from typing import Final

from headgate.protocol.codec import Codec
from headgate.protocol.kernel import Machine
from headgate.protocol.port import FabricError, FencedError, LogPort, MachinePort
from headgate.protocol.published import head_revision
from headgate.protocol.quarantine import Quarantine
from headgate.wire.logs import Logs
from headgate.wire.sealed import read_number, write_number

_RETRY_S: Final = 1.0


async def mend_head(port: LogPort) -> None:
    """Follow the announcements for ever; one that is garbage, or that goes back, is replaced by the newest."""
    logs, newest, place = port.logs, 0, 0
    while True:
        stored = (await port.next(logs.state, logs.head, place))[-1]
        place = stored.sequence
        try:
            said = port.quarantine.take(logs.state, stored, read_number, "announced again")
            there = await head_revision(port)
            newest = max(newest, there or 0)
            if newest and said != newest:
                await port.publish(logs.head, write_number(newest), expect=stored.sequence)
        except FencedError:
            continue  # a newer announcement was made meanwhile, and comes next
        except FabricError:  # nobody knows what was done: look at it again
            place = 0
            await port.sleep(_RETRY_S)


class HeadMachine(Machine):
    """Who keeps the announcement right, as a machine."""

    def __init__(
        self,
        logs: Logs,
        *,
        max_payload: int = 8 << 20,
        codec: Codec | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        super().__init__("head")
        self.spawn(mend_head(MachinePort(self, logs, max_payload, codec, quarantine)), "follow")
