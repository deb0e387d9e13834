"""Versions that a relay may still publish although no log behind it names them.

What a relay has in its queues lies in its site log until it is settled, and that log names the versions. Ranges that it
asked its parent for again are in memory only, and the parent may let go of them meanwhile. So the relay states their
versions before it takes them in, and then looks whether one of them is about to be deleted: either the service sees the
statement before it deletes, or the relay sees the intention, and drops the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from headgate.fabric import Fabric


async def read_purging(fabric: Fabric) -> frozenset[int]:
    """The versions that are about to be deleted."""
    stored = await fabric.last(fabric.logs.state, fabric.logs.purging)
    return frozenset() if stored is None else frozenset(json.loads(stored.data))


class Holds:
    """One site's statement: by stream and version, the end of the range that is held."""

    def __init__(self, fabric: Fabric, site: str) -> None:
        self._fabric = fabric
        self._subject = fabric.logs.hold(site)
        self._held: dict[str, dict[int, int]] = {}

    async def begin(self) -> None:
        """Take back what an earlier run of this relay stated: its memory is gone, and it will ask again."""
        stored = await self._fabric.last(self._fabric.logs.state, self._subject)
        if stored is not None and not self._held and decode_holds(stored.data):
            await self._store()

    async def take(self, stream: str, ends: Mapping[int, int]) -> bool:
        """State versions with the ends of their ranges; False when one of them cannot be taken any more."""
        logs, mine = self._fabric.logs, self._held.setdefault(stream, {})
        before = dict(mine)
        for version, upto in ends.items():
            mine[version] = max(upto, mine.get(version, 0))
        await self._store()
        going = await read_purging(self._fabric)
        for version in ends:
            if version in going or await self._fabric.last(logs.tables, logs.table(version)) is None:
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
        await self._fabric.publish(self._subject, json.dumps(self._held).encode())


def decode_holds(data: bytes) -> dict[str, dict[int, int]]:
    """A stored statement."""
    return {
        stream: {int(version): int(upto) for version, upto in held.items()} for stream, held in json.loads(data).items()
    }
