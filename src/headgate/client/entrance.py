"""Where rows are published into a stream."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.client.errors import ClientError
from headgate.client.lineage_check import check_input
from headgate.client.names import suggest
from headgate.client.publishing import check_published
from headgate.fabric import Fabric
from headgate.fabric.gated import GatedFabric
from headgate.model import Stream
from headgate.wire.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where rows are published into a stream: a connection and its subjects. `site` is None at the stream's own input.

    At a site, rows are stored in the site's outbox, and go up to the root from there.
    """

    fabric: Fabric
    rows: str
    unsent: str
    site: str | None = None

    @classmethod
    def at_home(cls, fabric: Fabric, stream: str) -> Entrance:
        """The input of the stream itself."""
        return cls(fabric, fabric.logs.published(stream), fabric.logs.unsent(stream))

    @classmethod
    def at_site(cls, fabric: Fabric, stream: str, site: str) -> Entrance:
        """The outbox of a site, at the server that has it."""
        return cls(fabric, fabric.logs.published_at(site, stream), fabric.logs.unsent_at(site, stream), site)


async def open_entrance(fabric: Fabric, snapshot: Snapshot, name: str, site: str | None) -> tuple[Stream, Entrance]:
    """A stream that is to be published into, and where; refused where that is not the deployment's own."""
    streams, sites = snapshot.deployment.streams, snapshot.deployment.sites
    if name not in streams:
        raise ClientError(f"no stream {name!r}", hint=suggest(name, streams), kind="unknown")
    check_published(streams[name].source, name)
    gated = isinstance(fabric, GatedFabric)  # the server tells a user what it may do
    if site is None:
        if not gated:
            await check_input(fabric, name, snapshot.identity)
        return streams[name], Entrance.at_home(fabric, name)
    near = fabric.near.get(site)
    if near is None and not gated and site not in sites:
        raise ClientError(f"no site {site!r}", hint=suggest(site, sites), kind="unknown")
    if near is None and not gated and sites[site].is_host:
        raise ClientError(
            f"the site {site!r} is a host of its own, and this client is not connected to its server",
            hint=f"publish there, with the state directory of {site!r}, or without a site",
            kind="conflict",
        )
    return streams[name], Entrance.at_site(near or fabric, name, site)
