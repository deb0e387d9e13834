"""`headgate gateway`: serve the readers of one site over HTTP, in a process of its own."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli import options as o
from headgate.cli.stopping import Teller, first_of, stopping
from headgate.diagnostics import configure
from headgate.errors import HeadgateError, nearest
from headgate.model import parse_bytes


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gateway")(gateway)


def gateway(
    site: Annotated[str, typer.Option(help="The site whose subscriptions are served.")],
    http: Annotated[
        str | None, typer.Option("--http", help="Where to listen, as HOST:PORT; default: a free port of 127.0.0.1.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM), to serve by TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(help="Certificates (PEM) of the authority that readers' certificates need.")
    ] = None,
    memory: Annotated[str, typer.Option(help="How much of what came lately is held for readers.")] = "64 MiB",
    at: o.ConnectionOptions = o.HERE,
    logs: o.Logging = o.WARNINGS,
) -> None:
    """Serve many readers of a site's subscriptions by server-sent events and web sockets, from one reading of its log.

    `headgate up` serves readers of all sites in the process of its HTTP API. Run gateways beside it where one process
    is not enough, or where a site has thousands of readers: start one, several for one site, or one on each host of a
    site, and let readers connect to it instead. The addresses are those of the HTTP API:

    curl -N -H "Authorization: Bearer $(headgate login --token)" http://HOST:PORT/api/subscriptions/NAME/events

    A reader gets what its inbox would have given it. One that falls behind is served from its stored inbox, and costs
    a bounded number of bytes here; what it acknowledged is what the ledger counts. It needs the credentials of an
    operator (the state directory, or --creds), and checks tokens as the HTTP API does. Nothing is lost when it is
    killed: readers connect again, with the id of the last event that they got.
    """
    configure(logs.log_level, logs.log_format)
    if (tls_cert is None) != (tls_key is None):
        raise HeadgateError("a certificate needs its key", hint="give both --tls-cert and --tls-key")
    if tls_ca is not None and tls_cert is None:
        raise HeadgateError("certificates of readers are asked for by TLS only", hint="give --tls-cert and --tls-key")
    files = None if tls_cert is None or tls_key is None else (str(tls_cert.absolute()), str(tls_key.absolute()))
    place = GatewayPlace(site, http or "127.0.0.1:0", files, tls_ca, int(parse_bytes(memory)))
    asyncio.run(_run(place, at, Teller(logs.log_format)))


@dataclass(frozen=True)
class GatewayPlace:
    """Which site is served, where to listen, by which certificate, and with how much memory."""

    site: str
    address: str
    tls: tuple[str, str] | None
    tls_ca: Path | None
    memory_bytes: int


def raise_file_limit() -> int:
    """Allow this process as many open files as the system lets it have, as each reader is one; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


async def _run(place: GatewayPlace, at: o.ConnectionOptions, tell: Teller) -> None:
    from headgate.api.gateway import ServedPart
    from headgate.api.server import serving
    from headgate.fabric import cancel_all, keep_quarantine
    from headgate.fabric.vitals import freeze_startup, keep_vitals
    from headgate.service.access import make_token
    from headgate.service.http_process import address_of, listen, read_limits

    raise_file_limit()
    site, tls, listening = place.site, place.tls, listen(place.address)
    async with await at.connect() as client:
        sites = (await client.snapshot()).deployment.sites
        if site not in sites:
            close = nearest(site, sites)
            raise HeadgateError(f"no site {site!r}", hint=f"did you mean {close!r}?" if close else None)
        stop, token = stopping(), make_token(at.state_dir)
        authority = None if place.tls_ca is None else str(place.tls_ca.absolute())
        part = ServedPart(site, read_limits(at.state_dir), place.memory_bytes)
        async with serving(client, listening, token, at.state_dir, tls, part, authority):
            work = [
                asyncio.create_task(keep_quarantine(client.fabric, f"gateway-{site}")),
                asyncio.create_task(keep_vitals(client.fabric, f"gateway-{site}")),
            ]
            tell(f"gateway of {site} at {address_of(listening, encrypted=tls is not None)}")
            freeze_startup()
            await first_of(stop)
            await cancel_all(work)
