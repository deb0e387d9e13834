"""The relays that run in one process: one of each of its sites, with the rights of that site alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from headgate.fabric import Fabric
from headgate.model import Deployment
from headgate.relay.budget import Budgets
from headgate.relay.node import RelayNode
from headgate.relay.tables import Tables
from headgate.relay.unit_node import UnitNode
from headgate.replicas.node import ReplicaNode
from headgate.service.settings import Settings

Spawn = Callable[[Coroutine[Any, Any, None], str], object]


class SiteConnections(Protocol):
    """Makes connections that may do what the relay of a site may."""

    async def connect(self, url: str, site: str, **options: Any) -> Fabric:
        """A connection as the relay of a site."""


class Relays:
    """Starts relays, and closes their connections at the end. Their tasks belong to whoever spawns them."""

    def __init__(
        self,
        settings: Settings,
        fabric: Fabric,
        tables: Tables,
        roles: SiteConnections | None,
        url: str,
        *,
        mine: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`fabric` is the service's own connection, which relays share where roles cannot be given.

        `mine` says which sites' relays are run here.
        """
        self._mine = mine
        self._settings = settings
        self._fabric = fabric
        self._tables = tables
        self._roles = roles
        self._url = url
        self._budgets: Budgets | None = None
        self._connections: list[Fabric] = []
        self.nodes: dict[str, RelayNode] = {}
        self.parts: dict[str, ReplicaNode] = {}
        self._units: set[str] = set()

    async def follow(self, deployment: Deployment, spawn: Spawn) -> None:
        """Run the relays of sites that have none yet; one that is a host of its own runs there.

        Where the tuner owns the plan each gets its part of the tuner beside it.
        """
        if self._budgets is None:
            self._budgets = Budgets(deployment)
        new = [name for name, site in deployment.sites.items() if name not in self.nodes and not site.is_host]
        sites = [name for name in new if self._mine(name)]
        links = self._settings.links
        for site, fabric in zip(sites, await asyncio.gather(*map(self._connect, sites)), strict=True):
            node = self.nodes[site] = RelayNode(
                links(fabric, self._tables, site) if links else fabric,
                site,
                tables=self._tables,
                budgets=self._budgets,
                limits=self._settings.limits,
                connecting=self._settings.nats_options,
            )
            spawn(node.run(), f"relay {site}")
            options = self._settings.nats_options
            parts = ReplicaNode(fabric, site, self._tables, reading=self._fabric, connecting=options)
            self.parts[site] = parts
            spawn(parts.run(), f"parts {site}")
        if deployment.tuned:
            for site in self.nodes.keys() - self._units:
                self._units.add(site)
                spawn(UnitNode(self.nodes[site].fabric, site, self._tables).run(), f"unit {site}")

    async def _connect(self, site: str) -> Fabric:
        if self._roles is None:
            return self._fabric
        fabric = await self._roles.connect(self._url, site, **self._settings.nats_options)
        fabric.quarantine, fabric.codec = self._fabric.quarantine, self._fabric.codec
        self._connections.append(fabric)
        return fabric

    async def close(self) -> None:
        """Close the connections of sites."""
        for connection in self._connections:
            await connection.close()
