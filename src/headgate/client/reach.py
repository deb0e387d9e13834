"""Asking sites that serve parts of gridded streams: at their own server where they have one, else through home."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from headgate.diagnostics import CLIENT, noted
from headgate.fabric import Fabric, FabricError, NoAnswerError
from headgate.fabric.connecting import join
from headgate.fabric.keys import KeyPair
from headgate.fabric.placed import HostFabric
from headgate.fabric.roled import RoleCredentials
from headgate.fabric.wide import WideFabric
from headgate.protocol.records import Entered, EntryRequest
from headgate.relay.tables import Tables
from headgate.wire.snapshot import Snapshot

_CONNECT_S: Final = 5.0


class PartsReach:
    """Connections of one asker to the servers of sites; home's is the asker's own.

    A site with an address is dialled: it is asked through home to let the asker in, for a key that is made here. One
    that cannot be dialled is asked through home.
    """

    def __init__(
        self, fabric: Fabric, tables: Tables, asker: str, options: Mapping[str, Any] | None = None, home: str = ""
    ) -> None:
        """`home` is the site that the asker itself is, if it is one. `options` are those of connections."""
        self._home = fabric.home if isinstance(fabric, HostFabric) else fabric
        self._near = dict(fabric.near) if isinstance(fabric, WideFabric) else {}
        self._tables = tables
        self._asker = asker
        self._site = home
        self._options = dict(options or {})
        self._dialled: dict[str, Fabric] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def ask(self, site: str, data: bytes, timeout_s: float, *, by_home: bool = False) -> bytes:
        """The answer of a site; with `by_home` the way through home is taken although there may be a shorter one."""
        fabric = self._home if by_home else await self._at(site)
        try:
            return await fabric.request(fabric.logs.grid(site, self._asker), data, timeout_s)
        except NoAnswerError:
            raise
        except FabricError:
            await self._forget(site, fabric)
            raise

    async def newest(self) -> Snapshot:
        """The revision in force."""
        return await self._tables.newest()

    async def close(self) -> None:
        """End the connections that were made here."""
        for each in list(self._dialled.values()):
            await each.close()
        self._dialled.clear()

    async def _forget(self, site: str, fabric: Fabric) -> None:
        if self._dialled.get(site) is fabric:
            del self._dialled[site]
            with noted(CLIENT, f"the connection to {site} was broken already", FabricError):
                await fabric.close()

    async def _at(self, site: str) -> Fabric:
        """The connection by which a site is asked."""
        if site in self._near:
            return self._near[site]
        found = (await self._tables.newest()).deployment.sites.get(site)
        address = None if found is None or site == self._site else found.dialled_at
        if address is None:
            return self._home
        async with self._locks.setdefault(site, asyncio.Lock()):
            if site not in self._dialled:
                self._dialled[site] = await self._dial(site, address)
            return self._dialled[site]

    async def _dial(self, site: str, address: str) -> Fabric:
        logs, pair = self._home.logs, KeyPair.new("user")
        asked = EntryRequest(key=pair.public, grid=True).encode()
        answer = Entered.decode(await self._home.request(logs.entered(site, self._asker), asked, _CONNECT_S))
        options = dict(self._options)
        if answer.fingerprint:
            options["tls_fingerprint"] = answer.fingerprint
        return await join(address, logs, RoleCredentials(answer.statement, pair), **options)
