"""Changes of the catalog that follow from what relays and jobs report, made again and again while a deployment runs."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Fabric
from headgate.service.reshaping import MakeChange
from headgate.wire.snapshot import Snapshot


class ReportWatch(ABC):
    """Looks at reports every `every_s` seconds. A look that fails is noted as `later`, and made again."""

    every_s: ClassVar[float]
    later: ClassVar[str]

    def __init__(self, fabric: Fabric, current: Callable[[], Snapshot], make: MakeChange) -> None:
        """`current` is the catalog in force, `make` makes a change of it."""
        self._fabric = fabric
        self._current = current
        self._make = make

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            with noted(SERVICE, self.later, HeadgateError):
                await self.look()
            await asyncio.sleep(self.every_s)

    @abstractmethod
    async def look(self) -> object:
        """Change what the newest reports are about; what was changed."""
