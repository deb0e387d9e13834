"""One subscription by every way there is: Python, events through curl, Chromium, MQTT and NATS; identical rows."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pyarrow as pa
import pytest
from tests.api.mosquitto import Mosquitto, listen
from tests.live import until

from headgate.client import Client
from headgate.fabric.address import address_of
from headgate.fabric.place import choose_port
from headgate.pipeline.worker import Address
from headgate.service.access import CODE, CODE_S, read_token, signed
from headgate.wire.logs import Logs
from headgate.wire.message import json_text
from headgate_studies.direct import DirectCommits
from headgate_studies.testing.browser import open_chromium_beside, why_not

DOCUMENT = """
sites: {root: {}, edge: {}}
streams:
  readings:
    root: root
    source: {format: nats, payload: json}
    schema: {station: string, level: double, at: timestamp, tags: array<string>}
subscriptions: {high: {stream: readings, site: edge, where: level > 10, format: json}}
"""
Rows = list[dict[str, Any]]
pytestmark = [
    pytest.mark.live,
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto's clients are not installed"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]


def made(first: int, stop: int) -> pa.RecordBatch:
    numbers = list(range(first, stop))
    return pa.record_batch(
        {
            "station": [f"näs-{number % 7}" for number in numbers],
            "level": [number % 23 + 0.25 for number in numbers],
            "at": pa.array([1_700_000_000_000_000 + number for number in numbers], pa.timestamp("us", "UTC")),
            "tags": [["a", None] if number % 2 else [] for number in numbers],
        }
    )


class Up:
    """`headgate up`, which can be started again at the same addresses."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.state = directory, directory / ".headgate"
        self.http, self.mqtt = choose_port(), choose_port()
        self.process: asyncio.subprocess.Process | None = None
        self.sockets = 0
        """So many web sockets the page has opened."""
        self._batch = 0

    async def start(self) -> None:
        command = ["-m", "headgate.cli", "up", "headgate.yaml", "--no-job"]
        places = ["--http", f"127.0.0.1:{self.http}", "--mqtt", f"127.0.0.1:{self.mqtt}"]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, *command, *places, cwd=self.directory, stderr=asyncio.subprocess.PIPE
        )
        assert self.process.stderr is not None
        said = b""
        while line := await self.process.stderr.readline():
            said += line
            if line.startswith(b"up;"):
                return
        raise AssertionError(said.decode())

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()
            await self.process.communicate()

    async def commit(self, first: int, stop: int) -> None:
        def work() -> None:
            with DirectCommits(Address(address_of(self.state / "nats"), Logs()), "test") as direct:
                direct.commit("readings", made(first, stop), self._batch, 0.0)

        await asyncio.to_thread(work)
        self._batch += 1


async def by_python(up: Up, found: Rows) -> None:
    async with await Client.connect(state_dir=up.state) as client:
        async for delivery in await client.subscribe("high", peek=True):
            for seq, row in zip(delivery.seqs.tolist(), delivery.to_pylist(), strict=True):
                found.append(json.loads(json_text({"_seq": seq, **row})))


async def by_curl(up: Up, found: Rows) -> None:
    """What curl prints; it is started again with the last id that it printed."""
    last = ""
    while True:
        headers = [f"Authorization: Bearer {read_token(up.state)}", f"Last-Event-ID: {last}"]
        options = [word for header in headers for word in ("-H", header)]
        url = f"http://127.0.0.1:{up.http}/api/subscriptions/high/events?peek=true&max_rows=7"
        async with _process("curl", "-sN", "--noproxy", "*", *options, url) as curl:
            assert curl.stdout is not None
            rows: Rows = []
            while line := (await curl.stdout.readline()).decode():
                if line.startswith("data:"):
                    rows = json.loads(line[5:]).get("rows", [])
                elif line.startswith("id:"):  # the last line of an event
                    found.extend(rows)
                    last, rows = line[3:].strip(), []
        await asyncio.sleep(0.2)


READ = """async () => {
  const { HeadgateClient } = await import('/static/client/headgate-client.js');
  window.rows = [];
  window.states = [];
  const client = new HeadgateClient(undefined, { longestWaitMs: 500, onState: (state) => window.states.push(state) });
  const read = async () => {
    const reading = client.subscribe('high', { peek: true, maxRows: 5 });
    for await (const delivery of reading) window.rows.push(...delivery.rows);
  };
  read().catch((error) => (window.problem = String(error)));
}"""


async def by_chromium(up: Up, found: Rows) -> None:
    """A web socket of Chromium, read by the client that the service serves; the page stays open through the restart."""
    async with open_chromium_beside() as browser:
        page = await browser.new_page()
        code = signed(read_token(up.state), CODE, time.time() + CODE_S)
        await page.goto(f"http://127.0.0.1:{up.http}/login?code={code}")
        await page.evaluate(READ)
        while True:
            await page.wait_for_function("() => window.rows.length || window.problem", timeout=0)
            assert (problem := await page.evaluate("() => window.problem")) is None, problem
            found.extend(await page.evaluate("() => window.rows.splice(0)"))
            up.sockets = (await page.evaluate("() => window.states")).count("open")


async def by_nats(up: Up, found: Rows) -> None:
    """The inbox itself, with nothing of ours: messages of JSON."""
    place = json.loads((up.state / "nats" / "port.json").read_text().partition(" ")[2])
    url, creds = f"nats://127.0.0.1:{place['body']['port']}", str(up.state / "nats" / "operator.creds")
    client = await nats.connect(url, user_credentials=creds, max_reconnect_attempts=-1, reconnect_time_wait=0.2)
    try:
        stream = client.jetstream()
        inbox = await stream.pull_subscribe("hg.inbox.edge.1", durable="everywhere", stream="HG_INBOX_edge")
        while True:
            try:
                for message in await inbox.fetch(10, timeout=1):
                    found.extend(json.loads(message.data)["rows"])
                    await message.ack()
            except (TimeoutError, nats.errors.Error):
                await asyncio.sleep(0.1)
    finally:
        await client.close()


@asynccontextmanager
async def _process(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env={**os.environ})
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def test_the_same_rows_by_every_way_and_through_a_restart(tmp_path: Path) -> None:
    (tmp_path / "headgate.yaml").write_text(DOCUMENT, encoding="utf-8")
    ways: list[Callable[[Up, Rows], Any]] = [by_python, by_curl, by_nats]
    if (missing := why_not()) is None:
        ways.append(by_chromium)
    else:
        print(f"the web socket is left out: {missing}")

    async def run() -> None:
        up = Up(tmp_path)
        device: Mosquitto | None = None
        found: dict[str, Rows] = {way.__name__: [] for way in ways}
        tasks: list[asyncio.Task[None]] = []
        await up.start()
        try:
            async with await Client.connect(state_dir=up.state) as client:
                password = (await client.control("device-add", name="buoy", reads=["high"]))["password"]
            login = ["-h", "127.0.0.1", "-p", str(up.mqtt), "-u", "buoy", "-P", password, "-i", "buoy", "-c", "-q", "1"]
            device = await listen(*login, "-t", "headgate/high")
            tasks = [asyncio.create_task(way(up, found[way.__name__]), name=way.__name__) for way in ways]
            await up.commit(0, 100)
            wanted = [number + 1 for number in range(200) if number % 23 + 0.25 > 10]
            half = len([seq for seq in wanted if seq <= 100])

            async def got(count: int) -> bool:
                for task in tasks:
                    if task.done():
                        await task
                assert device is not None
                return all(len(rows) >= count for rows in found.values()) and len(device.seqs) >= count

            await until(lambda: got(half))
            await up.stop()
            await up.start()
            await up.commit(100, 200)
            await until(lambda: got(len(wanted)))
            rows = [each for _, _, each in device.lines]
            assert [row["_seq"] for row in rows] == wanted
            by_seq = {row["_seq"]: row for row in rows}
            source = made(0, 200).to_pylist()
            for seq, row in by_seq.items():
                assert row == {"_seq": seq, **json.loads(json_text(source[seq - 1]))}
            for way, mine in found.items():
                assert mine == rows, way
            assert missing or up.sockets >= 2

            async def counted() -> bool:
                async with await Client.connect(state_dir=up.state) as client:
                    line = (await client.control("status"))["subscriptions"]["high"]
                    assert line["difference"] == 0
                    return bool(line["delivered"] == len(wanted) and line["in_flight"] == 0)

            await until(counted)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if device is not None:
                await device.end()
            await up.stop()

    asyncio.run(run())
