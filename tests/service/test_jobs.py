"""Streams that are spread over several Spark jobs: who runs what, and that no stream is ever in two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.live import until

from headgate.catalog import parse_deployment
from headgate.catalog.file_writing import deployment_document
from headgate.fabric.roles import job_rights
from headgate.model import Deployment, SparkJob
from headgate.pipeline.job import Job, JobConfig
from headgate.service.jobs import Jobs, fitted, jobs_wanted
from headgate.service.processes import JobProcess
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate.wire.snapshot import Snapshot

TEXT = """
sites: {oslo: , bergen: }
streams:
  wind: {root: oslo, schema: {v: double}, source: {format: nats}}
  rain: {root: oslo, schema: {v: double}, source: {format: nats}}
  snow: {root: oslo, schema: {v: double}, source: {format: nats}}
  field:
    roots:
      west: {site: oslo, region: {box: {x: [0, 8]}}}
      east: {site: bergen, region: {box: {x: [8, 16]}}}
    schema: {x: double, y: double, at: timestamp, v: double}
    source: {format: nats}
    event_time: at
    grid: {x: {column: x, size: 16, bounds: [0, 16]}, y: {column: y, size: 16, bounds: [0, 16]}}
jobs:
  fast: {streams: wind, master: "local[1]", trigger: 200 ms, spark: {spark.driver.memory: 1g}}
  wide: {streams: [field, rain], partitions: 4}
"""
PLAIN = JobConfig("nats://h:1", "hg", "state", spark_options={"spark.driver.memory": "2g", "spark.x": "1"})


def deployment(text: str = TEXT) -> Deployment:
    return parse_deployment(text, "jobs.yaml")


def test_each_stream_is_in_one_job_and_roots_go_with_their_stream() -> None:
    found = deployment()
    assert {name: found.job_of(name) for name in found.streams} == {
        "wind": "fast", "rain": "wide", "snow": "", "field-west": "wide", "field-east": "wide",
    }  # fmt: skip
    snapshot = Snapshot(7, found)
    for name, wanted in jobs_wanted(found).items():
        job = Job(fitted(PLAIN, name, wanted))
        assert set(job._wanted(snapshot)) == {each for each in found.streams if found.job_of(each) == name}


def test_a_job_has_its_own_settings_over_those_of_the_deployment() -> None:
    wanted = jobs_wanted(deployment())
    fast, wide, rest = (fitted(PLAIN, name, wanted[name]) for name in ("fast", "wide", ""))
    assert (fast.name, fast.master, fast.trigger_s, fast.partitions) == ("fast", "local[1]", 0.2, None)
    assert fast.spark_options == {"spark.driver.memory": "1g", "spark.x": "1"}
    assert (wide.master, wide.trigger_s, wide.partitions) == ("local[*]", 1.0, 4)
    assert (rest.name, rest.streams, rest.others) == ("", None, ("field", "rain", "wind"))


def test_the_job_without_a_name_is_there_for_what_others_leave() -> None:
    found = deployment()
    every = {"all": SparkJob("all", ("wind", "rain", "snow", "field"))}
    assert list(jobs_wanted(replace(found, jobs=every))) == ["all"]
    assert jobs_wanted(replace(found, jobs={})) == {"": ()}


def test_the_catalog_and_the_file_keep_jobs() -> None:
    found = deployment()
    assert Snapshot.from_bytes(Snapshot(7, found).to_bytes()).deployment.jobs == found.jobs
    assert b"jobs" not in Snapshot(7, replace(found, jobs={})).to_json().encode()
    written = deployment_document(found)["jobs"]
    assert written["fast"]["trigger"] == "0.2 s"
    assert set(written["wide"]["streams"]) == {"field", "rain"}


def test_a_job_may_write_nothing_of_another_jobs_streams() -> None:
    found, logs = deployment(), Logs()
    fast = job_rights(logs, [found.streams["wind"]], {}, "fast").services
    rest = job_rights(logs, [found.streams["snow"]], {}).services
    assert {logs.commit("wind"), logs.part("wind"), logs.job_stats("fast")} <= set(fast)
    assert not [each for each in fast if "snow" in each or "rain" in each]
    assert logs.job_stats("") in rest
    assert logs.job_stats("fast") not in rest


class Watched(JobProcess):
    """A process that sleeps instead of running Spark, and says when it begins and ends."""

    events: list[tuple[str, str, tuple[str, ...]]]

    async def _start(self) -> asyncio.subprocess.Process:
        config = self._configure(self.restarts)
        self.streams = config.streams or ("-", *config.others)
        self.events.append(("begins", config.name, self.streams))
        return await asyncio.create_subprocess_exec("sleep", "600")

    async def _end(self) -> None:
        running = self.pid is not None
        await super()._end()
        if running:
            self.events.append(("ended", self._stem, self.streams))


def test_jobs_that_change_end_before_others_begin_and_the_rest_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.service.jobs.JobProcess", Watched)
    monkeypatch.setattr(Watched, "events", [], raising=False)

    async def run() -> None:
        tasks: list[asyncio.Task[None]] = []

        def spawn(work: Coroutine[Any, Any, None], _: str) -> None:
            tasks.append(asyncio.create_task(work))

        async def begun(count: int) -> None:
            async def enough() -> bool:
                return sum(kind == "begins" for kind, *_ in Watched.events) >= count

            await until(enough, 20)

        jobs = Jobs(Settings(tmp_path), lambda _, __: PLAIN)
        before = deployment()
        await jobs.follow(before, spawn)
        await begun(3)
        kept = jobs.processes["fast"].pid
        assert not jobs.differs(before)
        moved = {**before.jobs, "wide": SparkJob("wide", ("field",)), "late": SparkJob("late", ("rain",))}
        Watched.events.clear()
        await jobs.follow(replace(before, jobs=moved), spawn)
        await begun(2)
        kinds = [(kind, name) for kind, name, _ in Watched.events]
        assert kinds[:1] == [("ended", "job-wide")]
        assert {*kinds[1:]} == {("begins", "wide"), ("begins", "late")}
        assert jobs.processes["fast"].pid == kept
        await jobs.pause()
        await jobs.follow(replace(before, jobs={}), spawn)  # while the disk is full, say
        assert [process.pid for process in jobs.processes.values()] == [None]
        Watched.events.clear()
        jobs.resume()
        await begun(1)
        assert Watched.events == [("begins", "", ("-",))]
        await jobs.stop()
        async with asyncio.timeout(20):
            await asyncio.gather(*tasks)

    asyncio.run(run())
