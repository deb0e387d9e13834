"""The same rows to the same readers by brokers that filter nothing: mosquitto, and NATS without logs.

The publisher knows the readers' filters and publishes every row once to the topic of each filter that it matches.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from headgate.errors import HeadgateError
from headgate.fabric.place import choose_port
from headgate.fabric.program import find_server
from headgate_studies.bench.many_deployment import KINDS, WIDTH, rows_of
from headgate_studies.bench.many_sockets import ReaderPlace, ReaderWish, SocketReaders

_TICK_S: Final = 0.5
_PATIENCE_S: Final = 120.0
_HELLO: Final = {"nats": b"CONNECT {}\r\n", "mqtt": b"\x10\x11\x00\x04MQTT\x04\x02\x00\x00\x00\x05bench"}


def broker(face: str) -> list[str] | None:
    """The program of a broker, None where it is not installed."""
    if face == "mqtt":
        found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
        return None if found is None else [found]
    try:
        return [str(find_server())]
    except HeadgateError:
        return None


async def measure_peer(face: str, readers: int, rate: int, seconds: float, burst: int) -> dict[str, Any]:
    """Delays at a rate of rows and deliveries a second of a burst; nothing where the broker is not installed."""
    program = broker(face)
    if program is None:
        return {}
    port = choose_port()
    with tempfile.TemporaryDirectory() as place:
        if face == "mqtt":
            config = Path(place) / "mosquitto.conf"
            config.write_text(
                f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nset_tcp_nodelay true\n"
            )
            arguments = ["-c", str(config)]
        else:
            arguments = ["-a", "127.0.0.1", "-p", str(port)]
        process = await asyncio.create_subprocess_exec(
            *program, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await _listening(port)
            return await _measure(ReaderPlace(face, port), readers, rate, seconds, burst, psutil.Process(process.pid))
        finally:
            process.terminate()
            await process.wait()


async def _listening(port: int) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return


async def _measure(
    place: ReaderPlace, readers: int, rate: int, seconds: float, burst: int, process: psutil.Process
) -> dict[str, Any]:
    sep = "/" if place.face == "mqtt" else "."
    wishes = [ReaderWish(number, f"k{sep}{number % KINDS}") for number in range(readers)]
    sockets = SocketReaders(place, wishes, frozenset())
    try:
        await sockets.start(_PATIENCE_S)
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(
            b"CONNECT {}\r\n" if place.face == "nats" else b"\x10\x11\x00\x04MQTT\x04\x02\x00\x00\x00\x05bench"
        )
        draining = asyncio.create_task(_drain(reader))
        given: dict[int, float] = {}
        sent, expected, cpu = 0, 0, sum(process.cpu_times()[:2])
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds:
            expected += await _publish(writer, place, sent, int(now * rate) + 1, readers, given)
            sent = int(now * rate) + 1
            await asyncio.sleep(_TICK_S)
        await _all(sockets, expected)
        cpu_s, steady = sum(process.cpu_times()[:2]) - cpu, expected
        began_s = time.time()
        expected += await _publish(writer, place, sent, sent + burst, readers, given)
        await _all(sockets, expected)
        _, size = await sockets.counted()
        got = await sockets.finish()
        draining.cancel()
        writer.close()
    finally:
        sockets.close()
    return _figures(got, given, sent, (began_s, size), cpu_s / max(steady, 1))


def _figures(
    got: Mapping[int, Any], given: Mapping[int, float], burst_at: int, burst: tuple[float, int], cpu_s: float
) -> dict[str, Any]:
    numbers = np.concatenate([rows for rows, _ in got.values()])
    times = np.concatenate([times for _, times in got.values()])
    steady = numbers < burst_at
    delays = times[steady] - np.array([given[int(each)] for each in numbers[steady]])
    took_s = max(float(times[~steady].max()) - burst[0], 1e-9) if (~steady).any() else 1e-9
    p50, p99 = np.percentile(delays, [50, 99]) if len(delays) else (0.0, 0.0)
    return {
        "p50_s": round(float(p50), 4),
        "p99_s": round(float(p99), 4),
        "deliveries_per_s": round(int((~steady).sum()) / took_s),
        "cpu_us_per_delivery": round(cpu_s * 1e6, 1),
    }


async def _publish(
    writer: asyncio.StreamWriter, place: ReaderPlace, first: int, stop: int, readers: int, given: dict[int, float]
) -> int:
    """Publish rows to the topics of the filters that they match; returns how many deliveries that makes."""
    rows, count = rows_of(first, stop).select(["n", "kind", "a0"]), 0
    now = time.time()
    for row in rows.to_pylist():
        payload = json.dumps(row, separators=(",", ":")).encode()
        given[row["n"]] = now
        for low in range(max(row["kind"] - WIDTH + 1, 0), row["kind"] + 1):
            listeners = len(range(low, readers, KINDS))
            count += listeners
            if place.face == "nats":
                writer.write(b"PUB k.%d %d\r\n%s\r\n" % (low, len(payload), payload))
            else:
                topic = b"k/%d" % low
                body = len(topic).to_bytes(2) + topic + payload
                size = len(body)
                length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
                writer.write(b"\x30" + length + body)
        await writer.drain()
    return count


async def _all(sockets: SocketReaders, expected: int) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while (await sockets.counted())[0] < expected:  # noqa: ASYNC110 # other processes count
            await asyncio.sleep(0.05)


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(65_536):
        pass
