"""The sites that are followed on one connection, and how readers of a client are fed from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headgate.client import Client
from headgate.client.delivery import RunReader, run_reader
from headgate.client.reader import ReaderMachine, Reading
from headgate.fabric import Fabric
from headgate.fabric.placed import HostFabric
from headgate.fabric.runner import Consumer, LoadTable, Runner
from headgate.fabric.wide import WideFabric
from headgate.gateway.codec import SharedCodec
from headgate.gateway.fed import MemoryRunner, ShowReader, show_all
from headgate.gateway.feed import SiteFeed
from headgate.gateway.memory import MEMORY_BYTES
from headgate.model import Site


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

    def of_site(self, site: Site) -> SiteFeed | None:
        """The feed of a site; None where its inboxes are read from their log."""
        fabric = self._fabric_of(site)
        if fabric is None or (self._sites is not None and site.name not in self._sites):
            return None
        found = self._feeds.get(site.name)
        if found is None:
            found = self._feeds[site.name] = SiteFeed(fabric, self._client.tables, site.name, self._max_bytes)
        return found

    def _fabric_of(self, site: Site) -> Fabric | None:
        """The connection on which the log of a site's inboxes grows, None where it is on a host that is not near.

        Such a log is asked for through the site's relay, which tells nobody that it has grown.
        """
        home = self._client.fabric
        if not site.is_host:
            return home
        near = home.near.get(site.name) if isinstance(home, WideFabric) else None
        return None if near is None else HostFabric(home, near, Path())

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
            feed = self.of_site(reading.snapshot.deployment.sites[reading.site])
            if feed is None:
                return run_reader(reading, fabric, machine, table, consumer)
            return MemoryRunner(feed, show, reading, fabric, machine, table, consumer)

        return run
