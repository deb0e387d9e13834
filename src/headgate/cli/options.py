"""Options that several commands share: how to reach a running deployment."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from headgate.client.client import Client
from headgate.errors import HeadgateError, masked
from headgate.fabric import cancel_all
from headgate.fabric.environment import nats_options

T = TypeVar("T")

StateDir = Annotated[
    Path, typer.Option("--state-dir", envvar="HEADGATE_STATE_DIR", help="Where a deployment keeps its state.")
]
Nats = Annotated[
    str | None, typer.Option("--nats", envvar="HEADGATE_NATS", help="NATS address; default: the embedded server.")
]
Namespace = Annotated[str, typer.Option("--namespace", help="Prefix of this deployment's subjects in NATS.")]
Credentials = Annotated[
    Path | None,
    typer.Option(
        "--creds",
        envvar="HEADGATE_CREDS",
        help="NATS credentials file; HEADGATE_TLS_CA names the authority of a TLS server.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

LogLevel = Annotated[
    str,
    typer.Option("--log-level", envvar="HEADGATE_LOG_LEVEL", help="What to log: debug, info, warning or error."),
]
LogFormat = Annotated[
    str, typer.Option("--log-format", envvar="HEADGATE_LOG_FORMAT", help="Lines for people (text) or programs (json).")
]

STATE_DIR = Path(".headgate")


@dataclass(frozen=True)
class ConnectionOptions:
    """How a command reaches a deployment; as a parameter of a command it is these four options (`groups`)."""

    state_dir: StateDir = STATE_DIR
    nats: Nats = None
    namespace: Namespace = "hg"
    creds: Credentials = None

    async def connect(self) -> Client:
        """A client of the running deployment."""
        options = nats_options(self.creds)
        return await Client.connect(self.nats, state_dir=self.state_dir, namespace=self.namespace, **options)

    def run(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """What work with a client of the running deployment gives; the client is closed afterwards."""

        async def connected() -> T:
            async with await self.connect() as client:
                return await work(client)

        return run(connected())

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """What the running service answers to a request."""
        return self.run(lambda client: client.control(verb, **arguments))


@dataclass(frozen=True)
class Logging:
    """What a process that runs for long logs, and how."""

    log_level: LogLevel = "warning"
    log_format: LogFormat = "text"


# The deployment in the state directory of the current directory.
HERE = ConnectionOptions()
WARNINGS = Logging()


def refuse_secrets(arguments: list[str]) -> None:
    """Refuse a password among the arguments of this program, where `ps` shows it to everybody on the machine."""
    for argument in arguments:
        if masked(argument) != argument:
            raise HeadgateError(
                f"{argument} has a password in it, and everybody on this machine can see the arguments of a program",
                hint="give the address by HEADGATE_NATS or HEADGATE_CATALOG in the environment, or --creds FILE",
            )


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; Ctrl-C and SIGTERM end it in order, and without a traceback."""
    return asyncio.run(_until_stopped(work))


def raise_on_interrupt() -> None:
    """Let Ctrl-C raise from now on, for commands without an event loop that clean up when they are left."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


async def _until_stopped(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.create_task(work)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopped: asyncio.Task[Any] = asyncio.create_task(stop.wait())
    await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        await cancel_all([task])
        raise typer.Exit(130)
    stopped.cancel()
    return task.result()


def wide_console() -> Console:
    """A console for tables: as wide as the terminal, and wide enough for any table where there is none."""
    found = Console()
    return found if found.is_terminal else Console(width=160)


def key_values(pairs: list[str]) -> dict[str, str]:
    """Options given as KEY=VALUE."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise HeadgateError(f"{pair!r} is not KEY=VALUE")
        found[key] = value
    return found
