"""Telling others of alerts: a JSON document by POST, or on the standard input of a program."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from headgate.diagnostics import SERVICE
from headgate.errors import masked
from headgate.model.alerts import AlertRules

_TRIES: Final = 4
_BACKOFF_S: Final = 1.0
_POST_S: Final = 10.0
_RUN_S: Final = 30.0
_WAITING: Final = 1000


class Hooks:
    """Tells every webhook and command of each alert, in order, one after the other for each of them."""

    def __init__(self, rules: AlertRules, deployment: str) -> None:
        self._deployment = deployment
        self._queues: list[tuple[str, asyncio.Queue[bytes], Callable[[bytes], Coroutine[Any, Any, None]]]] = []
        for url in rules.webhooks:
            self._add(masked(url), partial(_posted, url))
        for command in rules.commands:
            self._add(command[0], partial(_run, command))
        self.failures: dict[str, str] = {}
        """By hook, why its last document could not be handed over."""

    def _add(self, name: str, tell: Callable[[bytes], Coroutine[Any, Any, None]]) -> None:
        self._queues.append((name, asyncio.Queue(_WAITING), tell))

    def tell(self, alert: dict[str, Any]) -> None:
        """Hand an alert to every hook; where a hook is a thousand alerts behind, it misses this one."""
        state = "raised" if alert["cleared_ms"] is None else "cleared"
        data = json.dumps({"deployment": self._deployment, "state": state, **alert}).encode()
        for name, queue, _ in self._queues:
            try:
                queue.put_nowait(data)
            except asyncio.QueueFull:
                SERVICE.error("the hook %s is too slow: an alert is not handed to it", name)

    async def run(self) -> None:
        """Hand over what comes, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, queue, tell in self._queues:
                group.create_task(self._serve(name, queue, tell))

    async def _serve(
        self, name: str, queue: asyncio.Queue[bytes], tell: Callable[[bytes], Coroutine[Any, Any, None]]
    ) -> None:
        while True:
            data = await queue.get()
            for tried in range(_TRIES):
                try:
                    await tell(data)
                    self.failures.pop(name, None)
                    break
                except (OSError, TimeoutError, ValueError) as error:
                    self.failures[name] = masked(str(error) or repr(error))[:300]
                    if tried == _TRIES - 1:
                        SERVICE.error("the hook %s was not told of an alert: %s", name, self.failures[name])
                    else:
                        await asyncio.sleep(_BACKOFF_S * 2**tried)


async def _posted(url: str, data: bytes) -> None:
    await asyncio.to_thread(_post, url, data)


def _post(url: str, data: bytes) -> None:
    """Send a document; whatever is not answered by 2xx has failed."""
    headers = {"Content-Type": "application/json", "User-Agent": "headgate"}
    request = urllib.request.Request(url, data, headers, method="POST")  # noqa: S310 - checked with the deployment file
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_POST_S):
        pass


async def _run(command: tuple[str, ...], data: bytes) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ},
    )
    try:
        async with asyncio.timeout(_RUN_S):
            await process.communicate(data)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise OSError(f"it ended with code {process.returncode}")
