"""What waits in a source, by Spark's checkpoint."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from pathlib import Path

import pytest

from headgate.fabric import Fabric
from headgate.model import Schema, Source, Stream
from headgate.service.source_backlog import WaitingCount, waiting
from headgate.wire.logs import Logs

pytestmark = pytest.mark.nats


def checkpoint(state: Path, batch: int, offset: dict[str, int]) -> Path:
    """A checkpoint as Spark leaves it after so many batches."""
    place = state / "checkpoints" / "s" / "spark"
    for kind in ("offsets", "commits", "sources/0"):
        (place / kind).mkdir(parents=True, exist_ok=True)
    (place / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
    (place / "offsets" / str(batch + 1)).write_text('v1\n{}\n{"sequence": 999}')
    (place / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return place


def ask(nats_url: str, source: Source, state: Path | None, published: int = 0) -> WaitingCount | None:
    async def work() -> WaitingCount | None:
        logs = Logs(f"w{uuid.uuid4().hex[:12]}")
        async with await Fabric.connect(nats_url, logs) as fabric:
            await fabric.ensure(logs.input("s"))
            for number in range(published):
                await fabric.publish(logs.published("s"), b"%d" % number)
            return await waiting(fabric, Stream("s", Schema.of({"x": "int"}), source, "lab"), state)

    return asyncio.run(work())


def test_messages_past_the_last_committed_batch_wait(tmp_path: Path, nats_url: str) -> None:
    checkpoint(tmp_path, 9, {"sequence": 3})
    found = ask(nats_url, Source("nats"), tmp_path, published=5)
    assert found is not None
    assert (found.count, found.unit) == (2, "messages")
    assert 0 <= found.oldest_s < 60


@pytest.mark.parametrize(("read", "beyond"), [(5, (0, 0)), (6, (6, 5))])
def test_a_checkpoint_that_read_further_than_the_log_goes_is_told(
    tmp_path: Path, nats_url: str, read: int, beyond: tuple[int, int]
) -> None:
    checkpoint(tmp_path, 0, {"sequence": read})
    found = ask(nats_url, Source("nats"), tmp_path, published=5)
    assert found is not None
    assert (found.count, found.read, found.end) == (0, *beyond)


def test_files_that_no_batch_has_listed_wait(tmp_path: Path, nats_url: str) -> None:
    place = checkpoint(tmp_path, 1, {"logOffset": 1})
    data = tmp_path / "some data"
    data.mkdir()
    for name in ("a.json", "b.json", "c.json", "d.json", "_hidden"):
        (data / name).write_text("{}")
    listed = [
        json.dumps({"path": (data / name).as_uri(), "timestamp": 1, "batchId": 0}) for name in ("a.json", "b.json")
    ]
    (place / "sources" / "0" / "0").write_text("\n".join(["v1", listed[0]]))
    (place / "sources" / "0" / "1.compact").write_text("\n".join(["v1", *listed]))
    old_s = time.time() - 100
    os.utime(data / "c.json", (old_s, old_s))
    for path in (str(data), str(data / "*.json"), data.as_uri()):
        found = ask(nats_url, Source("json", {"path": path}), tmp_path)
        assert found is not None
        assert (found.count, found.unit) == (2, "files")
        assert 90 < found.oldest_s < 200


@pytest.mark.parametrize("source", [Source("generator"), Source("nats", {"url": "nats://elsewhere"}), Source("nats")])
def test_a_source_that_cannot_say_says_nothing(tmp_path: Path, nats_url: str, source: Source) -> None:
    if source != Source("nats"):
        checkpoint(tmp_path, 0, {"sequence": 3})
    assert ask(nats_url, source, tmp_path, published=5) is None
    assert ask(nats_url, source, None, published=5) is None


def test_a_garbled_checkpoint_says_nothing(tmp_path: Path, nats_url: str) -> None:
    place = checkpoint(tmp_path, 0, {"sequence": 3})
    (place / "offsets" / "0").write_text("v1\n{}\n-")
    assert ask(nats_url, Source("nats"), tmp_path, published=5) is None
