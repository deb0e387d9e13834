"""A producer faster than its reader, through an MQTT broker, through core NATS and through Headgate, in one run.

Every reader takes 2 ms a message, every queue is bounded at 1,000 messages or rows. Declared lost is what the reader
was told about; for NATS that is what the client library reports in its error callback, since the server says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headgate_studies.studies import charts
from headgate_studies.studies.study import FAILS, REPRODUCES, Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_PACK = struct.Struct("<qd48x")
_IDLE_S = 5.0
_DEPLOYMENT = """
streams:
  events:
    root: here
    schema: {n: bigint, sent: double, pad: string}
    source: {format: nats}
sites:
  here: {}
subscriptions:
  reader: {site: here, stream: events}
"""


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """All systems that are installed, one after the other."""
    del seed
    settings = dict(parameters)
    systems: dict[str, Callable[[dict[str, Any], Path], Coroutine[Any, Any, dict[str, Any]]]] = {
        "mosquitto": _mosquitto,
        "nats": _nats,
        "headgate": _headgate,
    }
    rows = []
    for name, measure in systems.items():
        with tempfile.TemporaryDirectory() as directory:
            found = asyncio.run(measure(settings, Path(directory)))
        rows.append({"system": name, **found})
    return rows


def _outcome(messages: int, ages: list[float], declared: int, told: str) -> dict[str, Any]:
    received = len(ages)
    return {
        "measured": True,
        "note": told,
        "received": received,
        "declared_lost": declared,
        "undeclared_lost": messages - received - declared,
        "age_p50_s": float(np.quantile(ages, 0.5)) if ages else float("nan"),
        "age_max_s": float(np.max(ages)) if ages else float("nan"),
    }


def _absent(why: str) -> dict[str, Any]:
    return {"measured": False, "note": why, "received": -1, "declared_lost": -1, "undeclared_lost": -1,
            "age_p50_s": float("nan"), "age_max_s": float("nan")}  # fmt: skip


async def _mosquitto(settings: dict[str, Any], directory: Path) -> dict[str, Any]:
    from headgate_studies.studies.mqtt import Mqtt

    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        return _absent("not measured: mosquitto is not installed (package mosquitto)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    config = directory / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages {settings['bound']}\n")
    broker = await asyncio.create_subprocess_exec(
        program, "-c", str(config), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        reader = await _retried(lambda: Mqtt.connect(port, "reader"))
        await reader.subscribe("events")
        writer = await Mqtt.connect(port, "writer")
        ages: list[float] = []

        async def read() -> None:
            while (payload := await reader.receive(_IDLE_S)) is not None:
                await asyncio.sleep(float(settings["work_s"]))
                ages.append(time.time() - _PACK.unpack(payload)[1])
                reader.done()

        reading = asyncio.create_task(read())
        count = int(settings["messages"])
        acknowledged = await writer.publish_all("events", _Payloads(count), float(settings["rate"]))
        await reading
        writer.close()
        reader.close()
        return _outcome(count, ages, 0, f"the broker acknowledged {acknowledged:,} messages and told nobody")
    finally:
        broker.terminate()
        await broker.wait()


class _Payloads(list[bytes]):
    """Payloads that carry their number and the time at which they are asked for."""

    def __init__(self, count: int) -> None:
        super().__init__(b"" for _ in range(count))

    def __iter__(self) -> Any:
        return (_PACK.pack(number, time.time()) for number in range(len(self)))


async def _retried(make: Callable[[], Awaitable[Any]]) -> Any:
    for _ in range(100):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            return await make()
        await asyncio.sleep(0.1)
    return await make()


async def _wait(done: Callable[[], bool], timeout_s: float = 300.0) -> None:
    """Look until it is done, or for so long."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(0.2)


async def _nats(settings: dict[str, Any], directory: Path) -> dict[str, Any]:
    import nats
    from nats.errors import SlowConsumerError

    from headgate.fabric import EmbeddedServer
    from headgate.fabric.address import reach

    server = EmbeddedServer(directory)
    await asyncio.to_thread(server.start)
    try:
        told = 0
        ages: list[float] = []
        last = [time.monotonic()]

        async def on_error(error: Exception) -> None:
            nonlocal told
            told += isinstance(error, SlowConsumerError)

        async def on_message(message: Any) -> None:
            await asyncio.sleep(float(settings["work_s"]))
            ages.append(time.time() - _PACK.unpack(message.data)[1])
            last[0] = time.monotonic()

        there = reach(server.url, {})
        reader = await nats.connect(there.url, error_cb=on_error, **there.options)
        await reader.subscribe("events", cb=on_message, pending_msgs_limit=int(settings["bound"]))
        await reader.flush()
        writer = await nats.connect(there.url, **there.options)
        count, rate = int(settings["messages"]), float(settings["rate"])
        began = time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            await writer.publish("events", _PACK.pack(number, time.time()))
        await writer.flush()
        last[0] = time.monotonic()
        await _wait(lambda: time.monotonic() - last[0] > _IDLE_S)
        await writer.close()
        await reader.close()
        return _outcome(count, ages, told, "losses counted from the client library's error callback")
    finally:
        await asyncio.to_thread(server.stop)


async def _headgate(settings: dict[str, Any], directory: Path) -> dict[str, Any]:
    from headgate.catalog import parse_deployment
    from headgate.client import Client
    from headgate.pipeline.sources import GENERATOR_SCHEMAS
    from headgate.relay.output import QueueLimits
    from headgate.service.runtime import open_runtime
    from headgate.service.settings import Settings

    count, rate, block = int(settings["messages"]), float(settings["rate"]), 100
    ages: list[float] = []
    given_up = 0

    async def read(client: Client) -> None:
        nonlocal given_up
        async for delivery in await client.subscribe("reader"):
            given_up += sum(delivery.given_up.values())
            for sent in delivery.rows.column("sent").to_pylist():
                await asyncio.sleep(float(settings["work_s"]))
                ages.append(time.time() - sent)

    deployment = parse_deployment(_DEPLOYMENT, "silent-loss.yaml", GENERATOR_SCHEMAS)
    limits = QueueLimits(max_rows=int(settings["bound"]))
    options = Settings(directory, limits=limits, inbox_messages=2, master="local[2]")
    async with open_runtime(options, deployment) as runtime:
        await runtime.wait_ready(timeout_s=600.0)
        assert runtime.server is not None
        async with await Client.connect(runtime.server.url, namespace=options.namespace) as client:
            reading = asyncio.create_task(read(client))
            began = time.monotonic()
            for start in range(0, count, block):
                await asyncio.sleep(max(0.0, began + start / rate - time.monotonic()))
                now = time.time()
                numbers = range(start, min(start + block, count))
                await client.publish("events", [{"n": number, "sent": now, "pad": "x" * 48} for number in numbers])
            await _wait(lambda: len(ages) + given_up >= count or reading.done())
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
    return _outcome(count, ages, given_up, "counts by reason in the stream, at the place of the loss")


def _ours(results: pd.DataFrame) -> tuple[str, str]:
    mine = results[results["system"] == "headgate"]
    lost = int(mine["undeclared_lost"].sum())
    received, declared = int(mine["received"].sum()), int(mine["declared_lost"].sum())
    text = f"received {received:,}, declared lost {declared:,}, undeclared {lost}"
    return text, REPRODUCES if lost == 0 else FAILS


def _theirs(results: pd.DataFrame) -> tuple[str, str]:
    found = results[results["system"] == "mosquitto"]
    if not found["measured"].all():
        return str(found["note"].iloc[0]), FAILS
    lost = float(found["undeclared_lost"].sum() / (found["received"] + found["undeclared_lost"]).sum())
    return f"{lost:.0%} lost without a word; {found['note'].iloc[0]}", REPRODUCES if lost > 0.5 else FAILS


# Received, declared lost, and in the colour of warnings what nobody is told of.
_COLOURS = (charts.COLOURS[0], charts.COLOURS[4], charts.COLOURS[1])


def chart(results: pd.DataFrame) -> Figure:
    """Received, declared and undeclared lost, stacked, one bar a system; the legend stands apart from the bars."""
    figure, (axes,) = charts.panels()
    shown = results[results["measured"]].groupby("system")[["received", "declared_lost", "undeclared_lost"]].mean()
    bottom = np.zeros(len(shown))
    for name, colour in zip(shown.columns, _COLOURS, strict=True):
        axes.bar(range(len(shown)), shown[name], bottom=bottom, color=colour, label=name.replace("_", " "))
        bottom += shown[name].to_numpy()
    axes.set_xticks(range(len(shown)), list(shown.index))
    axes.set(ylabel="messages", title="A reader of 2 ms a message behind queues of 1,000")
    figure.legend(loc="outside lower center", ncols=len(_COLOURS))
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Figures of each system; -1 where it was not measured."""
    found: dict[str, Any] = {}
    for name, group in results.groupby("system"):
        for key in ("received", "declared_lost", "undeclared_lost"):
            found[f"{name}_{key}"] = int(group[key].mean())
        found[f"{name}_age_p50_s"] = round(float(group["age_p50_s"].mean()), 3)
        found[f"{name}_age_max_s"] = round(float(group["age_max_s"].mean()), 3)
        found[f"{name}_note"] = str(group["note"].iloc[0])
    return found


STUDY = Study(
    name="silent-loss",
    about="20,000 messages to a slow reader through mosquitto, core NATS and Headgate: what is lost, and who is told.",
    parameters={"messages": [20_000], "rate": [5_000.0], "work_s": [0.002], "bound": [1_000]},
    run=run,
    chart=chart,
    statements=(
        Statement("Headgate loses nothing without declaring it (ours)", _ours),
        Statement("an MQTT broker acknowledges everything and drops most of it silently (our design)", _theirs),
    ),
    summary=summary,
    seeds=1,
    live=True,
    notes="Bounds: mosquitto's max_queued_messages, the NATS client's pending limit, the relay's queue. Ages include "
    "the Spark micro-batch for Headgate.",
)
