"""Two Spark jobs in one deployment: one is killed, the other goes on, and every row comes once."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.test_program import Place, ended
from tests.live import sites, until

from headgate.client import SyncClient
from headgate.model.schema import type_name
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate

pytestmark = [pytest.mark.nats, pytest.mark.live, pytest.mark.long, pytest.mark.timeout(1500)]

STEP = 300
STREAMS = ("fleet", "vans")


def deployment(directory: Path) -> Path:
    schema = {column.name: type_name(column.type) for column in GENERATOR_SCHEMAS["fleet"].columns}
    stream = {"root": "root", "source": {"format": "nats"}, "schema": schema, "key": "vehicle"}
    document = {
        "sites": sites("root", "leaf"),
        "streams": dict.fromkeys(STREAMS, stream),
        "subscriptions": {f"all-{name}": {"stream": name, "site": "leaf"} for name in STREAMS},
        "jobs": {"one": {"streams": "fleet", "master": "local[1]"}},
    }
    file = directory / "deployment.yaml"
    file.write_text(yaml.dump(document, Dumper=_Plain), encoding="utf-8")
    return file


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def test_a_job_that_is_killed_is_started_alone(tmp_path: Path) -> None:
    with Place(tmp_path / "state", deployment(tmp_path)) as place:
        service = place.ready(place.start("up", str(place.file), "--no-http", "--master", "local[1]"), "up;")
        with SyncClient(state_dir=place.state) as client:

            def status() -> dict[str, Any]:
                found: dict[str, Any] = client.control("status")
                return found

            def wait(check: Any) -> dict[str, Any]:
                async def enough() -> dict[str, Any] | None:
                    await asyncio.sleep(0.5)  # a status is work for the service
                    found = status()
                    return found if check(found) else None

                try:
                    found: dict[str, Any] = asyncio.run(until(enough, 500))
                except TimeoutError as error:
                    raise AssertionError((place.state / "job-one.log").read_text()[-3000:]) from error
                return found

            def publish(name: str, number: int) -> None:
                client.publish(name, generate("fleet", 3, number * STEP, (number + 1) * STEP))

            def has(name: str, rows: int) -> dict[str, Any]:
                return wait(lambda found: found["streams"][name]["rows_in"] >= rows)

            for name in STREAMS:
                publish(name, 0)
                has(name, STEP)
            before = status()["jobs"]
            assert {name: each["streams"] for name, each in before.items()} == {"": ["vans"], "one": ["fleet"]}
            assert {each["state"] for each in before.values()} == {"ready"}
            os.kill(before["one"]["pid"], signal.SIGKILL)
            for name in STREAMS:
                publish(name, 1)
            meanwhile = has("vans", 2 * STEP)
            assert meanwhile["streams"]["fleet"]["rows_in"] == STEP  # its job is not there
            has("fleet", 2 * STEP)
            after = wait(lambda found: found["jobs"]["one"]["state"] == "ready")["jobs"]
            assert after[""]["pid"] == before[""]["pid"]
            assert after["one"]["pid"] != before["one"]["pid"]
            wanted = [(row["vehicle"], row["fuel"]) for row in generate("fleet", 3, 0, 2 * STEP).to_pylist()]
            for name in STREAMS:
                rows: list[tuple[Any, ...]] = []
                for delivery in client.subscribe(f"all-{name}", timeout_s=20):
                    rows += [(row["vehicle"], row["fuel"]) for row in delivery.to_pylist()]
                    if len(rows) >= len(wanted):
                        break
                assert sorted(rows) == sorted(wanted), name
        shown = place.run("status")
        assert "Spark jobs" in shown
        assert "(no name)" in shown
        assert (place.state / "job-one.log").stat().st_size
        assert len(list((place.state / "nats").glob("job-*.creds"))) == 2
        assert ended(service, signal.SIGTERM) == 0
