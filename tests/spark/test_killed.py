"""A subscription into Parquet by Spark while both sides are killed: every row of the log once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.test_program import Place, ended, place_at
from tests.live import until

from headgate.client import SyncClient
from headgate.client.extent import position_at
from headgate.relay.root import committed_head

pytestmark = [pytest.mark.nats, pytest.mark.live, pytest.mark.long, pytest.mark.timeout(1500)]


def lake(place: Place, directory: Path) -> subprocess.Popen[bytes]:
    """The program that reads, in a process of its own."""
    program = [sys.executable, str(Path(__file__).with_name("lake.py")), str(place.state), "some", str(directory)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (directory / "said.txt").open("ab") as said:
        return subprocess.Popen(program, env=environment, stdout=said, stderr=said, start_new_session=True)


def kill(process: subprocess.Popen[Any]) -> None:
    """End a program without a word, and its children, as a host that goes down does."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)


def stored(directory: Path) -> pa.Table:
    """What Spark's file sink has committed: the files that its log names, and no others."""
    files = set()
    for entry in sorted((directory / "rows" / "_spark_metadata").glob("[0-9]*")):
        for line in entry.read_text().splitlines()[1:]:
            files.add(unquote(urlsplit(json.loads(line)["path"]).path))
    tables = [pq.read_table(file) for file in sorted(files)]
    if not tables:
        return pa.table({"seq": pa.array([], pa.int64())})
    found = pa.concat_tables(tables)  # Spark writes timestamps as UTC without saying so
    at = found["at"].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    return found.set_column(found.schema.get_field_index("at"), "at", at)


def logged(place: Place) -> list[dict[str, Any]]:
    """The rows of the subscription as the root log has them."""
    with SyncClient(state_dir=place.state) as client:
        snapshot = client.call(lambda each: each.snapshot())
        head = client.call(lambda each: committed_head(each.fabric, "fleet"))
        start = client.call(lambda each: position_at(each.fabric, snapshot, "some", 0))
        found = []
        for delivery in client.subscribe("some", position=start, peek=True, upto=head, timeout_s=30):
            for seq, row in zip(delivery.seqs.tolist(), delivery.to_pylist(), strict=True):
                found.append({"seq": seq, **{name: row[name] for name in ("vehicle", "fuel", "at")}})
        assert delivery.upto == head
    return found


def test_every_row_once_whoever_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "lake"
    directory.mkdir()
    with place_at(tmp_path, some={"site": "leaf", "where": "speed > 30"}) as place:
        service, reader = place.up(), lake(place, directory)
        committed = 0

        def commit(count: int) -> None:
            nonlocal committed
            place.commit(committed, committed + count, committed // 100)
            committed += count

        def wait(least: int) -> None:
            async def enough() -> bool:
                assert reader.poll() is None, (directory / "said.txt").read_text()[-3000:]
                return stored(directory).num_rows >= least

            try:
                asyncio.run(until(enough, 600))
            except TimeoutError as error:
                said = (directory / "said.txt").read_text()[-3000:]
                raise AssertionError(f"{stored(directory).num_rows} rows, {least} wanted: {said}") from error

        try:
            commit(400)
            wait(1)
            kill(reader)  # Spark alone, probably with a batch half done
            commit(300)
            reader = lake(place, directory)
            wait(len(logged(place)))
            service.kill()  # then the service, with its server, while Spark reads on
            service.communicate()
            service = place.up()
            commit(300)
            wait(len(logged(place)))
            commit(300)
            service.kill()
            kill(reader)  # then both at once
            service.communicate()
            service, reader = place.up(), lake(place, directory)
            commit(200)
            wait(len(logged(place)))
            wanted = logged(place)
            found = stored(directory).sort_by("seq").to_pylist()
            assert len(wanted) > 200
            assert found == wanted
        finally:
            kill(reader)
        assert ended(service, signal.SIGTERM) == 0
