"""The sites that are followed on one connection, and how readers of a client are fed from them."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.client import Client
from headgate.client.delivery import RunReader, run_reader
from headgate.client.reader import ReaderMachine, Reading
from headgate.fabric import Fabric
from headgate.fabric.runner import Consumer, LoadTable, Runner
from headgate.gateway.codec import SharedCodec
from headgate.gateway.fed import MemoryRunner, ShowReader, show_all
from headgate.gateway.feed import SiteFeed
from headgate.gateway.memory import MEMORY_BYTES


class Feeds:
    """The sites that readers of this process read at; each is followed from its first reader on."""

    def __init__(self, client: Client, sites: tuple[str, ...] | None = None, max_bytes: int = MEMORY_BYTES) -> None:
        """`sites` are those that may be followed, all where None; inboxes of others are read from their logs."""
        self._client = client
        self._sites = sites
        self._max_bytes = max_bytes
        self._feeds: dict[str, SiteFeed] = {}
        self._codec = SharedCodec()

    def adopt(self, client: Client, show: ShowReader = show_all) -> None:
        """Feed the readers of a client from here; `show` says what they may see of it."""
        client.fabric.codec = self._codec
        client.run_reader = self._runs(show)

    def of_site(self, site: str) -> SiteFeed | None:
        """The feed of a site; None where it is read from its log."""
        if self._sites is not None and site not in self._sites:
            return None
        found = self._feeds.get(site)
        if found is None:
            client = self._client
            found = self._feeds[site] = SiteFeed(client.fabric, client.tables, site, self._max_bytes)
        return found

    @property
    def figures(self) -> Mapping[str, Mapping[str, int]]:
        """By site, how many read there and how much memory holds."""
        return {site: {"readers": feed.readers, "bytes": feed.memory.bytes} for site, feed in self._feeds.items()}

    async def close(self) -> None:
        """Follow nothing any more."""
        for feed in self._feeds.values():
            await feed.close()

    def _runs(self, show: ShowReader) -> RunReader:
        def run(
            reading: Reading, fabric: Fabric, machine: ReaderMachine, table: LoadTable, consumer: Consumer
        ) -> Runner:
            feed = self.of_site(reading.site)
            if feed is None:
                return run_reader(reading, fabric, machine, table, consumer)
            return MemoryRunner(feed, show, reading, fabric, machine, table, consumer)

        return run
