"""Moving, detaching and sending from the command line, and what `headgate status` says about it."""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.client.helpers import read, rows, seqs
from tests.live import Live, running, small, until
from typer.testing import CliRunner

from headgate.cli import app as program
from headgate.cli.groups import Program

pytestmark = pytest.mark.nats


def _document() -> dict[str, Any]:
    auto = {"levels": "auto", "allow": [{"every": 2}, {"latest": 1, "key": "vehicle"}], "max_rows": 50}
    document = small(mine={"site": "mid"}, tuned={"site": "root", "policy": auto})
    document["streams"]["typed"] = {
        "root": "root",
        "schema": {"sensor": "string", "at": "timestamp"},
        "source": {"format": "nats", "payload": "jsonl"},
    }
    return document


def _invoke(live: Live, *arguments: str, text: str | None = None) -> str:
    application = Program()
    for module in program.COMMANDS:
        importlib.import_module(module).register(application)
    where = ["--nats", live.address.url, "--namespace", live.address.logs.namespace]
    result = CliRunner().invoke(application, [*arguments, *where], input=text)
    assert result.exit_code == 0, result.output
    return result.output


@contextmanager
def _deployment(directory: Path, nats_url: str) -> Iterator[tuple[Live, Callable[[Coroutine[Any, Any, Any]], Any]]]:
    """A deployment in a thread, because the program wants the main one; and what runs a coroutine over there."""
    ready: Future[Live] = Future()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with running(_document(), directory, nats_url) as live:
            ready.set_result(live)
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        yield ready.result(60), lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(60)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        loop.close()


def test_status_tells_of_readers_who_are_away_and_of_levels_in_another_order(tmp_path: Path, nats_url: str) -> None:
    with _deployment(tmp_path, nats_url) as (live, do):
        do(live.commit("fleet", rows(0, 300), 0))
        _invoke(live, "detach", "mine", "--expires", "10 min")
        _invoke(live, "move", "mine", "--to", "root")
        do(until(lambda: _reordered(live)))
        (change,) = json.loads(_invoke(live, "status", "--json"))["reorderings"]
        assert (change["site"], change["subscriptions"]) == ("root", ["tuned"])
        assert (change["before"], change["after"]) == (["every", "latest"], ["latest", "every"])
        assert 0.5 == change["fractions"][0] > change["fractions"][1]
        shown = _invoke(live, "status")
        assert "root: levels of tuned were every > latest, now latest > every" in shown
        assert "mine has moved to root; its reader drains mid then root" in shown
        assert "mine has been detached for" in shown
        assert "its rows are kept for 600 s" in shown
        assert seqs(do(read(live.client, "mine", 300))) == list(range(1, 301))
        assert "mine has been detached" not in _invoke(live, "status")

        lines = "".join(json.dumps({"sensor": f"s{number}"}) + "\n" for number in range(20))
        sent = json.loads(_invoke(live, "publish", "typed", "-", "--live", text=lines))
        assert (sent["offered"], sent["stored"], sent["waiting"], sent["reduced"]) == (20, 20, 0, {})
        fabric, logs = live.client.fabric, live.client.fabric.logs
        stored = do(fabric.read(logs.input("typed"), logs.published("typed"), 0))
        assert "\n".join(each.data.decode() for each in stored).count("sensor") == 20


async def _reordered(live: Live) -> bool:
    return bool((await live.runtime.status())["reorderings"])
