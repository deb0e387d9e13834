"""Waiting for something to be published, on behalf of somebody who may not listen: a count for each subject.

Whoever waits says which counts it has seen and is answered as soon as one of them is another, so that nothing that
happens between two questions is missed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from headgate.diagnostics import SERVICE, noted
from headgate.fabric import Fabric, FabricError

_KEPT_S: Final = 60.0


class _Heard(asyncio.Event):
    """One subject: how often something came, and who waits for it to come again."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.asked_s = 0.0
        self.end: Callable[[], Awaitable[None]] | None = None
        self.waiting: set[asyncio.Event] = set()

    def set(self) -> None:
        self.count += 1
        for event in self.waiting:
            event.set()


class Hints:
    """Subjects that are listened to while somebody asks for them, and for a minute after."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._heard: dict[str, _Heard] = {}
        self._opening = asyncio.Lock()

    async def wait(self, seen: Mapping[str, int | None], timeout_s: float) -> dict[str, int]:
        """The counts of subjects, as soon as one differs from what was seen, or after a while."""
        heard = {subject: await self._listen(subject) for subject in seen}
        woken = asyncio.Event()
        for each in heard.values():
            each.waiting.add(woken)
        try:
            if all(heard[subject].count == count for subject, count in seen.items()):
                async with asyncio.timeout(timeout_s):
                    await woken.wait()
        except TimeoutError:
            SERVICE.debug("nothing came on %d subjects for %g s", len(seen), timeout_s)
        finally:
            for each in heard.values():
                each.waiting.discard(woken)
        return {subject: each.count for subject, each in heard.items()}

    async def _listen(self, subject: str) -> _Heard:
        async with self._opening:
            heard = self._heard.get(subject)
            if heard is None:
                heard = _Heard()
                heard.end = await self._fabric.listen(subject, heard)
                self._heard[subject] = heard
            heard.asked_s = time.monotonic()
            return heard

    async def sweep(self) -> None:
        """Listen no more to what nobody has asked for lately."""
        late_s = time.monotonic() - _KEPT_S
        for subject in [each for each, heard in self._heard.items() if heard.asked_s < late_s and not heard.waiting]:
            heard = self._heard.pop(subject)
            with noted(SERVICE, "a subject is listened to for longer than needed", FabricError):
                if heard.end is not None:
                    await heard.end()
