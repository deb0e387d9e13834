"""What a stream feels of a user who subscribes with hostile filters: delays of rows before, during and after.

A deployment commits small batches at a steady pace, and a reader notes how long each row takes from its commit to its
hand-over. Meanwhile another process, with the credentials of a user, sends thousands of `subscribe` requests whose
filters were written to hurt. Quiet times and floods take turns in the same run, so that what else the machine does
falls on both. The process that floods has the lowest priority, as its processor is not the deployment's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import nats
import numpy as np

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric.vitals import freeze_startup
from headgate.pipeline.worker import Address
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate.wire.sizes import USER_REQUEST_BYTES
from headgate_studies.bench.hostile_filters import HOSTILE, SCHEMA, Hostile
from headgate_studies.direct import DirectCommits

_EVERY_S: Final = 0.05
_TURNS: Final = 5
_ROWS: Final = 20
_AT_A_TIME: Final = 64
_DEPLOYMENT: Final = {
    "sites": {"root": {}},
    "streams": {"events": {"root": "root", "source": {"format": "nats"}, "schema": {}}},
    "subscriptions": {"all": {"stream": "events", "site": "root"}},
}


def run(requests: int = 10_000, seconds: float = 20.0) -> dict[str, Any]:
    """The p50 and p99 of quiet and flooded times, and what the requests were answered."""
    with tempfile.TemporaryDirectory() as place:
        return asyncio.run(_measure(Path(place), requests, seconds))


async def _measure(directory: Path, requests: int, seconds: float) -> dict[str, Any]:
    import yaml

    from headgate.wire.codec import encode_schema

    document = json.loads(json.dumps(_DEPLOYMENT))
    document["streams"]["events"]["schema"] = {name: kind for name, kind, *_ in encode_schema(SCHEMA)}
    deployment = parse_deployment(yaml.safe_dump(document), "hostile.yaml")
    state = directory / "state"
    async with (
        open_runtime(Settings(state_dir=state, job=False), deployment) as runtime,
        await Client.connect(state_dir=state) as client,
    ):
        answer = await client.control("user-add", name="eve", subscribe=["events"])
        file = directory / "eve.creds"
        await asyncio.to_thread(file.write_text, answer["credentials"], encoding="utf-8")
        flow = _Flow(runtime)
        committing, reading = asyncio.create_task(flow.commit()), asyncio.create_task(flow.read(client))
        try:
            await asyncio.sleep(3.0)  # what is compiled and connected at first
            freeze_startup()  # as `headgate up` does
            answers: Counter[str] = Counter()
            quiet, flooded = [], []
            for _ in range(_TURNS):
                quiet += await flow.during(asyncio.sleep(2 * seconds / (_TURNS + 1)))
                flooded += await flow.during(_flood(runtime, file, requests // _TURNS, answers))
            quiet += await flow.during(asyncio.sleep(2 * seconds / (_TURNS + 1)))
        finally:
            flow.stopping = True
            await committing
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    figures = {
        "requests": requests,
        **{f"answers_{name}": count for name, count in answers.items()},
        **{f"quiet_{name}": value for name, value in _percentiles(quiet).items()},
        **{f"flooded_{name}": value for name, value in _percentiles(flooded).items()},
    }
    figures["p99_ratio"] = round(figures["flooded_p99_ms"] / figures["quiet_p99_ms"], 3)
    print(f"rows during the flood: {len(flooded):,}, in quiet times: {len(quiet):,}")
    print(f"p99 {figures['quiet_p99_ms']:.1f} ms quiet, {figures['flooded_p99_ms']:.1f} ms flooded; answers {answers}")
    return figures


class _Flow:
    """Rows that are committed and read at a steady pace, with the delay of each."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._committed: dict[int, float] = {}
        self._delays: list[float] = []
        self.stopping = False

    async def commit(self) -> None:
        """Commit a batch every `_EVERY_S`."""
        with DirectCommits(Address(self._runtime.url, Logs()), "bench") as direct:
            batch, due = 0, time.perf_counter()
            while not self.stopping:
                rows = _rows(batch)
                began = time.perf_counter()
                manifest = await asyncio.to_thread(direct.commit, "events", rows, batch)
                assert manifest is not None
                self._committed[manifest.upto] = began
                batch, due = batch + 1, due + _EVERY_S
                await asyncio.sleep(max(due - time.perf_counter(), 0.0))

    async def read(self, client: Client) -> None:
        """Note how long each batch took."""
        async for delivery in await client.subscribe("all"):
            now = time.perf_counter()
            for upto in [each for each in self._committed if each <= delivery.upto]:
                self._delays.append(now - self._committed.pop(upto))

    async def during(self, work: Any) -> list[float]:
        """The delays of batches that came while something was done."""
        begins = len(self._delays)
        await work
        return self._delays[begins:]


def _rows(batch: int) -> Any:
    import pyarrow as pa

    numbers = range(batch * _ROWS, (batch + 1) * _ROWS)
    columns = {"n": list(numbers), "s": [f"text {each}" for each in numbers]}
    arrays = [pa.array(columns.get(each.name, [None] * _ROWS), each.type) for each in SCHEMA.arrow]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.arrow)


async def _flood(runtime: Runtime, credentials: Path, requests: int, answers: Counter[str]) -> None:
    """Let another process send the requests, and wait for it."""
    command = (sys.executable, "-m", __name__, runtime.listens_at, str(credentials), str(requests))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    answers.update(json.loads(out))


async def flood(url: str, credentials: str, requests: int) -> dict[str, int]:
    """Send hostile subscriptions, some at a time, and count what they are answered."""
    connection = await nats.connect(url, user_credentials=credentials, inbox_prefix=b"_INBOX_eve")
    free, found = asyncio.Semaphore(_AT_A_TIME), {"refused": 0, "too_often": 0, "accepted": 0, "none": 0}

    # The server ends a connection of a user that sends more, and with it the flood.
    payloads = [_payload(each)[:USER_REQUEST_BYTES] for each in HOSTILE]

    async def ask(number: int) -> None:
        data = payloads[number % len(payloads)]
        async with free:
            with contextlib.suppress(TimeoutError, nats.errors.Error, ValueError):
                answer = json.loads((await connection.request("hg.as.eve.subscribe", data, timeout=30)).data or b"{}")
                kind = "too_often" if answer.get("busy") else "refused" if "error" in answer else "accepted"
                found[kind] += 1
                return
            found["none"] += 1

    await asyncio.gather(*(ask(number) for number in range(requests)))
    await connection.close()
    return found


def _payload(hostile: Hostile) -> bytes:
    wish: dict[str, Any] = {"stream": "events", "site": "root", "where": hostile.where, "profile": hostile.profile}
    return json.dumps({"name": "more", "subscription": {**wish, "context": hostile.context}}).encode()


def _percentiles(delays_s: list[float]) -> dict[str, float]:
    if not delays_s:
        return {"p50_ms": float("nan"), "p99_ms": float("nan")}
    p50, p99 = np.percentile(np.array(delays_s) * 1e3, [50, 99])
    return {"p50_ms": round(float(p50), 2), "p99_ms": round(float(p99), 2)}


if __name__ == "__main__":
    os.nice(19)
    print(json.dumps(asyncio.run(flood(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
