"""What is checked of Spark jobs: streams that exist, each in one job, and masters that Spark knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from headgate.catalog.checks import Flaw, unknown
from headgate.model import SparkJob, Stream
from headgate.model.spark_job import is_named

_MASTER: Final = re.compile(r"local|local\[(\*|\d+)(,\d+)?\]|local-cluster\[.+\]|spark://\S+|k8s://\S+|yarn")
_OURS: Final = ("spark.master", "spark.app.name", "spark.python.daemon.module")


def check_jobs(
    jobs: Mapping[str, SparkJob], known: Mapping[str, object], streams: Mapping[str, Stream]
) -> Iterator[Flaw]:
    """Findings of jobs; `known` are names that count as streams, and `streams` those of them that are sound."""
    taken: dict[str, str] = {}
    for name, job in jobs.items():
        for index, stream in enumerate(job.streams):
            path = (name, "streams", index)
            if stream not in known:
                flaw = unknown((), "stream", stream, known)
                yield Flaw(path, flaw.message, flaw.hint)
                continue
            for each in [found.name for found in streams.values() if is_named(found, [stream])] or [stream]:
                if each in taken:
                    again = "twice in this job" if taken[each] == name else f"in the job {taken[each]!r} already"
                    yield Flaw(path, f"the stream {each!r} is {again}", "a stream runs in one job: name it once")
                taken.setdefault(each, name)
        if job.master is not None and not _MASTER.fullmatch(job.master):
            hint = "write local[N], spark://HOST:PORT, yarn or k8s://https://HOST:PORT"
            yield Flaw((name, "master"), f"{job.master!r} is no Spark master", hint)
        for key in job.spark:
            if key in _OURS:
                yield Flaw((name, "spark", key), f"{key!r} is set by Headgate", "leave it out; a master is `master:`")
            elif not key.startswith("spark."):
                yield Flaw((name, "spark", key), f"{key!r} is no option of Spark", "they begin with `spark.`")
