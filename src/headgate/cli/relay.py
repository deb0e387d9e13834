"""`headgate relay`: run one site of a deployment, on its own server where it has one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from headgate.cli import options as o
from headgate.cli.stopping import Teller, first_of, stopping
from headgate.client import Client
from headgate.diagnostics import configure
from headgate.errors import HeadgateError, nearest
from headgate.fabric import Fabric, cancel_all, keep_quarantine
from headgate.fabric.address import split_listen
from headgate.fabric.environment import nats_options
from headgate.fabric.listening import Listening
from headgate.fabric.membership import server_directory
from headgate.fabric.place import HOST
from headgate.fabric.vitals import freeze_startup, keep_vitals
from headgate.wire.identity import DEPLOYMENT_KEY
from headgate.wire.logs import Logs

if TYPE_CHECKING:
    from headgate.model import Site
    from headgate.wire.snapshot import Snapshot

Listen = Annotated[
    str | None, typer.Option(help="Where the site's own NATS listens, HOST:PORT; default: at its address.")
]
Certificate = Annotated[Path | None, typer.Option(help="Certificate (PEM) of the site's own NATS.")]
Key = Annotated[Path | None, typer.Option(help="Its key (PEM).")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("relay")(relay)


@dataclass(frozen=True)
class HostPlace:
    """Where a site's own server is kept, where it listens and by which certificate, and how parents are dialled."""

    state_dir: Path
    listen: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def listening(self, site: Site) -> Listening:
        """Where the server of a site takes connections: at its address, which others dial, or as was asked for."""
        address = urlsplit(site.dialled_at or f"nats://{HOST}")
        if address.scheme == "tls" and self.certificate is None:
            raise HeadgateError(
                f"site {site.name!r} is at {site.nats}, and there is no certificate for it",
                hint="give --tls-cert and --tls-key; on a private network write nats:// and set HEADGATE_PLAIN_NATS=1",
            )
        host, port = split_listen(self.listen) if self.listen else (address.hostname or HOST, address.port)
        plain = os.environ.get("HEADGATE_PLAIN_NATS", "").lower() in ("1", "true")
        return Listening(host, port, self.certificate, self.key, plain=plain)


def relay(
    site: Annotated[str, typer.Option(help="The site whose relay this is.")],
    at: o.ConnectionOptions = o.HERE,
    listen: Listen = None,
    tls_cert: Certificate = None,
    tls_key: Key = None,
    logs: o.Logging = o.WARNINGS,
    trace: Annotated[
        bool, typer.Option("--trace", help="Print every event that the relay takes in and every command it gives.")
    ] = False,
) -> None:
    """Run one site's relay alone, with the site's own NATS server where it has an address in the deployment file.

    `headgate up` runs the relays of sites without an address; start it with --no-relays to run them by this command.
    """
    configure(logs.log_level, logs.log_format)
    connecting = _as_site(site, at)
    place = HostPlace(at.state_dir, listen, tls_cert, tls_key, nats_options(None))
    asyncio.run(run_relay(site, connecting, place, Teller(logs.log_format), trace=trace))


async def _as_site(site: str, at: o.ConnectionOptions) -> Client:
    """A connection with the rights of a site: by its credentials, or by the keys of a server on this machine."""
    from headgate.client.connection import find_url
    from headgate.fabric.address import directory_of
    from headgate.fabric.connecting import join
    from headgate.fabric.rolebook import RoleBook
    from headgate.fabric.rolekeys import has_keys, site_credentials

    url = find_url(at.nats, at.state_dir)
    directory = directory_of(url)
    if at.creds is not None or directory is None or not has_keys(directory):
        return await at.connect()
    chapter = RoleBook.read(directory).chapters.get(at.namespace)
    if chapter is not None and site not in chapter.sites:
        raise _no_site(site, chapter.sites)
    credentials = site_credentials(directory, at.namespace, site)
    return Client(await join(url, Logs(at.namespace), credentials, **nats_options(None)))


def _no_site(site: str, known: Iterable[str]) -> HeadgateError:
    close = nearest(site, known)
    return HeadgateError(f"no site {site!r}", hint=f"did you mean {close!r}?" if close else None)


@asynccontextmanager
async def _site_fabric(home: Fabric, site: str, snapshot: Snapshot, place: HostPlace) -> AsyncIterator[Fabric]:
    """The connection of a site's relay: to home alone, or also to the site's own server, which is started."""
    from headgate.relay.hosted import open_host

    found = snapshot.deployment.sites[site]
    if not found.is_host:
        yield home
        return
    async with open_host(
        home, site, server_directory(place.state_dir, site), place.listening(found), snapshot
    ) as fabric:
        yield fabric


async def run_relay(
    site: str, connecting: Awaitable[Client], place: HostPlace, tell: Teller, *, trace: bool = False
) -> None:
    """Run the relay of a site until stopped."""
    from headgate.protocol.trace import Trace
    from headgate.relay.node import RelayNode
    from headgate.relay.unit_node import UnitNode
    from headgate.replicas.node import ReplicaNode

    async with await connecting as client:
        snapshot = await client.snapshot()
        if site not in snapshot.deployment.sites:
            raise _no_site(site, snapshot.deployment.sites)
        home = client.fabric
        home.marks = {DEPLOYMENT_KEY: snapshot.identity.deployment}
        tracer = Trace(keep=0, echo=typer.echo) if trace else None
        stop = stopping()
        async with _site_fabric(home, site, snapshot, place) as fabric:
            relay = RelayNode(fabric, site, tracer=tracer, connecting=place.options)
            node = asyncio.create_task(relay.run())
            unit = asyncio.create_task(UnitNode(fabric, site, relay.tables).run())
            parts = asyncio.create_task(ReplicaNode(fabric, site, relay.tables, connecting=place.options).run())
            aside = asyncio.create_task(keep_quarantine(home, f"relay-{site}"))
            freeze_startup()
            vitals = asyncio.create_task(keep_vitals(home, f"relay-{site}"))
            where = snapshot.deployment.sites[site].nats
            tell(f"relay {site} is up" + (f", its server at {where}" if where else ""))
            await first_of(stop, node)
            if node.done():
                await node
            await cancel_all([node, unit, parts, aside, vitals])
