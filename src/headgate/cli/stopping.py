"""Programs that run until they are stopped: what they say on their way, and what ends them."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import typer

from headgate.diagnostics import announce
from headgate.errors import masked


class Teller:
    """Tells the user on standard error how far things are: as plain lines, or as records where lines are JSON."""

    def __init__(self, log_format: str) -> None:
        self._plain = log_format == "text"

    def __call__(self, text: str) -> None:
        """Tell a line."""
        if self._plain:
            typer.echo(masked(text), err=True)
        else:
            announce(text)


def stopping() -> asyncio.Event:
    """Set by Ctrl-C and SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def first_of(stop: asyncio.Event, *others: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    """Wait until the program is to stop, one of some others is done, or the time is over."""
    stopped: asyncio.Future[Any] = asyncio.create_task(stop.wait())
    await asyncio.wait([stopped, *others], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
