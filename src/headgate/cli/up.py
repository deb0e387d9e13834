"""`headgate up`: run a deployment."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headgate.cli import options as o
from headgate.cli.stopping import Teller, first_of, stopping
from headgate.diagnostics import configure
from headgate.errors import HeadgateError
from headgate.fabric import Crew
from headgate.fabric.address import split_listen
from headgate.fabric.environment import nats_options
from headgate.fabric.listening import Listening
from headgate.fabric.place import HOST, choose_port
from headgate.model import Deployment, NatsPlace, parse_duration

if TYPE_CHECKING:
    from headgate.service.runtime import Runtime
    from headgate.service.settings import Settings

_WATCH_S: Final = 0.5
_MQTT_PORT: Final = 1883


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("up")(up)
    app.command("login")(login)


@dataclass(frozen=True)
class ServerOptions:
    """Where the embedded NATS server listens, and by which certificates."""

    listen: Annotated[
        str | None, typer.Option(help="Where the embedded NATS listens, HOST or HOST:PORT; default: loopback.")
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate (PEM) of the embedded NATS; needed beyond loopback.")
    ] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None
    tls_ca: Annotated[
        Path | None, typer.Option(help="Ask whoever connects for a certificate that this authority (PEM) has signed.")
    ] = None
    mqtt: Annotated[
        str | None, typer.Option(help="Where the embedded NATS takes devices that speak MQTT, as HOST:PORT.")
    ] = None


_SERVER = ServerOptions()


@dataclass(frozen=True)
class JobOptions:
    """The Spark job: where it runs, and its micro-batches."""

    job: Annotated[bool, typer.Option(help="Run the Spark job.")] = True
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]"
    job_archive: Annotated[
        Path | None,
        typer.Option(help="What executors of a cluster run from, made by `headgate job pack`; default: what is there."),
    ] = None
    spark: Annotated[list[str] | None, typer.Option("--spark", help="A Spark option as KEY=VALUE; repeatable.")] = None
    trigger: Annotated[str, typer.Option(help="At most so long between two micro-batches.")] = "1 s"
    partitions: Annotated[int | None, typer.Option(help="Repartition every micro-batch to so many tasks.")] = None


_JOB = JobOptions()


@dataclass(frozen=True)
class RecoveryOptions:
    """What a start may do without."""

    new_lineage: Annotated[
        bool,
        typer.Option("--new-lineage", help="Go on with the checkpoints as they are; rows that are gone are declared."),
    ] = False
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Go on although logs are gone, older or damaged: the streams concerned begin a new incarnation, what "
            "their logs hold is dropped, their sources are read from the start, and every reader is told.",
        ),
    ] = False
    rebuild_catalog: Annotated[
        bool,
        typer.Option(
            "--rebuild-catalog", help="Rebuild a catalog that is lost, older or damaged from what NATS holds."
        ),
    ] = False


_RECOVERY = RecoveryOptions()


@dataclass(frozen=True)
class HttpOptions:
    """The HTTP API."""

    http: Annotated[
        str | None,
        typer.Option(
            "--http", help="Where to serve the HTTP API, as HOST:PORT; default: port 8787 of 127.0.0.1, or a free one."
        ),
    ] = None
    http_tls: Annotated[
        bool, typer.Option("--http-tls", help="Serve the HTTP API by TLS, with the certificate of --tls-cert.")
    ] = False
    http_tls_ca: Annotated[
        Path | None,
        typer.Option(help="Certificates (PEM) of the authority that clients' certificates need, with --http-tls."),
    ] = None
    no_http: Annotated[bool, typer.Option("--no-http", help="Serve no HTTP API.")] = False


_HTTP = HttpOptions()


@dataclass(frozen=True)
class HostOptions:
    """What this machine keeps and runs, and for how long."""

    catalog: Annotated[
        str | None,
        typer.Option(
            envvar="HEADGATE_CATALOG",
            help="Catalog database as an SQLAlchemy URL; default: SQLite in the state directory.",
        ),
    ] = None
    relays: Annotated[bool, typer.Option(help="Run the relays of all sites in this process.")] = True
    relay_processes: Annotated[
        int,
        typer.Option(min=0, max=64, help="Spread the relays over so many processes; 0 runs them in this one."),
    ] = 0
    disk_reserve: Annotated[
        str, typer.Option(help="Pause intake when less than this is free on the disk of the state directory.")
    ] = "64 MB"
    for_: Annotated[str | None, typer.Option("--for", help="Stop by itself after this long, such as `10 min`.")] = None


_HOST = HostOptions()


def up(
    file: Annotated[Path, typer.Argument(help="The deployment file.")],
    at: o.ConnectionOptions = o.HERE,
    logs: o.Logging = o.WARNINGS,
    server: ServerOptions = _SERVER,
    spark_job: JobOptions = _JOB,
    recovery: RecoveryOptions = _RECOVERY,
    web: HttpOptions = _HTTP,
    host: HostOptions = _HOST,
) -> None:
    """Run a deployment until stopped (Ctrl-C). A second start resumes where the first ended."""
    from headgate.cli.deployment import read_deployment
    from headgate.model import parse_bytes, parse_duration
    from headgate.service.http_process import parse_address
    from headgate.service.settings import Settings

    configure(logs.log_level, logs.log_format)
    if web.http is not None:
        parse_address(web.http)
    deployment = read_deployment(file)
    place = deployment.nats
    if web.no_http and (server.mqtt or place.mqtt):
        raise HeadgateError("MQTT is served by the process of the HTTP API", hint="leave --no-http out")
    embedded = at.nats is None and place.url is None
    settings = Settings(
        state_dir=at.state_dir,
        nats=at.nats or place.url,
        listening=_listening(
            server.listen or place.listen,
            server.mqtt or place.mqtt,
            (server.tls_cert or place.certificate, server.tls_key or place.key, server.tls_ca or place.authority),
            embedded=embedded,
        ),
        namespace=at.namespace,
        catalog=host.catalog,
        master=spark_job.master,
        job_archive=spark_job.job_archive,
        trigger_s=parse_duration(spark_job.trigger),
        partitions=spark_job.partitions,
        new_lineage=recovery.new_lineage,
        accept_loss=recovery.accept_loss,
        rebuild_catalog=recovery.rebuild_catalog,
        relays=host.relays,
        relay_processes=host.relay_processes,
        job=spark_job.job,
        spark_options=o.key_values(spark_job.spark or []),
        nats_options={} if embedded else _nats_options(place, at.creds),
        log_level=logs.log_level,
        log_format=logs.log_format,
        disk_reserve_bytes=int(parse_bytes(host.disk_reserve)),
        http=not web.no_http,
        http_address=web.http,
        http_tls=_http_tls(server.tls_cert or place.certificate, server.tls_key or place.key) if web.http_tls else None,
        http_tls_ca=_http_tls_ca(web.http_tls_ca, encrypted=web.http_tls),
    )
    limit_s = parse_duration(host.for_) if host.for_ else None
    asyncio.run(_up(settings, deployment, limit_s, Teller(logs.log_format)))


def _nats_options(place: NatsPlace, creds: Path | None) -> dict[str, Any]:
    """How to be let in to a server of the user's own: what was given here, else what the deployment file says."""
    given = creds or (Path(place.credentials) if place.credentials else None)
    return nats_options(given, tls_ca=place.authority, tls_cert=place.certificate, tls_key=place.key)


def _http_tls(certificate: Path | str | None, key: Path | str | None) -> tuple[str, str]:
    if certificate is None or key is None:
        raise HeadgateError("--http-tls needs a certificate and its key", hint="give --tls-cert and --tls-key")
    return str(Path(certificate).absolute()), str(Path(key).absolute())


def _http_tls_ca(authority: Path | None, *, encrypted: bool) -> str | None:
    if authority is not None and not encrypted:
        raise HeadgateError("certificates of clients are asked for by TLS only", hint="give --http-tls, too")
    return None if authority is None else str(authority.absolute())


def _listening(
    listen: str | None, mqtt: str | None, files: tuple[Path | str | None, ...], *, embedded: bool
) -> Listening | None:
    """Where the embedded server listens, None for the default. The files are certificate, key and authority."""
    if not embedded:
        for option, given in (("listen", listen), ("mqtt", mqtt)):
            if given is not None:
                raise HeadgateError(
                    f"`{option}` is for the embedded NATS server, and another one was given by its address",
                    hint="leave one of them out",
                )
        return None
    host, port = split_listen(listen or HOST)
    devices = None if mqtt is None else split_listen(mqtt)
    certificate, key, authority = (Path(file) if file else None for file in files)
    return Listening(
        host,
        port,
        certificate,
        key,
        authority,
        None if devices is None else (devices[0], _MQTT_PORT if devices[1] is None else devices[1] or choose_port()),
    )


async def _up(settings: Settings, deployment: Deployment, limit_s: float | None, tell: Teller) -> None:
    """Run until stopped. A stop while the deployment is still being started takes down what is there, at once."""
    stop, started = stopping(), asyncio.Event()
    work = asyncio.create_task(_serve(settings, deployment, limit_s, tell, stop, started))
    await first_of(stop, work)
    if not work.done() and not started.is_set():
        tell("stopping before all was started")
        work.cancel()
        await asyncio.wait([work])
        if work.cancelled():
            return
    await work


async def _serve(
    settings: Settings,
    deployment: Deployment,
    limit_s: float | None,
    tell: Teller,
    stop: asyncio.Event,
    started: asyncio.Event,
) -> None:
    from headgate.fabric.vitals import freeze_startup
    from headgate.service.runtime import open_runtime

    tell("starting NATS, the catalog and the relays (the first start on a machine compiles the planner)")
    async with open_runtime(settings, deployment) as runtime:
        freeze_startup()
        started.set()
        tell(f"NATS at {runtime.listens_at}, state in {runtime.settings.state_dir}")
        if runtime.server is not None and runtime.server.fingerprint is not None:
            tell(f"certificate {runtime.server.fingerprint}")
        if settings.listening is not None and settings.listening.mqtt is not None:
            tell("MQTT at {}:{}; `headgate device add` lets a device in".format(*settings.listening.mqtt))
        if runtime.face is not None:
            tell(invitation(runtime.face.address, settings.state_dir))
        for line in runtime.told:
            tell(line)
        async with Crew() as crew:
            crew.spawn(_watch_job(runtime, tell))
            if runtime.job is not None:
                ready = crew.spawn(runtime.wait_ready(lambda text: tell(f"Spark job: {text}"), math.inf))
                await first_of(stop, runtime.failure, ready)
            if not stop.is_set() and not runtime.failure.done():
                for name, each in (await runtime.status())["streams"].items():
                    if each["job"].get("state") == "failed":
                        tell(f"stream {name} cannot run yet: {each['job'].get('error')}")
                tell("up; `headgate status` shows it, Ctrl-C stops it")
            await first_of(stop, runtime.failure, timeout_s=limit_s)
        if runtime.failure.done():
            await runtime.failure
        tell("stopping")


def invitation(address: str, state_dir: Path) -> str:
    """Where the page and the API are: to a terminal a link that logs its owner in, to a log only the address."""
    from headgate.service.access import login_link, read_token

    if sys.stderr.isatty():
        return f"page and HTTP API at {login_link(address, read_token(state_dir), time.time())} (works once, for 5 min)"
    return f"page and HTTP API at {address}; `headgate login` prints a link that opens it"


def login(
    state_dir: o.StateDir = o.STATE_DIR,
    token: Annotated[bool, typer.Option("--token", help="Print the bearer token instead, for scripts.")] = False,
    creds: Annotated[Path | None, typer.Option("--creds", help="Log in as the user of this credentials file.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Where the HTTP API is; default: as the state directory says.")
    ] = None,
    expires: Annotated[str, typer.Option(help="With --creds and --token: how long the token holds.")] = "12 h",
    rotate: Annotated[
        str | None,
        typer.Option(help="Make another bearer token first; the one before holds for so long yet, such as `1 h`."),
    ] = None,
) -> None:
    """Print a link that opens the page of a running deployment in a browser; it works once, within five minutes."""
    from headgate.fabric.tokens import API, LOGIN, make_user_token
    from headgate.service.access import CODE_S, login_link, read_token, rotate_token

    if rotate is not None:
        if creds is not None:
            raise HeadgateError(
                "a user has no token that is kept", hint="`headgate user rotate NAME` gives new credentials"
            )
        rotate_token(state_dir, parse_duration(rotate))
    if creds is not None and token:
        typer.echo(make_user_token(_text(creds), API, int(time.time() + parse_duration(expires))))
        return
    if token:
        typer.echo(read_token(state_dir))
        return
    place = address or _http_address(state_dir)
    if creds is None:
        typer.echo(login_link(place, read_token(state_dir), time.time()))
    else:
        typer.echo(f"{place}/login?code={make_user_token(_text(creds), LOGIN, int(time.time() + CODE_S))}")


def _http_address(state_dir: Path) -> str:
    address = state_dir / "http" / "address"
    if not address.exists():
        raise HeadgateError(f"no HTTP API was started in {state_dir}", hint="start it with `headgate up`")
    return address.read_text(encoding="utf-8")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise HeadgateError(f"the credentials in {path} cannot be read: {error}") from error


async def _watch_job(runtime: Runtime, tell: Teller) -> None:
    """Say when a Spark job has ended by itself."""
    said: dict[str, int] = {}
    while runtime.settings.job:
        await asyncio.sleep(_WATCH_S)
        for name, process in list(runtime.jobs.processes.items()):
            if process.restarts > said.get(name, 0):
                said[name] = process.restarts
                lines = process.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                last = f": {lines[-1][:200]}" if lines else ""
                what = f"the Spark job {name}" if name else "the Spark job"
                tell(f"{what} ended and is started again ({process.log}{last})")
