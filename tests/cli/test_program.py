"""The real program as a process: one deployment that most tests share, and one that is taken apart."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
import yaml
from tests.live import sites, until

from headgate.client import SyncClient
from headgate.fabric.server import running_url
from headgate.pipeline.sources import generate
from headgate.pipeline.worker import Address
from headgate.wire.ledger import Tally
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

pytestmark = [pytest.mark.nats, pytest.mark.live]

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1", "COLUMNS": "100"}
PROGRAM = (sys.executable, "-m", "headgate.cli.app")


@dataclass
class Place:
    """A state directory, and the program as its user runs it."""

    state: Path
    file: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [*PROGRAM, *arguments, "--state-dir", str(self.state)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.started.append(process)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End what a failed test has left."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def run(self, *arguments: str, code: int = 0) -> str:
        """What the program prints; on standard error where it fails."""
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == code, (output, errors)
        return output if code in (0, 1) else errors

    def up(self, *more: str) -> subprocess.Popen[str]:
        return self.ready(self.start("up", str(self.file), "--no-job", "--no-http", *more), "up;")

    @staticmethod
    def ready(process: subprocess.Popen[str], word: str) -> subprocess.Popen[str]:
        assert process.stderr is not None
        told = []
        while line := process.stderr.readline():
            told.append(line)
            if word in line:
                return process
        raise AssertionError("".join(told))

    def commit(self, first: int, stop: int, batch: int) -> None:
        """Rows as the Spark job commits them."""
        url = running_url(self.state)
        assert url is not None
        with DirectCommits(Address(url, Logs()), "test") as direct:
            direct.commit("fleet", generate("fleet", 3, first, stop), batch, 0.0)

    def processes(self) -> list[str]:
        """Programs that still have to do with this directory."""
        found = []
        for each in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = each.read_bytes()
            except OSError:
                continue
            if str(self.state).encode() in command:
                found.append(command.decode(errors="replace"))
        return found


def ended(process: subprocess.Popen[str], number: signal.Signals) -> int:
    process.send_signal(number)
    process.communicate(timeout=60)
    return process.returncode


def place_at(directory: Path, **subscriptions: dict[str, Any]) -> Place:
    document = {
        "sites": sites("root", "leaf"),
        "streams": {"fleet": {"root": "root", "source": {"format": "generator", "kind": "fleet", "seed": 3}}},
        "plan": {"fleet": {"leaf": "root"}},
        "subscriptions": {name: {"stream": "fleet", **each} for name, each in subscriptions.items()},
    }
    file = directory / "a deployment.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return Place(directory / "dir with space", file)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A deployment that is up, with forty rows committed."""
    found = place_at(
        tmp_path_factory.mktemp("program"),
        all={"site": "leaf"},
        fast={"site": "leaf", "where": "speed > $limit", "context": {"limit": 0}},
        plain={"site": "root", "format": "json", "select": ["vehicle", "at"]},
        wronged={"site": "root"},
    )
    with found:
        process = found.up()
        found.commit(0, 40, 0)
        yield found
        assert ended(process, signal.SIGTERM) == 0
        assert found.processes() == []


def test_status_shows_it_for_people_and_for_programs(place: Place) -> None:
    async def linked() -> dict[str, Any] | None:
        status: dict[str, Any] = json.loads(await asyncio.to_thread(place.run, "status", "--json"))
        return status if "root->leaf" in status["links"] else None

    status = asyncio.run(until(linked))
    assert status["streams"]["fleet"]["rows_in"] == 40
    assert set(status["subscriptions"]) >= {"all", "fast", "plain", "wronged"}
    shown = place.run("status")
    for word in ("fleet", "leaf", "root->leaf", "wronged", "40"):
        assert word in shown
    assert "…" not in shown


@pytest.mark.long
def test_tail_goes_on_where_the_one_before_stopped(place: Place) -> None:
    first = [json.loads(line) for line in place.run("tail", "all", "--json", "-n", "3").splitlines()]
    assert [row["_seq"] for row in first] == [1, 2, 3]
    assert [{name: row[name] for name in ("vehicle", "speed")} for row in first] == (
        pa.Table.from_batches([generate("fleet", 3, 0, 3)]).select(["vehicle", "speed"]).to_pylist()
    )
    assert [line.split()[0] for line in place.run("tail", "all", "--peek", "-n", "2").splitlines()] == ["4", "5"]
    assert [line.split()[0] for line in place.run("tail", "all", "-n", "37").splitlines()] == [*map(str, range(4, 41))]
    idle = place.ready(place.start("tail", "all"), "-- waiting for the next rows of stream fleet (Ctrl-C ends)")
    assert ended(idle, signal.SIGINT) == 130
    rows = [json.loads(line) for line in place.run("tail", "plain", "--json", "-n", "40").splitlines()]
    assert [sorted(row) for row in rows] == [["_seq", "at", "vehicle"]] * 40


@pytest.mark.long
def test_subscriptions_come_change_and_go(place: Place) -> None:
    added = json.loads(place.run("subscribe", "new", "--stream", "fleet", "--site", "leaf", "--wait", "0.1 s"))
    assert added["starts"] is None
    options = ("--where", "speed < 0", "--select", "vehicle, at", "--set", "weight=3", "--change", "--wait", "0.1 s")
    changed = json.loads(place.run("subscribe", "new", "--stream", "fleet", "--site", "leaf", *options))
    assert (changed["id"], changed["revision"] > added["revision"]) == (added["id"], True)
    first, second = (json.loads(place.run("context", "fast", f"limit={limit}"))["place"] for limit in (12.5, 13))
    assert second > first, "updates have places in the stream's order"
    assert json.loads(place.run("unsubscribe", "new"))["revision"] > changed["revision"]
    assert "did you mean 'fast'?" in place.run("context", "fest", "limit=1", code=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tail", "al"), "no subscription 'al' (did you mean 'all'?)"),
        (("dead", "fleat"), "no stream 'fleat' (did you mean 'fleet'?)"),
        (("up", "FILE", "--no-job"), "a deployment is already running in"),
    ],
)
def test_a_wrong_word_is_one_line_and_exit_2(place: Place, arguments: tuple[str, ...], said: str) -> None:
    errors = place.run(*(str(place.file) if each == "FILE" else each for each in arguments), code=2)
    assert said in errors
    assert "Traceback" not in errors


@pytest.mark.long
def test_a_user_works_with_a_credentials_file(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "ada.creds"
    place.run("user", "add", "ada", "--subscribe", "fleet", "--expires", "1 h", "--out", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "there is a file" in place.run("user", "rotate", "ada", "--out", str(file), code=2)
    as_ada = ("--creds", str(file))
    made = json.loads(place.run("subscribe", "hers", "--stream", "fleet", "--site", "leaf", "--wait", "0.1 s", *as_ada))
    place.commit(40, 50, 1)
    assert len(place.run("tail", "hers", "-n", "10", *as_ada).splitlines()) == 10
    assert "no subscription 'all'" in place.run("tail", "all", "-n", "1", *as_ada, code=2)
    assert "no subscription 'all' of yours" in place.run("unsubscribe", "all", *as_ada, code=2)
    assert "user 'ada' may not ask for 'user-list'" in place.run("user", "list", *as_ada, code=2)
    assert "user 'ada' may not look at the whole deployment" in place.run("status", *as_ada, code=2)
    assert list(json.loads(place.run("mine", "--json", *as_ada))) == ["hers"]
    assert "wronged" in place.run("mine")
    (listed,) = json.loads(place.run("user", "list", "--json"))
    assert (listed["name"], listed["role"], listed["subscribes"]) == ("ada", "subscriber", ["fleet"])
    assert "ada" in place.run("user", "list")
    assert json.loads(place.run("unsubscribe", "hers", *as_ada))["revision"] > made["revision"]
    place.run("user", "revoke", "ada")
    assert "--creds" in place.run("tail", "hers", *as_ada, code=2)
    shown = place.run("audit")
    assert "user revoke ada" in shown
    assert "subscribe hers" in shown
    assert [json.loads(line)["what"] for line in place.run("audit", "--who", "ada", "--json").splitlines()] == [
        "subscribe hers",
        "unsubscribe hers",
    ]
    assert "the chain is whole" in place.run("audit", "--verify")
    assert place.run("verify").endswith("nothing wrong\n")
    place.run("backup", str(tmp_path / "copy"))  # of a deployment that runs
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600


@pytest.mark.long
def test_the_ledger_fails_on_a_wrong_count_and_only_then(place: Place) -> None:
    assert "ledger difference 0" in place.run("ledger")
    url = running_url(place.state)
    place.run("tail", "wronged", "-n", "40")
    with SyncClient(url) as client:
        fabric = client._client.fabric
        subject = fabric.logs.ack(client._run(client._client.snapshot()).subscription_ids["wronged"])
        stored = client._run(fabric.last(fabric.logs.state, subject))
        tally = Tally.decode(stored.data)
        assert tally.delivered == 40
        try:
            client._run(fabric.publish(subject, replace(tally, delivered=39).encode()))
            document = json.loads(place.run("ledger", "--json", code=1))
            assert document["wrong"] == ["subscription wronged: 1 rows missing"]
        finally:
            client._run(fabric.publish(subject, stored.data))


@pytest.mark.long
def test_relays_alone_stop_with_ctrl_c_and_the_ledger_can_be_read_afterwards(tmp_path: Path) -> None:
    with place_at(tmp_path, here={"site": "root"}) as place:
        logged = ("--log-level", "info", "--log-format", "json")
        process = place.up("--no-relays", *logged)
        relay = place.ready(place.start("relay", "--site", "root", *logged), "relay root is up")
        place.commit(0, 20, 0)
        assert len(place.run("tail", "here", "-n", "20").splitlines()) == 20
        assert "did you mean 'root'?" in place.run("relay", "--site", "rot", code=2)
        relay.send_signal(signal.SIGINT)
        said = [json.loads(line) for line in relay.communicate(timeout=60)[1].splitlines()]
        assert {each["site"] for each in said if each["logger"] == "headgate.relay.root"} <= {"root"}
        assert relay.returncode == 0
        process.send_signal(signal.SIGINT)
        records = [json.loads(line) for line in process.communicate(timeout=60)[1].splitlines()]
        assert records[-1]["message"] == "stopping"
        assert process.returncode == 0
        asyncio.run(until(lambda: _nothing(place)))
        entry = json.loads(place.run("ledger", "--json"))["subscriptions"]["here"]
        assert (entry["delivered"], entry["in_flight"], entry["difference"]) == (20, 0, 0)
        assert re.match(r"stopped at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, \d+ s ago", place.run("status"))
        assert "nothing is running in" in place.run("tail", "here", code=2)
        assert place.processes() == []


async def _nothing(place: Place) -> bool:
    return place.processes() == []
