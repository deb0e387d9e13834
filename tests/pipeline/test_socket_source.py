"""Lines of a socket as a source: what is read, and what a restart does to a source that keeps nothing."""

from __future__ import annotations

import asyncio
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.live import running, sites, until

from headgate.fabric import SyncFabric
from headgate.pipeline.query import QuerySettings, start_query

pytestmark = [pytest.mark.spark, pytest.mark.nats]


class _Lines(socketserver.ThreadingTCPServer):
    """Sends whoever connects the lines that there are then and those that come later."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Sender)
        self.changed = threading.Condition()
        self.lines: list[str] = []
        self.closed = False
        self.connections = 0

    def say(self, *lines: str) -> None:
        """More lines for whoever is connected."""
        with self.changed:
            self.lines += lines
            self.changed.notify_all()


class _Sender(socketserver.BaseRequestHandler):
    server: _Lines

    def handle(self) -> None:
        lines = self.server
        with lines.changed:
            sent = len(lines.lines)  # what nobody was connected for is gone
            lines.connections += 1
        while not lines.closed:
            with lines.changed:
                while len(lines.lines) == sent and not lines.closed:
                    lines.changed.wait()
                fresh, sent = lines.lines[sent:], len(lines.lines)
            with suppress(OSError):  # who was connected is gone
                self.request.sendall("".join(f"{line}\n" for line in fresh).encode())


@contextmanager
def serving() -> Iterator[_Lines]:
    with _Lines() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            with server.changed:
                server.closed = True
                server.changed.notify_all()
            server.shutdown()
            thread.join()


def line(number: int, **more: Any) -> str:
    return json.dumps({"n": number, **more})


def test_lines_are_rows_and_a_restart_goes_on_with_the_next_ones(spark: Any, tmp_path: Path, nats_url: str) -> None:
    async def run() -> None:
        with serving() as server:
            source = {"format": "socket", "host": "127.0.0.1", "port": server.server_address[1], "payload": "json"}
            document = {
                "sites": sites("root"),
                "streams": {"s": {"root": "root", "schema": {"n": "int"}, "source": source}},
                "subscriptions": {"all": {"stream": "s", "site": "root"}},
            }
            async with running(document, tmp_path, nats_url, spark) as live:
                live.readers.start(["all"])
                stream = live.runtime.catalog.snapshot().deployment.streams["s"]

                async def rows_in() -> int:
                    return int((await live.runtime.status())["streams"]["s"]["rows_in"])

                async def reads(first: int, *strange: str) -> None:
                    """Run a query until it has read ten more rows, which are sent when it is connected."""
                    before, connections = await rows_in(), server.connections
                    with SyncFabric(live.address.url, live.address.logs) as fabric:
                        place = tmp_path / "checkpoints" / "s"
                        query = await asyncio.to_thread(
                            start_query, spark, stream, live.address, fabric, place, QuerySettings(trigger_s=0.1)
                        )
                        try:

                            async def ready() -> bool:
                                assert query.exception() is None, query.exception()
                                return server.connections > connections

                            await until(ready)
                            server.say(*(line(k) for k in range(first, first + 10)), *strange)

                            async def read() -> bool:
                                assert query.exception() is None, query.exception()
                                return await rows_in() >= before + 10 + len(strange)

                            await until(read)
                        finally:
                            await asyncio.to_thread(query.stop)

                await reads(0, "not json", '{"n": "two"}')
                server.say(line(10))  # nobody is connected: it is lost
                await reads(11)
                status = await live.settle()
                assert status["streams"]["s"]["dead"] == 2
                # Spark deals the lines of a micro-batch to its tasks in turn.
                assert sorted(live.rows("all")["n"].to_pylist()) == [*range(10), *range(11, 21)]
                assert live.seqs("all") == list(range(1, 21))

    asyncio.run(run())
