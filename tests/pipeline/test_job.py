"""The driver's start and its workers' daemon, without Spark."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from tests.live import running, small

from headgate.fabric import SyncFabric
from headgate.pipeline.job import Job, JobConfig
from headgate.pipeline.session import settings
from headgate.pipeline.start_stages import Stages, process_age_s

_FORK = """
import gc, os, sys, threading
from headgate.pipeline.daemon import preload
assert preload("pyspark.worker") and not preload("pyspark.sql.worker.plan_data_source_read")
assert threading.active_count() == 1
child = os.fork()
if child == 0:
    import pyarrow as pa, numpy as np
    from headgate.pipeline.match import possible_times
    assert "numba" in sys.modules and "pyspark.worker" in sys.modules
    assert gc.get_freeze_count() > 50_000 > len(gc.get_objects())  # what a worker searches after every task
    assert possible_times(pa.array(np.arange(100_000)), 0).filter(pa.array([True] * 100_000)).null_count == 0
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_a_worker_that_is_forked_has_what_it_runs():
    environment = {**os.environ, "PYTHONPATH": settings()["spark.executorEnv.PYTHONPATH"]}
    done = subprocess.run(
        [sys.executable, "-c", _FORK], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "7", "")
    assert settings()["spark.python.daemon.module"] == "headgate.pipeline.daemon"


def test_stages_count_from_the_start_of_the_process():
    stages = Stages()
    stages.end("imports")
    stages.end("session")
    first = dict(stages.ends_s)
    stages.end("imports")
    assert stages.ends_s == first
    assert 0 < first["imports"] <= first["session"] <= process_age_s() + 0.1


class Query:
    """A query that is within a micro-batch for a few looks at it."""

    def __init__(self, looks):
        self.looks = looks
        self.isActive = True
        self.stopped_within = None

    @property
    def status(self):
        self.looks -= 1
        return {"isTriggerActive": self.looks > 0}

    def stop(self):
        self.stopped_within = self.looks > 0


class Session:
    stopped = False

    def stop(self):
        self.stopped = True


def test_queries_are_stopped_between_two_micro_batches():
    """Spark ends one that is broken off with a StackOverflowError in job.log."""
    job = Job(JobConfig("nats://nowhere", "hg", "/nowhere"))
    job._queries = {"a": Query(3), "b": Query(0), "c": Query(5)}
    session = Session()
    job._end(session)
    assert [query.stopped_within for query in job._queries.values()] == [False] * 3
    assert session.stopped


@pytest.mark.nats
def test_queries_follow_the_streams_of_the_catalog(tmp_path, nats_url):
    """A stream that is new is begun, one that is gone or is read differently is stopped, and others run on."""
    document = small(all={"site": "leaf"})
    fleet = document["streams"]["fleet"]
    document["streams"] |= {name: {**fleet} for name in ("gone", "other", "same")}
    del document["plan"]
    seen = {}

    def follow(job, address, streams, version):
        with SyncFabric(address.url, address.logs) as fabric:
            seen["now"], seen["version"] = job._follow(fabric, streams, version)

    async def run():
        async with running(document, tmp_path, nats_url) as live:
            before = live.runtime.catalog.snapshot()
            job = Job(JobConfig(live.address.url, live.address.logs.namespace, str(tmp_path)))
            queries = {name: Query(0) for name in before.deployment.streams}
            job._queries = dict(queries)
            await asyncio.to_thread(follow, job, live.address, job._wanted(before), before.revision)
            assert (set(seen["now"]), seen["version"]) == (set(before.deployment.streams), before.revision)
            patch = {"streams": {"gone": None, "new": fleet, "other": {"key": "status"}, "same": {"rate": "9/s"}}}
            made = await live.client.control("change", deployment=patch)
            await asyncio.to_thread(follow, job, live.address, seen["now"], seen["version"])
            assert (set(seen["now"]), seen["version"]) == ({"fleet", "new", "other", "same"}, made["revision"])
            assert {name for name, query in queries.items() if query.stopped_within is not None} == {"gone", "other"}
            assert set(job._queries) == {"fleet", "same"}

    asyncio.run(run())
