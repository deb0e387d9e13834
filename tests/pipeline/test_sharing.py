"""Index files for executors that see nothing of the driver: carried by Spark; and the archive and address they need."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.live import Live, expected, running, small

from headgate.fabric import EmbeddedServer, SyncFabric
from headgate.matching import MatchingError
from headgate.matching.build import SCAN_LIMIT
from headgate.pipeline.commit import pin_batch
from headgate.pipeline.indexes import IndexKeeper
from headgate.pipeline.packing import LEFT_OUT, contents, distributions
from headgate.pipeline.session import SessionError, make_session
from headgate.pipeline.sharing import SharedFile, fetched
from headgate.pipeline.sources.generators import generate
from headgate.pipeline.sources.nats_options import NatsSettings
from headgate.pipeline.states import hold, read_snapshot
from headgate.pipeline.worker import Address
from headgate.wire.logs import Logs


def carried(paths: list[Path]) -> tuple[SharedFile, ...]:
    """Files as an executor gets them: what it reads from a broadcast variable is their bytes."""
    datas = {path.name: path.read_bytes() for path in paths}
    return tuple(
        SharedFile(name, hashlib.sha256(data).hexdigest(), SimpleNamespace(value=data)) for name, data in datas.items()
    )


@pytest.mark.nats
def test_a_worker_maps_what_was_carried_to_it_and_refuses_what_is_not_that(tmp_path: Path, nats_url: str) -> None:
    low = {"where": "speed BETWEEN $low AND $low + 3", "site": "leaf"}
    document = small(**{f"s{k}": {**low, "context": {"low": float(k)}} for k in range(SCAN_LIMIT + 6)})
    here = tmp_path / "executor"
    held: dict[str, Any] = {}

    def at(live: Live, batch: int) -> Any:
        """The index of a batch as a worker on another machine holds it, and rows matched by it."""
        with SyncFabric(live.address.url, live.address.logs) as fabric:
            keeper = held.setdefault("keeper", IndexKeeper(tmp_path / "driver", "fleet", carried))
            pin = pin_batch(fabric, "fleet", batch)
            ref = held["ref"] = keeper.ensure(fabric, pin.version)
            assert ref is not None
            local = fetched(ref, "fleet", here)
            assert Path(local.directory).is_relative_to(here)
            (tmp_path / "driver").rename(tmp_path / "away")  # nothing of the driver's machine is needed
            found = hold(fabric, "fleet", pin.version, local, held.get("state"), pin.context)
            (tmp_path / "away").rename(tmp_path / "driver")
            assert (found.mapped, found.trouble) == (True, "")
            rows = generate("fleet", 3, 0, 200)
            assert found.state.match(rows, pin.context).same(expected(read_snapshot(fabric, pin.version), rows))
            return found

    async def run() -> None:
        async with running(document, tmp_path / "live", nats_url) as live:
            held["state"] = await asyncio.to_thread(at, live, 0)
            new = {"stream": "fleet", "site": "mid", "where": "speed > 40"}
            await live.client.control("subscribe", name="new", subscription=new)
            moved = await asyncio.to_thread(at, live, 1)
            assert moved.state is held["state"].state  # by the delta alone
            assert sorted(path.name[:5] for path in (here / "headgate-indexes" / "fleet").iterdir()) == [
                "delta",
                "index",
            ]

    asyncio.run(run())
    (first, *_) = held["ref"].files
    wrong = replace(first, content=SimpleNamespace(value=first.content.value[:-1] + b"x"))
    with pytest.raises(MatchingError, match=rf"{first.name} came as .*, the driver has shared {first.sha256[:12]}"):
        fetched(replace(held["ref"], files=(wrong,)), "fleet", tmp_path / "elsewhere")


def test_an_archive_has_what_executors_import_and_no_spark() -> None:
    found = set(distributions())
    assert {"headgate", "numpy", "numba", "llvmlite", "pyarrow", "nats-py", "msgspec", "sqlglot", "pandas"} <= found
    assert not found & {*LEFT_OUT, "fastapi", "sqlalchemy", "matplotlib"}
    names = [name for name, _ in contents()]
    assert len(names) == len(set(names))
    assert {"headgate/pipeline/daemon.py", "numpy/__init__.py", "headgate/pipeline/match.py"} <= set(names)
    assert not [name for name in names if name.startswith(("pyspark/", ".."))]


def test_an_archive_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from pyspark.sql import SparkSession

    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(SessionError, match=r"there is no archive .*gone.tar.gz \(make it with `headgate job pack`\)"):
        make_session("x", "spark://nowhere:7077", state_dir=tmp_path, archive=tmp_path / "gone.tar.gz")


@pytest.mark.nats
def test_an_address_for_other_machines_names_no_file_and_shows_no_secret(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        file = tmp_path / "nats" / "operator.creds"
        address = Address(server.url, Logs(), {"user_credentials": str(file)}).portable()
        assert address.url.startswith("nats://127.0.0.1:")
        secret = file.read_text()
        assert secret not in repr(address)
        source = NatsSettings.of({"url": address.url, "subject": "x", **address.options})
        assert secret not in repr(source)
        file.rename(tmp_path / "away.creds")
        for carried_over in (pickle.loads(pickle.dumps(address)), pickle.loads(pickle.dumps(source))):
            with carried_over.connect() as fabric:
                assert fabric.run(fabric.fabric.names("nobody.has.this")) == []
