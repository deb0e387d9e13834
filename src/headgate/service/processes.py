"""Child processes of a deployment: started under a guard, watched, restarted, stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from headgate.fabric.place import write_whole
from headgate.pipeline.job import JobConfig

_STOP_S: Final = 20.0
_BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0)

_log = logging.getLogger(__name__)


class JobProcess:
    """The Spark driver as a child process. It is restarted when it dies, until `stop`."""

    def __init__(
        self,
        configure: Callable[[int], JobConfig],
        state_dir: Path,
        environment: Callable[[int], Mapping[str, str]] | None = None,
    ) -> None:
        """`configure` and `environment` are asked before each start, with the number of starts before it."""
        self._configure = configure
        self._environment = environment
        self._state_dir = state_dir
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._wanted = asyncio.Event()
        self._wanted.set()
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """The driver's process, None when it is not running."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def run(self) -> None:
        """Keep the job running until `stop`, but for the time between `pause` and `resume`."""
        while True:
            await self._wanted.wait()
            if self._stopping:
                return
            try:
                self._process = await self._start()
                await self._process.wait()
            except OSError as error:
                _log.warning("the Spark job cannot be started yet: %s", error)
            if not self._stopping and self._wanted.is_set():
                delay = _BACKOFF_S[min(self.restarts, len(_BACKOFF_S) - 1)]
                self.restarts += 1
                await asyncio.sleep(delay)

    async def _start(self) -> asyncio.subprocess.Process:
        path = self._state_dir / "job.json"
        write_whole(path, json.dumps(asdict(self._configure(self.restarts))))
        more = self._environment(self.restarts) if self._environment else {}
        with (self._state_dir / "job.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headgate.pipeline.job",
                str(path),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **more},
                start_new_session=True,
            )

    async def pause(self) -> None:
        """Stop the job for a while; what it has not committed it reads again."""
        self._wanted.clear()
        await self._end()

    def resume(self) -> None:
        """Let the job run again."""
        self._wanted.set()

    async def stop(self) -> None:
        """Stop the job for good."""
        self._stopping = True
        self._wanted.set()
        await self._end()

    async def _end(self) -> None:
        """End the process: ask, then kill."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
