"""Stored state: what is damaged is named, and a backup brings a deployment back or is refused whole."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.service.test_users import World, world

from headgate.client import Client
from headgate.fabric import EmbeddedServer, Fabric
from headgate.service.backup import BackupError, check_backup, make_backup, restore_backup
from headgate.service.stored_messages import check_message
from headgate.service.verifying import Verified, verify_directory
from headgate.wire.frame import WireError, encode_frame
from headgate.wire.logs import Logs
from headgate.wire.sealed import seal

LOGS = Logs()


async def _rows(client: Client, count: int) -> list[int]:
    seqs: list[int] = []
    inbox = await client.subscribe("theirs")
    async for delivery in inbox:
        seqs += delivery.seqs.tolist()
        inbox.done()
        if len(seqs) >= count:
            break
    await inbox.close()
    return seqs


@pytest.mark.nats
def test_a_deployment_is_whole_then_damaged_then_restored(tmp_path: Path) -> None:
    state, file = tmp_path / "state", tmp_path / "deployment.backup"

    async def first() -> Verified:
        async with world(tmp_path) as here:
            await here.credentials("ada", subscribe=["*"])
            await here.commit(0, 30)
            assert await _rows(here.operator, 30) == list(range(1, 31))
            return await verify_directory(state, LOGS)

    whole = asyncio.run(first())
    assert whole.wrong == []
    assert {"files", "logs", "messages", "revisions", "catalog", "records of the audit"} == whole.counts.keys()
    count = make_backup(state, file)
    assert count == len(check_backup(file)) > 10
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(BackupError, match="there is a file"):
        make_backup(state, file)
    with pytest.raises(BackupError, match="is not empty"):
        restore_backup(file, state)

    async def spoil() -> Verified:
        async with await Fabric.connect(server.url) as fabric:
            await fabric.publish(fabric.logs.ledger("fleet"), b"HGS00000000 {}")
            await fabric.publish(fabric.logs.part("fleet"), encode_frame("p", {"x": 1})[:-1] + b"?")
            (state / "audit.jsonl").write_bytes((state / "audit.jsonl").read_bytes().replace(b"ada", b"eve", 1))
            (state / "nats" / "users.json").write_bytes(b"{")
            database = bytearray((state / "catalog.db").read_bytes())
            place = database.index(b'"stream":"fleet"')
            database[place + 11] ^= 1
            (state / "catalog.db").write_bytes(bytes(database))
            return await verify_directory(state, LOGS)

    with EmbeddedServer(state, sync_always=False) as server:
        found = asyncio.run(spoil())
    said = "\n".join(found.wrong)
    for words in ("hg.ledger.fleet", "hg.root.fleet.part", "record was altered", "users.json", "damaged"):
        assert words in said, (words, said)
    assert len(found.wrong) == 5, said

    state.rename(tmp_path / "damaged")
    assert restore_backup(file, state) == count

    async def again() -> None:
        async with world(tmp_path) as here:
            here._batch = 1
            assert [user["name"] for user in (await here.operator.control("user-list"))["users"]] == ["ada"]
            await here.commit(30, 40)
            assert await _rows(here.operator, 10) == list(range(31, 41))
            await _checked(here, state)

    asyncio.run(again())


async def _checked(here: World, state: Path) -> None:
    found = await verify_directory(state, LOGS)
    assert found.wrong == []


@pytest.mark.parametrize("damage", ["flip", "cut", "none at all"])
def test_a_damaged_backup_is_refused_and_nothing_is_written(tmp_path: Path, damage: str) -> None:
    state, file = tmp_path / "state", tmp_path / "b"
    (state / "nats").mkdir(parents=True)
    (state / "nats" / "keys.json").write_text("secret keys", encoding="utf-8")
    (state / "catalog.db").write_bytes(bytes(5000))
    (state / "lock").touch()
    make_backup(state, file)
    assert check_backup(file).keys() == {"nats/keys.json", "catalog.db"}
    whole = file.read_bytes()
    spoils: dict[str, list[bytes]] = {
        "flip": [_flipped(whole, place) for place in (whole.index(b"secret"), 5000, whole.rindex(b'"format"') + 11)],
        "cut": [whole[:1000], whole[:4000], whole[: whole.rindex(b'"format"')]],
        "none at all": [b"", b"x" * 2000],
    }
    for data in spoils[damage]:
        file.write_bytes(data)
        with pytest.raises(BackupError):
            restore_backup(file, tmp_path / "new")
        assert not (tmp_path / "new").exists()
    file.write_bytes(whole)
    assert restore_backup(file, tmp_path / "new") == 2
    assert (tmp_path / "new" / "catalog.db").read_bytes() == bytes(5000)


def _flipped(data: bytes, place: int) -> bytes:
    found = bytearray(data)
    found[place] ^= 4
    return bytes(found)


@pytest.mark.parametrize(
    ("subject", "stored"),
    [("hg.pin.s", seal(b"17")), ("hg.root.s.part", encode_frame("p", {"stream": "s"}, [b"rows"]))],
)
def test_every_flipped_bit_and_every_cut_is_found(subject: str, stored: bytes) -> None:
    check_message(subject, stored)
    spoilt: list[Any] = [stored[:length] for length in range(len(stored))]
    spoilt += [_flipped(stored, place) for place in range(len(stored))]
    for data in spoilt:
        with pytest.raises(WireError):
            check_message(subject, data)
