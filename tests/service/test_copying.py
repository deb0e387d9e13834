"""A backup of a deployment that runs: what is restored from it goes on exactly, whenever it was taken."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.live import until
from tests.service.test_users import World, world

from headgate.client import Client
from headgate.fabric import EmbeddedServer
from headgate.protocol.acks import read_tally
from headgate.service import copying
from headgate.service.backup import BackupError, make_backup, restore_backup
from headgate.service.copying import copy_running, held_still
from headgate.service.verifying import verify_directory
from headgate.wire.logs import Logs

LOGS = Logs()


async def _committed(client: Client) -> tuple[int, int]:
    """The number of the last batch that was committed, and its last row."""
    stored = await client.fabric.last(LOGS.root("fleet"), LOGS.commit("fleet"))
    assert stored is not None
    manifest = client.fabric.codec.manifest(stored.data)
    return manifest.batch, manifest.upto


async def _read(client: Client, seqs: list[int]) -> None:
    inbox = await client.subscribe("theirs")
    async for delivery in inbox:
        seqs += delivery.seqs.tolist()
        inbox.done()


@pytest.mark.long
@pytest.mark.nats
def test_a_backup_of_a_running_deployment_goes_on_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are committed, read and acknowledged all the time; three backups are taken, and each is gone on from.

    Files are copied slowly, so that they would be of many moments if nothing were held still.
    """
    copy_file = copying._copy_file

    def slowly(source: Path, target: Path) -> None:
        time.sleep(0.05)
        copy_file(source, target)

    monkeypatch.setattr(copying, "_copy_file", slowly)
    state, count = tmp_path / "state", 3
    files = [tmp_path / f"{number}.backup" for number in range(count)]

    async def take() -> None:
        async with world(tmp_path) as here:
            seqs: list[int] = []
            reading = asyncio.create_task(_read(here.operator, seqs))
            committing = asyncio.create_task(_commit_on(here))
            try:
                for number, file in enumerate(files):
                    before = len(seqs)
                    await until(lambda before=before: _more(seqs, before))  # type: ignore[misc]
                    copy = tmp_path / f"copy-{number}"
                    still_s = await asyncio.to_thread(copy_running, state, copy)
                    assert still_s < copying.STILL_S
                    make_backup(copy, file)
                before = len(seqs)
                await until(lambda: _more(seqs, before))  # it goes on
            finally:
                committing.cancel()
                reading.cancel()
                await asyncio.gather(committing, reading, return_exceptions=True)
            assert seqs == list(range(1, len(seqs) + 1))

    asyncio.run(take())
    ends = [asyncio.run(_go_on(tmp_path / f"restored-{number}", file)) for number, file in enumerate(files)]
    assert ends == sorted(set(ends))


async def _more(seqs: list[int], before: int) -> bool:
    return len(seqs) > before + 30


async def _commit_on(here: World) -> None:
    batch = 0
    while True:
        await here.commit(10 * batch, 10 * batch + 10)
        batch += 1


async def _go_on(directory: Path, file: Path) -> int:
    restore_backup(file, directory / "state")
    with EmbeddedServer(directory / "state", sync_always=False) as server:
        await _nothing_is_ahead(server.url)
    async with world(directory) as here:
        batch, upto = await _committed(here.operator)
        assert upto == 10 * (batch + 1)
        number = here.runtime.control.contexts.snapshot.subscription_ids["theirs"]
        acknowledged = (await read_tally(here.operator.fabric, number)).delivered
        assert 0 < acknowledged <= upto
        here._batch = batch + 1
        await here.commit(upto, upto + 10)
        seqs: list[int] = []
        reading = asyncio.create_task(_read(here.operator, seqs))
        try:

            async def settled() -> bool:
                row = (await here.runtime.status())["subscriptions"]["theirs"]
                return bool(row["delivered"] == upto + 10 and row["in_flight"] == 0 and row["difference"] == 0)

            await until(settled)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        assert seqs == list(range(acknowledged + 1, upto + 11))
        found = await verify_directory(directory / "state", LOGS)
        assert found.wrong == []
        return upto


async def _nothing_is_ahead(url: str) -> None:
    """What was passed on was received before, and what was received was committed before."""
    async with await Client.connect(url) as client:
        fabric, reached = client.fabric, (await _committed(client))[1]
        for log, subject in (
            (LOGS.site("mid"), LOGS.link("root", "mid", "fleet")),
            (LOGS.site("leaf"), LOGS.link("mid", "leaf", "fleet")),
            (LOGS.inbox("leaf"), LOGS.inboxes_at("leaf")),
        ):
            stored = await fabric.last(log, subject)
            assert stored is not None
            upto = fabric.codec.coverage(stored.data)[1]
            assert upto <= reached, subject
            reached = upto


def test_whoever_holds_a_process_still_and_is_killed_lets_it_go(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as sleeper:
        try:
            with held_still(sleeper.pid):
                _wait_for(sleeper.pid, "T")
            _wait_for(sleeper.pid, "S")
            script = (
                "import sys, time; from headgate.service.copying import held_still\n"
                f"with held_still({sleeper.pid}): print('still', flush=True); time.sleep(60)"
            )
            with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=tmp_path) as holder:
                assert holder.stdout is not None
                assert holder.stdout.readline() == b"still\n"
                _wait_for(sleeper.pid, "T")
                holder.send_signal(signal.SIGKILL)
            _wait_for(sleeper.pid, "S")
        finally:
            os.killpg(sleeper.pid, signal.SIGKILL)


def _wait_for(pid: int, state: str) -> None:
    """Wait until the system says so of a process: T stopped, S sleeping."""
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[2] != state:
        assert time.monotonic() < deadline, state


@pytest.mark.nats
def test_too_much_to_copy_is_said_and_nothing_is_held_up(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            with pytest.raises(BackupError, match=r"more is written to .* than can be copied"):
                await asyncio.to_thread(copy_running, tmp_path / "state", tmp_path / "copy", -1.0)
            await here.commit(0, 10)  # it runs

    asyncio.run(run())
    with pytest.raises(BackupError, match="a NATS server of your own"):
        copy_running(tmp_path / "state", tmp_path / "other")
