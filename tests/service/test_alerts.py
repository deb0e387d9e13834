"""Alerts: raised when something lasts, cleared when it is well for a while, told to a real receiver and a program."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.client.helpers import rows
from tests.live import running, small, until

from headgate.catalog import DeploymentError, parse_deployment
from headgate.cli.status_sheets import print_alerts
from headgate.fabric import Crew
from headgate.model.alerts import AlertRules
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.relay.node import RelayNode
from headgate.service.alerts.book import AlertBook
from headgate.service.alerts.conditions import conditions

RULES = AlertRules(contract_s=60, silent_s=10, ledger_s=5, log_share=0.9, clear_s=20)
KEY = ("contract", "storms")


def test_what_lasts_is_raised_once_and_cleared_when_it_is_well_for_a_while() -> None:
    book = AlertBook(RULES)
    assert book.update({KEY: "low"}, 0) == []
    assert book.update({}, 30_000) == []  # a moment is no alert
    assert book.update({KEY: "low"}, 40_000) == []
    assert book.update({KEY: "low"}, 99_000) == []
    (raised,) = book.update({KEY: "lower"}, 100_000)
    assert (raised.since_ms, raised.raised_ms, raised.cleared_ms, raised.text) == (40_000, 100_000, None, "lower")
    assert book.update({KEY: "lower"}, 110_000) == []
    assert book.update({}, 120_000) == []
    assert book.update({KEY: "low again"}, 130_000) == []  # it came back: one alert
    assert book.update({}, 140_000) == []
    assert book.raised == {KEY}
    again = AlertBook(RULES, book.alerts)  # a restart tells nobody again
    for each in (book, again):
        assert each.update({}, 150_000) == []
        (cleared,) = each.update({}, 170_000)
        assert (cleared.raised_ms, cleared.cleared_ms) == (100_000, 170_000)
        assert (each.raised, len(each.alerts)) == (frozenset(), 1)


def _status(quality: float | None = None, **more: Any) -> dict[str, Any]:
    planner = {"subscriptions": {"all": {"quality": quality}}}
    sites = {name: {"time_ms": 99_000} for name in ("root", "mid", "leaf")}
    return {"time_ms": 100_000, "planner": planner, "findings": [], "sites": sites, **more}


def test_every_kind_of_condition_and_where_it_ends() -> None:
    deployment = parse_deployment(
        json.dumps(small(all={"site": "leaf", "quality": {"at_least": 0.8}})), "t", GENERATOR_SCHEMAS
    )

    def found(status: dict[str, Any], logs: dict[str, float] | None = None, raised: Any = ()) -> dict[Any, str]:
        return conditions(RULES, deployment, status, logs or {}, raised, started_ms=0)

    assert found(_status()) == {}
    assert found(_status(0.8)) == {}
    low = found(_status(0.79))
    assert list(low) == [("contract", "all")]
    assert "attains 0.790 of its contracted quality 0.8" in low["contract", "all"]
    assert list(found(_status(0.81), raised=low)) == [("contract", "all")]
    assert found(_status(0.83), raised=low) == {}
    sites = {"root": {"time_ms": 90_000}, "mid": {"time_ms": 89_999}, "leaf": {"time_ms": None}}
    silent = found(_status(sites=sites))
    assert silent == {
        ("silent", "mid"): "site mid has not reported for 10 s",
        ("silent", "leaf"): "site leaf has never reported",
    }
    finding = {"kind": "difference", "subject": "stream fleet", "message": "3 rows", "hint": "", "wrong": True}
    note = {**finding, "kind": "set-aside", "wrong": False}
    assert found(_status(findings=[finding, note])) == {("ledger", "stream fleet: difference"): "stream fleet: 3 rows"}
    assert found(_status(), {"HG_X": 0.899}) == {}
    full = found(_status(), {"HG_X": 0.9})
    assert full == {("log", "HG_X"): "log HG_X is 90% full: what it takes no more waits upstream"}
    assert found(_status(), {"HG_X": 0.86}, full).keys() == full.keys()
    assert found(_status(), {"HG_X": 0.84}, full) == {}


@pytest.mark.nats
def test_what_an_alert_suggests_can_be_typed(tmp_path: Path, nats_url: str) -> None:
    contracted = {"site": "leaf", "quality": {"at_least": 0.8}}
    wanted = {
        "fast": {**contracted, "where": "speed > 20 and status = 'moving'"},
        "all-of-it": contracted,
        "mine": {**contracted, "where": "speed > $least", "context": {"least": 20}},
        "long": {**contracted, "where": " or ".join(f"speed > {number}.5" for number in range(100, 130))},
    }

    async def run() -> None:
        async with running(small(**wanted), tmp_path, nats_url) as live:
            await live.commit("fleet", rows(0, 40), 0)
            deployment = live.runtime.catalog.snapshot().deployment
            status = _status()
            status["planner"] = {"subscriptions": {name: {"quality": 0.5} for name in wanted}}
            said = conditions(RULES, deployment, status, {}, (), started_ms=0)
            fast = [number + 1 for number, row in enumerate(rows(0, 40).to_pylist())
                    if row["speed"] > 20 and row["status"] == "moving"]  # fmt: skip
            for name in wanted:
                suggested = said["contract", name].split("`")[1]
                program, *words = shlex.split(suggested)
                assert (program, words[:2]) == ("headgate", ["why", name])
                place = ["--nats", nats_url, "--namespace", live.address.logs.namespace]
                asked = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "headgate.cli", *words, *place, stdout=-1, stderr=-1
                )
                told, error = await asyncio.wait_for(asked.communicate(), 60)
                assert asked.returncode == 0, error.decode()
                assert told.decode().startswith(f"Row {fast[-1] if name == 'fast' else 40} "), (suggested, told)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("alerts", "said"),
    [
        ({"webhooks": ["http://example.org/x"]}, "an address beyond this machine needs https"),
        ({"webhooks": ["ftp://example.org"]}, "is no address"),
        ({"commands": ["a 'b"]}, "is no command"),
        ({"log": 2}, "log"),
        ({"webhook": []}, "did you mean 'webhooks'?"),
    ],
)
def test_what_is_wrong_in_the_file_is_said(alerts: dict[str, Any], said: str) -> None:
    with pytest.raises(DeploymentError) as error:
        parse_deployment(json.dumps({**small(), "alerts": alerts}), "t.yaml", GENERATOR_SCHEMAS)
    assert said in str(error.value)


class Receiver(HTTPServer):
    """A webhook: refuses the first document that comes, and takes the others."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[dict[str, Any]] = []
        self.refused = 0


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.server.refused:
            self.server.refused += 1
            self.send_error(503)
            return
        self.server.got.append(document)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.mark.long
@pytest.mark.nats
def test_a_silent_site_is_told_to_a_webhook_and_a_program_and_so_is_its_return(
    tmp_path: Path, nats_url: str, receiver: Receiver
) -> None:
    told = tmp_path / "told.jsonl"
    program = f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read() + '\\n')"
    document = small(all={"site": "leaf"})
    document["alerts"] = {
        "silent": "1 s",
        "clear": "1 s",
        "webhooks": [f"http://127.0.0.1:{receiver.server_port}/alerts"],
        "commands": [[sys.executable, "-c", program]],
    }

    def heard(state: str) -> set[str]:
        return {each["subject"] for each in receiver.got if each["state"] == state}

    async def everybody(state: str) -> bool:
        return heard(state) == {"root", "mid", "leaf"}

    async def run() -> None:
        async with (
            running(document, tmp_path, nats_url, relays=False, alert_every_s=0.2) as live,
            Crew() as crew,
        ):
            await until(lambda: everybody("raised"))
            assert receiver.refused == 1  # it was told again
            status = await live.runtime.status()
            assert {each["subject"] for each in status["alerts"] if each["cleared_ms"] is None} == heard("raised")
            console = Console(record=True, width=100)
            print_alerts(console, status)
            assert "site mid has never reported" in console.export_text()
            for site in ("root", "mid", "leaf"):
                crew.spawn(RelayNode(live.client.fabric, site).run())
            await until(lambda: everybody("cleared"))
            assert [each for each in (await live.runtime.status())["alerts"] if each["cleared_ms"] is None] == []

            async def written() -> bool:
                return told.exists() and len(told.read_text().splitlines()) == len(receiver.got)

            await until(written)

    asyncio.run(run())
    states = [(each["state"], each["subject"]) for each in map(json.loads, told.read_text().splitlines())]
    assert sorted(states) == sorted((each["state"], each["subject"]) for each in receiver.got)
    assert len({each["deployment"] for each in receiver.got}) == 1
