"""A state directory says which format it is of: others are refused, and samples of each are brought up to this one."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.service import state_format
from headgate.service.backup import restore_backup
from headgate.service.exclusive import exclusive
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.service.state_format import FORMAT, StateFormatError
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits
from headgate_studies.testing.sample_state import DOCUMENT, READ, ROWS

SAMPLES = sorted((Path(__file__).parents[1] / "data" / "states").glob("format-*.tar.gz"))


def test_a_new_directory_is_marked_and_others_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with exclusive(tmp_path / "new"):
        assert (tmp_path / "new" / "format").read_text() == f"{FORMAT}\n"
    (tmp_path / "new" / "format").write_text(f"{FORMAT + 1}\n")
    with (
        pytest.raises(StateFormatError, match=rf"format {FORMAT + 1}, .* reads {FORMAT} .*a later one"),
        exclusive(tmp_path / "new"),
    ):
        pass
    (tmp_path / "new" / "format").write_text("garbage")
    with pytest.raises(StateFormatError, match="cannot be read"), exclusive(tmp_path / "new"):
        pass
    (tmp_path / "new" / "format").write_text("0\n")
    with pytest.raises(StateFormatError, match="format 0, which cannot be brought to"), exclusive(tmp_path / "new"):
        pass


def test_an_older_directory_is_upgraded_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One without a version is of version 1."""
    (tmp_path / "nats").mkdir()
    done: list[int] = []
    monkeypatch.setattr(state_format, "FORMAT", 3)
    monkeypatch.setattr(state_format, "UPGRADES", {1: lambda _: done.append(1), 2: lambda _: done.append(2)})
    for _ in range(2):
        with exclusive(tmp_path):
            assert (tmp_path / "format").read_text() == "3\n"
    assert done == [1, 2]


def test_there_is_a_sample_of_this_format() -> None:
    assert f"format-{FORMAT}.tar.gz" in [sample.name for sample in SAMPLES]


@pytest.mark.nats
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name.partition(".")[0])
def test_a_stored_deployment_of_each_format_goes_on(tmp_path: Path, sample: Path) -> None:
    backup, state = tmp_path / "backup.tar", tmp_path / "state"
    backup.write_bytes(gzip.decompress(sample.read_bytes()))
    restore_backup(backup, state)
    deployment = parse_deployment(DOCUMENT, "sample.yaml", GENERATOR_SCHEMAS)

    async def run() -> None:
        settings = Settings(state_dir=state, job=False)
        async with open_runtime(settings, deployment) as runtime, await Client.connect(state_dir=state) as client:
            assert runtime.told == []
            assert runtime.catalog.snapshot().deployment.sites["edge"].upload_bytes_per_s == 2e6
            assert [user["name"] for user in (await client.control("user-list"))["users"]] == ["ada"]

            def commit() -> None:
                with DirectCommits(Address(runtime.url, Logs()), "sample") as direct:
                    direct.commit("fleet", generate("fleet", 3, ROWS, ROWS + 20), 3, 0.0)

            await asyncio.to_thread(commit)
            rows = generate("fleet", 3, 0, ROWS + 20).to_pylist()
            wanted = {
                "all": list(range(READ + 1, ROWS + 21)),
                "read": [number + 1 for number, row in enumerate(rows) if row["speed"] > 10],
            }
            for name, seqs in wanted.items():
                inbox, got = await client.subscribe(name), []
                async for delivery in inbox:
                    got += delivery.seqs.tolist()
                    if len(got) >= len(seqs):
                        break
                await inbox.close()
                assert got == seqs, name

            lines = (await runtime.status())["subscriptions"]
            assert {name: line["difference"] for name, line in lines.items()} == {"all": 0, "read": 0}

    asyncio.run(run())
