"""The driver's start and its workers' daemon, without Spark."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headgate.pipeline.job import Job, JobConfig
from headgate.pipeline.session import settings
from headgate.pipeline.stages import Stages, process_age_s

_FORK = """
import os, sys, threading
from headgate.pipeline.daemon import preload
assert preload("pyspark.worker") and not preload("pyspark.sql.worker.plan_data_source_read")
assert threading.active_count() == 1
child = os.fork()
if child == 0:
    import pyarrow as pa, numpy as np
    from headgate.pipeline.match import possible_times
    assert "numba" in sys.modules
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
