"""The thread that works with the catalog, so that the event loop never waits for a database.

Relays, books and answers to other requests share one event loop with the service. A catalog that is locked, or a plan
that takes a second to make, must not stop them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headgate.catalog import Catalog

T = TypeVar("T")


class Clerk:
    """Does one piece of work with the catalog after another, in a thread of its own."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headgate-catalog")

    async def run(self, work: Callable[[Catalog], T]) -> T:
        """Let the thread do something with the catalog, and wait for it.

        Whoever is cancelled while waiting does not stop the work: a transaction is finished or undone as a whole.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self.catalog)

    async def close(self) -> None:
        """Wait until what was begun is done; nothing may come after."""
        await asyncio.to_thread(self._thread.shutdown)
