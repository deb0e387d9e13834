"""What credentials, TLS and the gate cost: the same messages with and without each, in one run.

Three servers take turns, with the same settings: without credentials, with them (as the embedded server is), and with
TLS as well. Measured are messages of 1 KB published with 64 under way, published one by one (p50 and p99), and read in
batches of 256. Then rows of one deployment are read by an operator and, through the gate, by a user.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import trustme

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric import EmbeddedServer, Fabric, FabricError, find_server
from headgate.fabric.listening import Listening
from headgate.fabric.place import choose_port
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Log, Logs
from headgate_studies.direct import DirectCommits

_LOG: Final = Log("BENCH", ("bench.>",), 1 << 30)
_UNDER_WAY: Final = 64
_DEPLOYMENT: Final = """
sites: {root: {}}
streams: {fleet: {root: root, source: {format: generator, kind: fleet, seed: 3}, key: vehicle, event_time: at}}
plan: {fleet: {}}
subscriptions: {all: {stream: fleet, site: root, owner: ada}}
"""


def run(messages: int = 4000, rounds: int = 3, batches: int = 40) -> dict[str, Any]:
    """Medians over rounds in which the servers take turns; figures of a busy machine count as ratios."""
    with tempfile.TemporaryDirectory() as place:
        return asyncio.run(_measure(Path(place), messages, rounds, batches))


async def _measure(directory: Path, messages: int, rounds: int, batches: int) -> dict[str, Any]:
    figures: dict[str, list[dict[str, float]]] = {}
    async with contextlib.AsyncExitStack() as stack:
        kinds = {
            "without credentials": await stack.enter_async_context(_open(directory / "open")),
            "with credentials": await stack.enter_async_context(_embedded(directory / "credentials", None)),
            "with credentials and TLS": await stack.enter_async_context(_embedded(directory / "tls", directory)),
        }
        for _ in range(rounds):
            for kind, fabric in kinds.items():
                figures.setdefault(kind, []).append(await _round(fabric, messages))
    found = {
        kind: {name: statistics.median(each[name] for each in each_round) for name in each_round[0]}
        for kind, each_round in figures.items()
    }
    plain = found["without credentials"]
    flat: dict[str, Any] = {}
    for kind, each in found.items():
        print(kind + ": " + ", ".join(f"{name} {value:,.2f}" for name, value in each.items()), flush=True)
        key = kind.replace(" ", "_")
        for name, value in each.items():
            flat[f"{key}_{name}"] = round(value, 3)
            flat[f"{key}_{name}_ratio"] = round(value / plain[name], 3)
    return {**flat, **await _reading(directory / "deployment", batches)}


@contextlib.asynccontextmanager
async def _open(directory: Path) -> AsyncIterator[Fabric]:
    """A server without credentials, configured as the embedded one is but for them."""
    port, config = choose_port(), directory / "server.conf"
    directory.mkdir()  # noqa: ASYNC240 - nothing else runs
    config.write_text(
        f"host: 127.0.0.1\nport: {port}\nmax_payload: 8388608\nmax_pending: 268435456\n"
        f'jetstream {{ store_dir: {json.dumps(str(directory))}, max_file_store: 1TB, sync_interval: "2m" }}\n',
        encoding="utf-8",
    )
    guarded = [sys.executable, "-m", "headgate.fabric.guard", str(find_server()), "-c", str(config)]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # Its own session, as the embedded one: the system shares out processors by session.
    with subprocess.Popen(guarded, start_new_session=True, **quiet) as process:  # noqa: ASYNC220 - it returns at once
        try:
            async with await _connected(f"nats://127.0.0.1:{port}") as fabric:
                yield fabric
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def _embedded(directory: Path, certificates: Path | None) -> AsyncIterator[Fabric]:
    listening = None
    if certificates is not None:
        issued = trustme.CA().issue_cert("127.0.0.1")
        cert, key = certificates / "cert.pem", certificates / "key.pem"
        issued.cert_chain_pems[0].write_to_path(cert)
        issued.private_key_pem.write_to_path(key)
        listening = Listening(certificate=cert, key=key)
    server = EmbeddedServer(directory, sync_always=False, listening=listening)
    await asyncio.to_thread(server.start)
    try:
        async with await _connected(server.url) as fabric:
            yield fabric
    finally:
        await asyncio.to_thread(server.stop)


async def _connected(url: str) -> Fabric:
    """A connection, as soon as the server takes one."""
    for again in range(100):
        try:
            fabric = await Fabric.connect(url)
            break
        except FabricError:
            if again == 99:
                raise
            await asyncio.sleep(0.1)
    await fabric.ensure(_LOG)
    return fabric


async def _round(fabric: Fabric, messages: int) -> dict[str, float]:
    data = bytes(1024)
    free = asyncio.Semaphore(_UNDER_WAY)

    async def publish() -> None:
        async with free:
            await fabric.publish("bench.a", data)

    began = time.perf_counter()
    await asyncio.gather(*(publish() for _ in range(messages)))
    published_s = time.perf_counter() - began
    single = []
    for _ in range(messages // 10):
        began = time.perf_counter()
        await fabric.publish("bench.a", data)
        single.append(time.perf_counter() - began)
    began, place, read = time.perf_counter(), 0, 0
    while found := await fabric.read(_LOG, "bench.a", place):
        place, read = found[-1].sequence, read + len(found)
    read_s = time.perf_counter() - began
    await fabric.clear(_LOG, "bench.a")
    single.sort()
    return {
        "published_per_s": messages / published_s,
        "publish_p50_ms": single[len(single) // 2] * 1e3,
        "publish_p99_ms": single[len(single) * 99 // 100] * 1e3,
        "read_per_s": read / read_s,
    }


async def _reading(directory: Path, batches: int) -> dict[str, Any]:
    """Rows a second of one subscription: read by an operator from the log, by its owner through the gate."""
    size = 500
    deployment = parse_deployment(_DEPLOYMENT, "security.yaml", GENERATOR_SCHEMAS)
    async with (
        open_runtime(Settings(state_dir=directory, job=False), deployment) as runtime,
        await Client.connect(state_dir=directory) as operator,
    ):
        answer = await operator.control("user-add", name="ada", subscribe=["*"])
        file = directory / "ada.creds"
        await asyncio.to_thread(file.write_text, answer["credentials"], encoding="utf-8")

        def commit() -> None:
            with DirectCommits(Address(runtime.url, Logs()), "bench") as direct:
                for batch in range(batches):
                    direct.commit("fleet", generate("fleet", 3, batch * size, (batch + 1) * size), batch, 0.0)

        await asyncio.to_thread(commit)
        rows = batches * size
        found: dict[str, list[float]] = {"operator": [], "user": []}
        async with await Client.connect(runtime.listens_at, user_credentials=str(file)) as user:
            await _rows_per_s(operator, rows)  # until all of them are there
            for _ in range(3):
                for who, client in (("operator", operator), ("user", user)):
                    found[who].append(await _rows_per_s(client, rows))
    medians = {who: statistics.median(each) for who, each in found.items()}
    print(f"rows/s read by an operator {medians['operator']:,.0f}, through the gate {medians['user']:,.0f}", flush=True)
    figures = {f"{who}_rows_per_s": round(value, 1) for who, value in medians.items()}
    return {**figures, "gate_rows_per_s_ratio": round(medians["user"] / medians["operator"], 3)}


async def _rows_per_s(client: Client, rows: int) -> float:
    began, read = time.perf_counter(), 0
    inbox = await client.subscribe("all", peek=True)
    async for delivery in inbox:
        read += len(delivery.seqs)
        if read >= rows:
            break
    await inbox.close()
    return rows / (time.perf_counter() - began)
