"""Child processes of a deployment: started under a guard, watched, restarted, stopped in order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from headgate.diagnostics import SERVICE, noted
from headgate.fabric.place import write_whole
from headgate.pipeline.job import CONNECTION, JobConfig
from headgate.private import PRIVATE_UMASK, open_private

_STOP_S: Final = 20.0
_BACKOFF_S: Final = (0.1, 1.0, 2.0, 5.0, 10.0)
_LIVED_S: Final = 60.0
"""A process that lived for so long is started again at once: what ended it is not what it does at its start."""


class ChildProcess(ABC):
    """A child process that is restarted when it dies, until `stop`. A subclass says how to start it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._short_lives = 0
        self._wanted = asyncio.Event()
        self._wanted.set()
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """The process, None when it is not running."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def run(self) -> None:
        """Keep the process running until `stop`, but for the time between `pause` and `resume`."""
        while True:
            await self._wanted.wait()
            if self._stopping:
                return
            began, code = asyncio.get_running_loop().time(), None
            try:
                self._process = await self._start()
                code = await self._process.wait()
            except OSError as error:
                SERVICE.warning("%s cannot be started yet: %s", self._what, error)
            if not self._stopping and self._wanted.is_set():
                self._short_lives += 1
                if asyncio.get_running_loop().time() - began > _LIVED_S:
                    self._short_lives = 0
                self.restarts += 1
                delay_s = _BACKOFF_S[min(self._short_lives, len(_BACKOFF_S) - 1)]
                SERVICE.warning("%s ended with code %s; started again in %g s", self._what, code, delay_s)
                await asyncio.sleep(delay_s)

    @abstractmethod
    async def _start(self) -> asyncio.subprocess.Process:
        """Start the process."""

    async def pause(self) -> None:
        """Stop the process for a while."""
        self._wanted.clear()
        await self._end()

    def resume(self) -> None:
        """Let the process run again."""
        self._wanted.set()

    async def stop(self) -> None:
        """Stop the process for good."""
        self._stopping = True
        self._wanted.set()
        await self._end()

    async def _end(self) -> None:
        """End the process: ask, then kill."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with noted(SERVICE, f"{self._what} had ended when it was told to stop", ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except TimeoutError:
            SERVICE.warning("%s did not stop within %g s and is killed", self._what, _STOP_S)
            with noted(SERVICE, f"{self._what} had ended when it was killed", ProcessLookupError):
                process.kill()
            await process.wait()


class JobProcess(ChildProcess):
    """The Spark driver. What it has not committed when it is paused or dies it reads again."""

    def __init__(
        self,
        configure: Callable[[int], JobConfig],
        state_dir: Path,
        environment: Callable[[int], Mapping[str, str]] | None = None,
        name: str = "",
    ) -> None:
        """`configure` and `environment` are asked before each start, with the number of starts before it."""
        super().__init__(f"the Spark job {name}" if name else "the Spark job")
        self._stem = f"job-{name}" if name else "job"
        self._configure = configure
        self._environment = environment
        self._state_dir = state_dir

    @property
    def log(self) -> Path:
        """The file with what the job said."""
        return self._state_dir / f"{self._stem}.log"

    async def _start(self) -> asyncio.subprocess.Process:
        path = self._state_dir / f"{self._stem}.json"
        config = self._configure(self.restarts)
        write_whole(path, config.shown())
        more = self._environment(self.restarts) if self._environment else {}
        with open_private(self.log) as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headgate.pipeline.job",
                str(path),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **more, CONNECTION: config.connection()},
                start_new_session=True,
                umask=PRIVATE_UMASK,
            )
