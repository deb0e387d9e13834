"""A host that has joined a deployment: what it stores is checked by `headgate verify` there, running or not."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.live import small
from tests.service.test_hosts import _PROGRAM, Hosts, _headgate
from tests.service.test_users import NOTES
from tests.service.test_verifying import all_messages, flip, looked_at

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric import EmbeddedServer, Fabric
from headgate.fabric.place import choose_port
from headgate.fabric.server import running_url
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.protocol.port import Stored
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.service.stored_files import unknown_files
from headgate.wire.logs import Logs

pytestmark = [pytest.mark.nats, pytest.mark.long]
LOGS = Logs()


def test_a_host_is_verified_running_and_stopped_and_damage_is_named(tmp_path: Path) -> None:
    state, server = tmp_path / "joined", tmp_path / "joined" / "sites" / "leaf"

    async def run() -> list[tuple[str, Stored]]:
        document = small(far={"site": "leaf"})
        document["streams"]["notes"] = NOTES
        document["plan"]["notes"] = {"mid": "root", "leaf": "mid"}
        document["sites"]["leaf"]["nats"] = f"nats://127.0.0.1:{choose_port()}"
        deployment = parse_deployment(yaml.safe_dump(document), "test.yaml", GENERATOR_SCHEMAS)
        async with (
            open_runtime(Settings(state_dir=tmp_path / "state", job=False), deployment) as runtime,
            await Client.connect(state_dir=tmp_path / "state") as operator,
        ):
            here = Hosts(runtime, operator, tmp_path)
            token = (await _headgate("invite", "leaf", "--state-dir", str(tmp_path / "state")))[1].strip()
            joined = await asyncio.create_subprocess_exec(*_PROGRAM, "join", token, "--state-dir", str(state))
            try:
                await here.commit(0, 40)
                assert await here.rows(here.operator, "far", 40) == list(range(1, 41))
                code, said, _ = await _headgate("verify", "--state-dir", str(state))
                assert (code, "1 hosts" in said, "nothing wrong" in said) == (0, True, True), said
            finally:
                joined.terminate()
                await joined.wait()
            assert (await _headgate("verify", "--state-dir", str(tmp_path / "state")))[0] == 0
            code, _, said = await _headgate("backup", str(tmp_path / "b"), "--state-dir", str(state))
            assert (code, "joins again" in said) == (2, True), said
        assert unknown_files(state) == []
        assert (server / "nats" / "seen.json").exists()
        with EmbeddedServer(server, sync_always=False) as own:
            async with await Fabric.connect(own.url) as fabric:
                for text in (b'{"text": "a"}', b'{"text": "b"}'):
                    await fabric.publish(LOGS.published_at("leaf", "notes"), text)
                return await all_messages(fabric)

    stored = asyncio.run(run())
    assert running_url(server) is None
    found = looked_at(state)
    assert found.wrong == []
    assert found.counts["hosts"] == 1
    assert found.counts["files"] > 10

    def spoil(name: str) -> Callable[[Path], None]:
        def work(place: Path) -> None:
            data = bytearray((place / name).read_bytes())
            data[len(data) // 2] ^= 16
            (place / name).write_bytes(data)

        return work

    cases: dict[str, Callable[[Path], object]] = {
        name: spoil(name) for name in ("site.json", "site.creds", "sites/leaf/nats/incarnations.json")
    }
    for log in {log for log, _ in stored}:
        content = next(each.data for name, each in stored if name == log)
        cases[log] = lambda place, log=log, content=content: flip(place / "sites" / "leaf", log, content)  # type: ignore[misc]

    def gone(place: Path) -> None:
        for file in (place / "sites/leaf/nats/data").rglob("streams/HG_INBOX_leaf/msgs/*"):
            file.unlink()

    cases["HG_INBOX_leaf has lost"] = gone
    assert {"HG_INBOX_leaf", "HG_SITE_leaf", "HG_OUTBOX_leaf"} <= cases.keys()
    for said, damage in cases.items():
        damaged = tmp_path / "damaged"
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(state, damaged)
        damage(damaged)
        wrong = looked_at(damaged).wrong
        assert any(said in each for each in wrong), (said, wrong)
    with pytest.raises(Exception, match="no deployment"):
        looked_at(tmp_path / "nowhere")
