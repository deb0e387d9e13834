"""`headgate ledger` and `headgate unreadable` over logs that hold garbage; nothing else runs."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from dataclasses import dataclass

import numpy as np
import pytest
from typer.testing import CliRunner

from headgate.cli import status, unreadable
from headgate.cli.groups import Program
from headgate.errors import HeadgateError
from headgate.fabric import Fabric
from headgate.model import Deployment, Schema, Site, Source, Stream, Subscription
from headgate.protocol.reports import JobReport, OutputReport, RelayReport
from headgate.relay.tables import Tables, publish_snapshot
from headgate.service.observer import Observer
from headgate.wire.ledger import Tally
from headgate.wire.logs import Logs
from headgate.wire.manifest import Manifest, PartRef, encode_manifest
from headgate.wire.snapshot import Snapshot

pytestmark = pytest.mark.nats
STREAM = Stream("fleet", Schema.of({"x": "int"}), Source("generator"), "oslo")
SNAPSHOT = Snapshot(
    1,
    Deployment({"fleet": STREAM}, {"oslo": Site("oslo")}, subscriptions={"map": Subscription("map", "fleet", "oslo")}),
    None,
    {"map": 1},
    {"map": 7},
)


def manifest(batch: int) -> bytes:
    ids, counts = np.array([7], np.uint64), np.array([10], np.uint64)
    committed_ms = int(time.time() * 1000) - 600_000
    return encode_manifest(
        Manifest("fleet", "line", batch, 1, 10 * batch, (PartRef(0, 10, 0),), ids, counts, time_ms=committed_ms)
    )


@dataclass
class Deployed:
    """A namespace with a stream of ten rows, all of them delivered."""

    url: str
    logs: Logs

    def publish(self, subject: str, data: bytes) -> int:
        async def work() -> int:
            async with await Fabric.connect(self.url, self.logs) as fabric:
                return await fabric.publish(subject, data)

        return asyncio.run(work())

    def run(self, *arguments: str, code: int) -> str:
        app = Program()
        status.register(app)
        unreadable.register(app)
        result = CliRunner().invoke(app, [*arguments, "--nats", self.url, "--namespace", self.logs.namespace])
        if isinstance(result.exception, HeadgateError):
            return str(result.exception)
        assert result.exit_code == code, result.output or result.exception
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        return result.output


@pytest.fixture
def deployed(nats_url: str) -> Deployed:
    found = Deployed(nats_url, Logs(f"l{uuid.uuid4().hex[:12]}"))

    async def prepare() -> None:
        logs = found.logs
        async with await Fabric.connect(nats_url, logs) as fabric:
            for log in (logs.state, logs.tables, logs.root("fleet")):
                await fabric.ensure(log)
            await publish_snapshot(fabric, SNAPSHOT)
            await fabric.publish(logs.commit("fleet"), manifest(0))
            tally = Tally(1, starts=0, boundary=10, mark=10, delivered=10)
            await fabric.publish(logs.ack(1), tally.encode())

    asyncio.run(prepare())
    return found


def test_the_ledger_is_0_while_everything_is_accounted_for(deployed: Deployed) -> None:
    assert "1 subscription, ledger difference 0" in deployed.run("ledger", code=0)


def test_a_failed_stream_is_named_and_the_ledger_exits_1(deployed: Deployed) -> None:
    report = JobReport(state="failed", time_ms=1, pid=2, error="no such directory: incoming")
    deployed.publish(deployed.logs.stats("job", "fleet"), report.encode())
    said = deployed.run("ledger", code=1)
    assert "stream fleet: failed and is tried again: no such directory: incoming" in said
    assert "ledger difference 0, 1 finding" in said
    document = json.loads(deployed.run("ledger", "--json", code=1))
    assert [(each["kind"], each["wrong"]) for each in document["findings"]] == [("failed", True)]
    assert "failed and is tried again" in deployed.run("status", code=0)


def test_in_flight_has_its_oldest_age(deployed: Deployed) -> None:
    deployed.publish(deployed.logs.commit("fleet"), manifest(1))
    line = next(line for line in deployed.run("ledger", code=0).splitlines() if line.startswith("map"))
    assert "10 min" in line


def relay_report(coverage: int, rows: int = 0) -> bytes:
    output = OutputReport(rows=rows, coverage=coverage)
    outputs, passed = {"sub~fleet~1~0": output}, {"fleet": coverage}
    return RelayReport(site="oslo", time_ms=int(time.time() * 1000), outputs=outputs, passed=passed).encode()


@pytest.mark.parametrize(("coverage", "code"), [(10, 1), (20, 0)])
def test_rows_that_the_root_has_not_passed_on_for_long_are_a_stalled_stream(
    deployed: Deployed, coverage: int, code: int
) -> None:
    deployed.publish(deployed.logs.commit("fleet"), manifest(1))
    deployed.publish(deployed.logs.stats("relay", "oslo"), relay_report(coverage))
    said = deployed.run("ledger", code=code)
    stalled = "stream fleet: rows were committed 10 min ago, and the relay of 'oslo' has not passed them on"
    assert (stalled in said) == bool(code)


def test_an_output_that_does_not_move_while_rows_wait_is_found(deployed: Deployed) -> None:
    async def observe() -> None:
        async with await Fabric.connect(deployed.url, deployed.logs) as fabric:
            observer = Observer(fabric, Tables(fabric))
            now_ms = int(time.time() * 1000)
            observer._standing._since = {("oslo", "sub~fleet~1~0"): (10, now_ms - 60_000)}
            await observer._read()

    deployed.publish(deployed.logs.stats("relay", "oslo"), relay_report(10, rows=5))
    asyncio.run(observe())
    assert "site oslo: the inbox of map has not moved for 60 s while 5 rows wait" in deployed.run("ledger", code=1)


def test_a_commit_that_cannot_be_read_is_named_and_can_be_dropped(deployed: Deployed) -> None:
    logs = deployed.logs
    place = deployed.publish(logs.commit("fleet"), b"garbage")
    name = f"{logs.root('fleet').name}:{place}"
    said = " ".join(deployed.run("ledger", code=1).split())
    assert f"message {place} of log {logs.root('fleet').name}" in said
    assert "is shorter than any frame" in said
    assert f"headgate unreadable --drop {name}" in said
    assert name in deployed.run("unreadable", code=0)
    assert "no unreadable message" in deployed.run("unreadable", "--drop", f"{logs.root('fleet').name}:1", code=1)
    assert f"{name} is deleted" in deployed.run("unreadable", "--drop", name, code=0)
    assert "ledger difference 0" in deployed.run("ledger", code=0)


def test_an_acknowledgement_that_cannot_be_read_is_a_finding(deployed: Deployed) -> None:
    place = deployed.publish(deployed.logs.ack(1), b"{}")
    said = " ".join(deployed.run("ledger", code=1).split())
    assert f"subscription map: what it has acknowledged is not known: message {place} of log" in said


def test_garbage_that_is_no_term_is_a_note(deployed: Deployed) -> None:
    place = deployed.publish(deployed.logs.head, b"garbage")
    said = " ".join(deployed.run("ledger", code=0).split())
    assert f"message {place} on {deployed.logs.head} cannot be read" in said
    assert "ledger difference 0" in said
