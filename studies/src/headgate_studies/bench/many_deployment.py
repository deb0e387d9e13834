"""A deployment in processes of its own for `headgate bench many`: its file, rows, subscriptions and figures."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import psutil
import pyarrow as pa
import yaml

from headgate.client.connection import find_url
from headgate.errors import HeadgateError

STREAM: Final = "ticks"
SITES: Final = ("east", "west")
KINDS: Final = 1_000
WIDTH: Final = 5
_NUMBERS: Final = 8
_SEED: Final = 17


def deployment_file(directory: Path) -> Path:
    """A deployment without subscriptions: one stream, its root, and two sites below it."""
    schema = {"n": "bigint", "kind": "int", **{f"a{number}": "double" for number in range(_NUMBERS)}}
    document = {
        "streams": {STREAM: {"root": "root", "source": {"format": "nats"}, "schema": schema}},
        "sites": {name: {} for name in ("root", *SITES)},
        "plan": {STREAM: dict.fromkeys(SITES, "root")},
    }
    file = directory / "headgate.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def name_of(number: int) -> str:
    """The name of a subscription."""
    return f"s{number:07d}"


def wanted(first: int, stop: int, *, contexts: bool) -> dict[str, dict[str, Any]]:
    """Subscriptions by name: of a thousand filters that all share, or each with eight values of its own."""
    return {name_of(number): _wanted(number, contexts=contexts) for number in range(first, stop)}


def _wanted(number: int, *, contexts: bool) -> dict[str, Any]:
    site = SITES[number % len(SITES)]
    if not contexts:
        return {"stream": STREAM, "site": site, "where": _filter(number), "select": ["n", "kind", "a0"]}
    where = " and ".join(f"a{index} >= $v{index}" for index in range(_NUMBERS))
    return {
        "stream": STREAM,
        "site": site,
        "where": where,
        "select": ["n", "a0"],
        "context": {f"v{index}": value for index, value in enumerate(_values(number))},
    }


def _filter(number: int) -> str:
    low = number % KINDS
    return f"kind >= {low} and kind < {low + WIDTH}"


def _values(number: int) -> list[float]:
    """The context of a subscription, so that about one row in a thousand matches."""
    draw = np.random.default_rng([_SEED, number]).uniform(0.16, 0.68, _NUMBERS)
    return [round(float(value), 6) for value in draw]


def rows_of(first: int, stop: int) -> pa.RecordBatch:
    """The rows with these numbers."""
    numbers = np.arange(first, max(stop, first))
    draws = [np.random.default_rng([_SEED, 1, number]) for number in numbers.tolist()]
    values = np.array([draw.uniform(size=_NUMBERS) for draw in draws]).reshape(-1, _NUMBERS)
    columns = {
        "n": pa.array(numbers, pa.int64()),
        "kind": pa.array((numbers * 7919 % KINDS).astype(np.int32)),
        **{f"a{index}": pa.array(values[:, index]) for index in range(_NUMBERS)},
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def owed(number: int, first: int, stop: int, *, contexts: bool) -> list[int]:
    """The rows of a range that a subscription is to get, by brute force."""
    rows = rows_of(first, stop)
    if not contexts:
        low = number % KINDS
        pairs = zip(*(rows.column(index).to_pylist() for index in (0, 1)), strict=True)
        return [row for row, kind in pairs if low <= kind < low + WIDTH]
    taken = np.ones(rows.num_rows, dtype=np.bool_)
    for index, value in enumerate(_values(number)):
        taken &= rows.column(f"a{index}").to_numpy() >= value
    return [int(row) for row in rows.column("n").to_numpy()[taken]]


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Processor seconds and resident bytes of every process of a deployment, by what it is and its id."""

    cpu: dict[tuple[str, int], float]
    memory: dict[tuple[str, int], int]

    @classmethod
    def of(cls, pid: int) -> Self:
        """Of a process and all that it started."""
        cpu, memory = {}, {}
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            try:
                times, key = process.cpu_times(), (_kind(process, pid), process.pid)
                cpu[key], memory[key] = times.user + times.system, process.memory_info().rss
            except psutil.NoSuchProcess:
                continue  # a worker that ended meanwhile
        return cls(cpu, memory)

    def since(self, before: ProcessFigures) -> Self:
        """The same with the processor time that was taken since an earlier look."""
        return type(self)({key: value - before.cpu.get(key, 0.0) for key, value in self.cpu.items()}, self.memory)

    @property
    def total_bytes(self) -> int:
        """The memory of all processes together."""
        return sum(self.memory.values())

    @property
    def memory_mb(self) -> dict[str, float]:
        """Megabytes by kind of process."""
        return {name: round(value / 1e6, 1) for name, value in _by_kind(self.memory).items()}

    @property
    def cpu_s(self) -> dict[str, float]:
        """Processor seconds by kind of process."""
        return {name: round(value, 2) for name, value in _by_kind(self.cpu).items()}

    def cpu_part(self, seconds: float) -> dict[str, float]:
        """The part of a processor that each kind of process took."""
        return {name: round(value / seconds, 3) for name, value in _by_kind(self.cpu).items()}


def _by_kind(values: Mapping[tuple[str, int], float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for (kind, _), value in values.items():
        found[kind] = found.get(kind, 0.0) + value
    return found


def _kind(process: psutil.Process, pid: int) -> str:
    if process.pid == pid:
        return "up"
    name, command = process.name(), " ".join(process.cmdline())
    if "nats-server" in name or "nats-server" in command:
        return "nats"
    return "java" if name == "java" else "spark" if "pyspark" in command or "headgate.pipeline" in command else "other"


class Deployed:
    """A deployment that runs as `headgate up`."""

    def __init__(self, directory: Path, file: Path, *, job: bool) -> None:
        self.state = directory / "state"
        self._file = file
        self._job = job
        self._process: asyncio.subprocess.Process | None = None
        self._draining: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address of its NATS."""
        return find_url(None, self.state)

    async def start(self) -> float:
        """Start it, and return after how many seconds it was up."""
        began = time.perf_counter()
        options = ["--no-http", "--for", "2 h", *([] if self._job else ["--no-job"]), "--state-dir", str(self.state)]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headgate.cli.app", "up", str(self._file), *options),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "NO_COLOR": "1"},
        )
        assert self._process.stderr is not None
        told = []
        async for line in _lines(self._process.stderr):
            told.append(line)
            if "up;" in line:
                self._draining = asyncio.create_task(_drain(self._process.stderr))
                return time.perf_counter() - began
        raise HeadgateError("the deployment did not come up: " + "".join(told[-5:]))

    async def stop(self) -> None:
        """Stop it and wait for its end."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)
            try:
                async with asyncio.timeout(120):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    def figures(self) -> ProcessFigures:
        """What its processes have taken so far."""
        assert self._process is not None
        return ProcessFigures.of(self._process.pid)


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    while line := await reader.readline():
        yield line.decode(errors="replace")


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.readline():
        pass
