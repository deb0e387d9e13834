"""Versions that a relay may still publish although no log behind it names them.

What a relay has in its queues lies in its site log until it is settled, and that log names the versions. Ranges that it
asked its parent for again are in memory only, and the parent may let go of them meanwhile. So the relay states their
versions before it takes them in, and then looks whether one of them is about to be deleted: either the service sees the
statement before it deletes, or the relay sees the intention, and drops the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headgate.protocol.port import FabricError, LogPort
from headgate.protocol.records import Holds, Purging
from headgate.wire.frame import WireError


async def read_purging(port: LogPort) -> frozenset[int]:
    """The versions that are about to be deleted. An announcement that cannot be read may name any: it is an error."""
    stored = await port.last(port.logs.state, port.logs.purging)
    if stored is None:
        return frozenset()
    try:
        return frozenset(Purging.decode(stored.data).versions)
    except WireError as error:
        place = f"{port.logs.state.name}, {stored.subject}, sequence {stored.sequence}"
        raise FabricError(f"which versions of the catalog go cannot be read ({place}): {error}") from error


class HeldRanges:
    """One site's statement: by stream and version, the end of the range that is held."""

    def __init__(self, port: LogPort, site: str) -> None:
        self._port = port
        self._subject = port.logs.hold(site)
        self._held: dict[str, dict[int, int]] = {}

    async def begin(self) -> None:
        """Take back what an earlier run of this relay stated: its memory is gone, and it will ask again."""
        stored = await self._port.last(self._port.logs.state, self._subject)
        if stored is not None and not self._held:
            await self._store()

    async def take(self, stream: str, ends: Mapping[int, int]) -> bool:
        """State versions with the ends of their ranges; False when one of them cannot be taken any more."""
        port, mine = self._port, self._held.setdefault(stream, {})
        before = dict(mine)
        for version, upto in ends.items():
            mine[version] = max(upto, mine.get(version, 0))
        await self._store()
        going = await read_purging(port)
        for version in ends:
            if version in going or await port.last(port.logs.tables, port.logs.table(version)) is None:
                self._held[stream] = before
                await self._store()
                return False
        return True

    async def release(self, passed: Callable[[str], int]) -> None:
        """Take back the statement about everything that the outputs' own logs have by now."""
        ends = {stream: passed(stream) for stream in self._held}
        left = {
            stream: {version: upto for version, upto in held.items() if upto > ends[stream]}
            for stream, held in self._held.items()
        }
        left = {stream: held for stream, held in left.items() if held}
        if left != self._held:
            self._held = left
            await self._store()

    async def _store(self) -> None:
        await self._port.publish(self._subject, Holds(versions=self._held).encode())
