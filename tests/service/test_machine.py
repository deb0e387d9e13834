"""The machine under a deployment: a disk that fills, a catalog that is locked, a port that is taken."""

import asyncio
import time
from pathlib import Path

import pytest
from tests.live import running, until

from headgate.cli.machine import machine_lines
from headgate.client import ClientError
from headgate.fabric import EmbeddedServer, Fabric, FabricError, LogFullError
from headgate.pipeline.job import JobConfig
from headgate.protocol.reports import MachineReport
from headgate.service.machine import Disk
from headgate.service.processes import JobProcess
from headgate.service.runtime import Runtime
from headgate.wire.logs import Log
from headgate_studies.testing.machines import FULL, KINDS, LOCKED, full_disk, run_campaign, small_disk

NOTES = """
sites: {home: {}}
streams: {notes: {root: home, source: {format: nats}, schema: {text: string}}}
subscriptions: {}
"""


@pytest.mark.long
@pytest.mark.live
def test_everything_goes_on_by_itself_after_a_full_disk_a_locked_catalog_and_a_taken_port(tmp_path: Path) -> None:
    outcome = asyncio.run(run_campaign(seed=5, seconds=15.0, directory=tmp_path))
    assert outcome.wrong == []
    assert outcome.faults.keys() == (set(KINDS) if not outcome.skipped else set(KINDS) - {FULL})
    assert outcome.ports > 1
    assert outcome.server_restarts >= outcome.faults["taken port"] + outcome.faults.get(FULL, 0)
    assert outcome.moves > 0
    assert outcome.ledger_looks > 10
    assert outcome.matched > outcome.rows > 100
    assert LOCKED in outcome.recovery_s


@pytest.mark.parametrize(
    ("free", "short", "ample", "last"),
    [
        (0, True, False, True),
        (249, True, False, True),
        (250, True, False, False),
        (999, True, False, False),
        (1000, False, False, False),
        (1249, False, False, False),
        (1250, False, True, False),
    ],
)
def test_a_disk_at_its_limits(free: int, short: bool, ample: bool, last: bool) -> None:
    disk = Disk(free, 1000)
    assert (disk.short, disk.ample, disk.last) == (short, ample, last)


def test_below_the_reserve_nothing_comes_in_and_status_says_why(nats_url: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with running(NOTES, tmp_path, nats_url) as live:
            runtime, client = live.runtime, live.client
            await client.publish("notes", [{"text": "before"}])
            runtime.machine._reserve_bytes = 1 << 60
            await until(lambda: _paused(runtime, True))
            with pytest.raises(LogFullError):
                await client.publish("notes", [{"text": "while"}])
            with pytest.raises(ClientError, match=r"almost full .* so nothing was changed"):
                await client.control("subscribe", name="new", subscription={"stream": "notes", "site": "home"})
            status = await client.control("status")
            assert status["streams"]["notes"]["job"]["state"] == "paused"
            (line,) = machine_lines(status["machine"])
            assert "intake is PAUSED" in line
            assert str(tmp_path) in line
            assert machine_lines(await client.control("machine")) == [line]
            runtime.machine._reserve_bytes = 0
            await until(lambda: _paused(runtime, False))
            await client.publish("notes", [{"text": "after"}])
            await client.control("subscribe", name="new", subscription={"stream": "notes", "site": "home"})
            assert machine_lines((await client.control("status"))["machine"]) == []
            stored = await client.fabric.read(client.fabric.logs.input("notes"), ">", 0)
            assert len(stored) == 2

    asyncio.run(run())


async def _paused(runtime: Runtime, paused: bool) -> bool:
    machine = runtime.machine
    stored = await runtime.fabric.last(runtime.fabric.logs.state, runtime.fabric.logs.stats("machine", "_"))
    said = stored is not None and (MachineReport.decode(stored.data).paused_ms is not None) is paused
    return said and machine._applied and (machine.paused_ms is not None) is paused


@pytest.mark.long
@pytest.mark.nats
def test_a_server_that_cannot_write_is_told_by_its_log_and_config_survives(tmp_path: Path) -> None:
    log = Log("L", ("l.>",), 1 << 30)

    async def fill(server: EmbeddedServer) -> None:
        async with await Fabric.connect(server.url) as fabric:
            await fabric.ensure(log)
            await fabric.publish("l.a", b"x")
            assert server.write_error() is None
            with full_disk(tmp_path):
                with pytest.raises(FabricError):
                    await fabric.publish("l.a", b"x" * 1_000_000, timeout_s=2)
                # A start on a full disk leaves the files of the state directory whole.
                server.kill()
                before = (server.directory / "server.conf").read_text()
                server.port_file.unlink()
                with full_disk(server.directory), pytest.raises(FabricError, match="cannot be started"):
                    server.start()
                assert (server.directory / "server.conf").read_text() == before
            server.start()
            assert server.write_error() is None

    async def failing(server: EmbeddedServer) -> None:
        async with await Fabric.connect(server.url) as fabric:
            with full_disk(tmp_path), pytest.raises(FabricError):
                await fabric.publish("l.a", b"x" * 1_000_000, timeout_s=2)
            # There is room again, and the log does not take anything until the server is started anew.
            with pytest.raises(FabricError):
                await fabric.publish("l.a", b"y", timeout_s=1)
            assert "no space left on device" in (server.write_error() or "")

    with small_disk(tmp_path, 16) as mounted:
        if not mounted:
            pytest.skip("a file system cannot be mounted here")
        with EmbeddedServer(tmp_path / "state", sync_always=False) as server:
            asyncio.run(fill(server))
            asyncio.run(failing(server))
            server.stop()
            server.start()
            assert server.write_error() is None


def test_a_paused_job_ends_and_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(_sleeper(tmp_path)))

    async def run() -> None:
        job = JobProcess(lambda _: JobConfig("nats://nowhere", "hg", str(tmp_path)), tmp_path)
        running = asyncio.create_task(job.run())
        first = await until(lambda: _pid(job))
        await job.pause()
        assert job.pid is None
        job.resume()
        second = await until(lambda: _pid(job))
        assert second != first
        assert job.restarts == 0  # a pause is no failure
        await job.stop()
        await asyncio.wait_for(running, 60)

    asyncio.run(run())


async def _pid(job: JobProcess) -> int | None:
    return job.pid


def _sleeper(directory: Path) -> Path:
    """A program that takes any arguments and sleeps."""
    program = directory / "sleeper"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    return program


def test_lines_name_what_is_wrong_and_what_ends_it() -> None:
    document = {
        "directory": "/var/headgate",
        "free_bytes": 1_000_000,
        "reserve_bytes": 64_000_000,
        "paused_ms": time.time() * 1000 - 90_000,
        "failing": "Filestore [HG_STATE] Critical write error",
    }
    first, second = machine_lines(document)
    assert first.startswith("intake is PAUSED for 90 s: the disk of /var/headgate is almost full (1.0 MB free")
    assert second.startswith("the NATS server does not store: Filestore [HG_STATE] Critical write error")
    assert machine_lines({**document, "paused_ms": None, "failing": None}) == []
    assert machine_lines({}) == []
