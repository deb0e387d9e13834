"""Many readers at one site, through a gateway: what each got against brute force, how fast, and at what cost.

Each reader has a subscription of its own, with one of a thousand filters, and a socket of its own. A tenth of them
stop reading for a while: the others' delays are compared with those of before, and the gateway's memory is watched.
At the end a burst of rows shows how many deliveries a second it makes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.service.access import make_token
from headgate_studies.bench.many_deployment import KINDS, STREAM, WIDTH, Deployed, deployment_file, rows_of
from headgate_studies.bench.many_peers import measure_peer
from headgate_studies.bench.many_sockets import Got, ReaderPlace, ReaderWish, SocketReaders

SITE: Final = "east"
_AT_A_TIME: Final = 100_000
_PATIENCE_S: Final = 900.0
_SETTLE_S: Final = 3.0
_QUIET_S: Final = 4


@dataclass(frozen=True, slots=True)
class ReaderLoad:
    """How many readers there are, how long they read before some are frozen, for how long, and what comes in a burst.

    They are driven by so many `processes`.
    """

    readers: int
    seconds: float
    frozen_s: float
    burst: int
    processes: int = 1

    @property
    def frozen(self) -> frozenset[int]:
        """The readers that stop reading for a while: a tenth."""
        return frozenset(range(0, self.readers, 10)) if self.readers >= 10 else frozenset()


def name_of_reader(number: int) -> str:
    """The name of a reader's subscription."""
    return f"r{number:06d}"


def wanted_by_readers(readers: int) -> dict[str, dict[str, Any]]:
    """Their subscriptions, by name."""
    return {
        name_of_reader(number): {
            "stream": STREAM,
            "site": SITE,
            "where": f"kind >= {number % KINDS} and kind < {number % KINDS + WIDTH}",
            "select": ["n", "kind", "a0"],
        }
        for number in range(readers)
    }


def measure_readers(load: ReaderLoad, feed: Callable[[Client, str], Any], *, job: bool, peers: bool) -> dict[str, Any]:
    """The figures; `feed` makes what gives rows to the stream, of a client and its address."""
    with tempfile.TemporaryDirectory() as place:
        found = asyncio.run(_measure(Path(place), load, feed, job=job))
    rate = found.pop("rate")
    for name, face in (("mosquitto", "mqtt"), ("nats", "nats")) if peers else ():
        peer = asyncio.run(measure_peer(face, load.readers, rate, min(load.seconds, 10.0), load.burst))
        found |= {f"{name}_{key}": value for key, value in peer.items()}
        if peer:
            found[f"reader_p99_to_{name}"] = round(found["reader_p99_s"] / max(peer["p99_s"], 1e-9), 2)
            found[f"reader_deliveries_to_{name}"] = round(
                found["reader_deliveries_per_s"] / max(peer["deliveries_per_s"], 1), 3
            )
    return found


@asynccontextmanager
async def gateway_process(state: Path) -> AsyncIterator[tuple[int, psutil.Process]]:
    """`headgate gateway` for the site: its port and its process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headgate.cli.app", "gateway", "--site", SITE, "--state-dir", str(state)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        if not line.startswith("gateway of"):
            raise HeadgateError("the gateway did not come up: " + line + (await process.stderr.read()).decode())
        yield int(line.rsplit(":", 1)[1]), psutil.Process(process.pid)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _measure(
    directory: Path, load: ReaderLoad, feeder: Callable[[Client, str], Any], *, job: bool
) -> dict[str, Any]:
    deployed = Deployed(directory, deployment_file(directory), job=job)
    try:
        await deployed.start()
        async with await Client.connect(state_dir=deployed.state) as client:
            feed = feeder(client, deployed.url)
            feeding = asyncio.create_task(feed.run())
            wanted = wanted_by_readers(load.readers)
            answer = await client.subscribe_many(wanted)
            await feed.matched(answer["revision"])
            async with gateway_process(deployed.state) as (port, process):
                found = await _read(load, feed, ReaderPlace("sse", port, make_token(deployed.state)), process)
            feed.stopping = True
            await feeding
            found |= await feed.accounts()
    finally:
        await deployed.stop()
    return found


async def _read(load: ReaderLoad, feed: Any, place: ReaderPlace, process: psutil.Process) -> dict[str, Any]:
    wishes = [ReaderWish(number, name_of_reader(number)) for number in range(load.readers)]
    sockets = SocketReaders(place, wishes, load.frozen, load.processes)
    try:
        began, empty = time.perf_counter(), process.memory_info().rss
        await sockets.start(_PATIENCE_S)
        connected_s = time.perf_counter() - began
        print(f"{load.readers:,} readers are connected after {connected_s:.1f} s", flush=True)
        await asyncio.sleep(_SETTLE_S)
        first, cpu, memory = feed.sent, _cpu_s(process), process.memory_info().rss
        rows, size = await sockets.counted()
        began, began_s = time.monotonic(), time.time()
        await asyncio.sleep(load.seconds)
        steady_s = time.monotonic() - began
        cpu_s = _cpu_s(process) - cpu
        more, more_bytes = await sockets.counted()
        freeze_s = time.time()
        sockets.tell("freeze")
        held = await _watch(process, load.frozen_s)
        sockets.tell("thaw")
        thaw_s = time.time()
        await _complete(sockets, feed)
        burst_s, burst_at = time.time(), feed.sent
        await feed.give(load.burst)
        stop = feed.sent
        await _complete(sockets, feed)
        got = await sockets.finish()
        memory_after = process.memory_info().rss
    finally:
        sockets.close()
    delivered = more - rows
    figures = _compared(got, range(first, stop), load)
    windows = _Windows(got, feed.given_s, load.frozen)
    p50, p99 = windows.delays(began_s, freeze_s)
    during = windows.delays(freeze_s, thaw_s)[1]
    return {
        **figures,
        "rate": feed.load.rate,
        "reader_connect_s": round(connected_s, 1),
        "reader_p50_s": p50,
        "reader_p99_s": p99,
        "reader_p99_frozen_s": during,
        "reader_p99_frozen_ratio": round(during / max(p99, 1e-9), 3),
        "reader_rows_per_s": round(delivered / steady_s, 1),
        "reader_bytes_per_s": round((more_bytes - size) / steady_s),
        "reader_deliveries_per_s": windows.burst(burst_at, stop, burst_s),
        "reader_cpu_us_per_delivery": round(cpu_s / max(delivered, 1) * 1e6, 1),
        "gateway_cpu": round(cpu_s / steady_s, 3),
        "gateway_bytes": memory,
        "gateway_bytes_per_reader": round(max(memory - empty, 0) / load.readers),
        "gateway_bytes_frozen_max": held,
        "gateway_bytes_after": memory_after,
        "frozen_readers": len(load.frozen),
        "frozen_bytes_each": round(max(held - memory, 0) / max(len(load.frozen), 1)),
    }


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _watch(process: psutil.Process, seconds: float) -> int:
    """The most memory that a process has while some time passes."""
    most, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        most = max(most, process.memory_info().rss)
        await asyncio.sleep(0.5)
    return most


async def _complete(sockets: SocketReaders, feed: Any) -> None:
    """Give nothing more until everything has come that was given: nothing has for some seconds."""
    feed.paused = True
    await feed.passed(feed.sent)
    before, same = -1, 0
    async with asyncio.timeout(_PATIENCE_S):
        while same < _QUIET_S:
            count, _ = await sockets.counted()
            before, same = count, same + 1 if count == before else 0
            await asyncio.sleep(1.0)
    feed.paused = False


def _compared(got: dict[int, Got], counted: range, load: ReaderLoad) -> dict[str, Any]:
    """How many readers got something else than brute force says, of rows that were given while all were connected."""
    rows = rows_of(counted.start, counted.stop)
    numbers, kinds = rows.column("n").to_numpy(), rows.column("kind").to_numpy()
    owed = {low: numbers[(kinds >= low) & (kinds < low + WIDTH)] for low in range(min(KINDS, load.readers))}
    wrong = sum(
        not np.array_equal(mine[(mine >= counted.start) & (mine < counted.stop)], owed[number % KINDS])
        for number, (mine, _) in got.items()
    )
    total = sum(len(mine) for mine, _ in got.values())
    return {"readers": load.readers, "reader_mismatches": wrong, "reader_rows": total}


class _Windows:
    """What all readers that were never frozen got, by when it came."""

    def __init__(self, got: dict[int, Got], given_s: dict[int, float], frozen: frozenset[int]) -> None:
        mine = [each for number, each in got.items() if number not in frozen]
        self._rows = np.concatenate([rows for rows, _ in mine])
        self._times = np.concatenate([times for _, times in mine])
        self._given = np.array([given_s.get(int(row), np.nan) for row in self._rows])
        self._all = np.concatenate([rows for rows, _ in got.values()]), np.concatenate([t for _, t in got.values()])

    def delays(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Median and 99th percentile of the delays of rows that were given within some time."""
        chosen = (self._given >= begin_s) & (self._given < end_s)
        if not chosen.any():
            return 0.0, 0.0
        p50, p99 = np.percentile(self._times[chosen] - self._given[chosen], [50, 99])
        return round(float(p50), 4), round(float(p99), 4)

    def burst(self, first: int, stop: int, began_s: float) -> int:
        """Deliveries a second of the rows of a burst, to all readers, from when it was given to the last one."""
        rows, times = self._all
        chosen = (rows >= first) & (rows < stop)
        return round(int(chosen.sum()) / max(float(times[chosen].max()) - began_s, 1e-9)) if chosen.any() else 0
