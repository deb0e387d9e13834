"""The Spark driver of a deployment, as a process of its own: ``python -m headgate.pipeline.job CONFIG``.

It runs one query per stream in one session, of all streams or of those that the deployment file gives to it, restarts
a query that fails, and ends with the process that started it.
All that it needs after a crash is in the checkpoints and the root logs.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from headgate.diagnostics import SERVICE, configure, noted, stream_log
from headgate.errors import HeadgateError, masked
from headgate.fabric import SyncFabric
from headgate.fabric.vitals import read_vitals
from headgate.model import Stream
from headgate.model.spark_job import is_named
from headgate.pipeline.causes import cause_of
from headgate.pipeline.pacing import QueryPace
from headgate.pipeline.start_stages import Stages
from headgate.protocol.records import Record
from headgate.protocol.reports import JobReport
from headgate.wire.logs import Logs
from headgate.wire.record import read_record, write_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headgate.pipeline.worker import Address
    from headgate.wire.snapshot import Snapshot

_CHECK_S: Final = 0.5
_RESTART_S: Final = 2.0
_SAY_S: Final = 5.0
_FIRST_S: Final = 90.0
CONNECTION: Final = "HEADGATE_JOB_CONNECTION"
"""The environment variable with the job's address of NATS and its credentials, as a record."""
_KIND: Final = "job-config"
_STOP_S: Final = 10.0


class JobConnection(Record, frozen=True, kw_only=True):
    """The job's address of NATS and its credentials."""

    kind_name = "job-connection"
    url: str
    nats_options: dict[str, Any]


@dataclass(frozen=True)
class JobConfig:
    """What the driver needs to know; written by the service into the state directory.

    A job with a `name` runs `streams`; the one without runs all others, which are those that are not in `others`.
    """

    url: str
    namespace: str
    state_dir: str
    master: str = "local[*]"
    trigger_s: float = 1.0
    partitions: int | None = None
    new_lineage: bool = False
    name: str = ""
    streams: tuple[str, ...] | None = None
    others: tuple[str, ...] = ()
    archive: str | None = None
    spark_options: Mapping[str, str] = field(default_factory=dict)
    nats_options: Mapping[str, Any] = field(default_factory=dict)
    log_level: str = "warning"
    log_format: str = "text"

    def shown(self) -> bytes:
        """What is written into the state directory, for everybody to read: how to prove who we are is left out."""
        return write_record(_KIND, replace(self, url=masked(self.url), nats_options={}))

    def connection(self) -> str:
        """What is left out there, for the job's environment, which only its own user can read."""
        return JobConnection(url=self.url, nats_options=dict(self.nats_options)).encode().decode()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a configuration file, and the connection from the environment, which no child process inherits."""
        config = read_record(_KIND, cls, path.read_bytes())
        given = os.environ.pop(CONNECTION, None)
        if given is None:
            return config
        connection = JobConnection.decode(given.encode())
        return replace(config, url=connection.url, nats_options=connection.nats_options)

    @property
    def address(self) -> Address:
        """How to reach the fabric."""
        from headgate.pipeline.session import is_local
        from headgate.pipeline.worker import Address

        found = Address(self.url, Logs(self.namespace), self.nats_options)
        return found if is_local(self.master) else found.portable()


class Job:
    """The running queries. `run` returns when `stop` was called."""

    def __init__(self, config: JobConfig) -> None:
        self.config = config
        self.stages = Stages()
        self._stop = threading.Event()
        self._queries: dict[str, StreamingQuery] = {}

    def stop(self, *_: object) -> None:
        """Ask `run` to end; also a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Start every query, watch them, and stop them.

        What does not need each other runs side by side: Java starts while this process imports what it runs, and the
        workers load what they run while the queries are planned.
        """
        with ThreadPoolExecutor(2, "start") as pool, self.config.address.connect() as fabric:
            self._say(fabric, "starting Spark")
            session = pool.submit(self._session)
            import headgate.pipeline.query  # noqa: F401 - while Java starts
            from headgate.pipeline.states import read_snapshot
            from headgate.protocol.commits import newest_revision

            self.stages.end("imports")
            spark = session.result()
            try:
                warmed = pool.submit(self._warm_up, spark)
                version = fabric.run(newest_revision(fabric.fabric))
                wanted = self._wanted(read_snapshot(fabric, version))
                for stream in wanted.values():
                    self._try_start(spark, fabric, stream)
                self.stages.end("queries")
                self._say(fabric, "running the first micro-batches")
                self._wait_first(warmed)
                self._say(fabric, "ready", stages=self.stages.ends_s)
                print(f"headgate: ready; stages ended after (s): {json.dumps(self.stages.ends_s)}", flush=True)
                self._watch(spark, fabric, wanted, version)
            finally:
                self._end(spark)

    def _session(self) -> SparkSession:
        from headgate.pipeline.session import make_session

        config = self.config
        archive = None if config.archive is None else Path(config.archive)
        name = f"headgate {config.name}" if config.name else "headgate"
        spark = make_session(name, config.master, config.spark_options, Path(config.state_dir), archive)
        self.stages.end("session")
        return spark

    def _end(self, spark: SparkSession) -> None:
        """Stop the queries, each between two micro-batches if it can be, since Spark breaks one off noisily."""
        deadline = time.monotonic() + _STOP_S
        for name, query in self._queries.items():
            with noted(stream_log(name), "the query did not stop cleanly", Exception, level=logging.WARNING):
                while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
                    time.sleep(_CHECK_S / 25)
                query.stop()
        spark.stop()

    def _try_start(self, spark: SparkSession, fabric: SyncFabric, stream: Stream) -> None:
        """Start a stream's query; one that cannot start says why and is tried again, and stops no other."""
        try:
            self._start(spark, fabric, stream)
        except Exception as error:  # noqa: BLE001 - whatever Spark raises for a source is the source's problem
            self._failed(fabric, stream.name, error)

    def _failed(self, fabric: SyncFabric, name: str, error: object) -> None:
        self._queries.pop(name, None)
        cause = masked(cause_of(error))
        stream_log(name).error("the query of stream %r has stopped and is tried again: %s", name, cause)
        self._say(fabric, "failed", stream=name, error=cause)

    def _start(self, spark: SparkSession, fabric: SyncFabric, stream: Stream) -> None:
        from headgate.pipeline.query import QuerySettings, start_query

        trigger_s = float(stream.options.get("trigger_s", self.config.trigger_s))
        pace = QueryPace(trigger_s, spark.sparkContext.defaultParallelism)
        settings = QuerySettings(
            trigger_s=trigger_s,
            partitions=self.config.partitions,
            new_lineage=self.config.new_lineage,
            told=lambda _: self.stages.end("first commit"),
            rest=lambda took_s: self._stop.wait(pace.rest_s(took_s, len(self._queries))),
        )
        self._queries[stream.name] = start_query(
            spark,
            stream,
            self.config.address,
            fabric,
            Path(self.config.state_dir) / "checkpoints" / stream.name,
            settings,
        )

    def _warm_up(self, spark: SparkSession) -> None:
        """Start the Python workers, so that the first rows do not wait for what they import."""
        cores = spark.sparkContext.defaultParallelism
        spark.range(cores, numPartitions=cores).mapInArrow(_import_all, "id bigint").count()
        self.stages.end("workers")

    def _wait_first(self, warmed: Future[None]) -> None:
        """Wait until every query has run once: the first micro-batch compiles its plan and starts its workers."""
        deadline = time.monotonic() + _FIRST_S
        while time.monotonic() < deadline and not self._stop.wait(_CHECK_S / 5):
            queries = self._queries.values()
            if warmed.done() and all(query.lastProgress is not None or not query.isActive for query in queries):
                self.stages.end("first micro-batches")
                return

    def _wanted(self, snapshot: Snapshot) -> dict[str, Stream]:
        """The streams of a revision that this job runs."""
        chosen, others = self.config.streams, self.config.others
        return {
            name: each
            for name, each in snapshot.deployment.streams.items()
            if (chosen is None or is_named(each, chosen)) and not is_named(each, others)
        }

    def _follow(self, fabric: SyncFabric, streams: dict[str, Stream], version: int) -> tuple[dict[str, Stream], int]:
        """The streams of the newest revision; queries of those that are gone, or are read differently, are stopped."""
        from headgate.pipeline.states import read_snapshot
        from headgate.protocol.commits import newest_revision

        newest = version
        with noted(SERVICE, "the newest revision was not read, it is tried again", HeadgateError):
            newest = fabric.run(newest_revision(fabric.fabric))
            if newest != version:
                now = self._wanted(read_snapshot(fabric, newest))
                for name in [name for name in self._queries if _read_as(now.get(name)) != _read_as(streams.get(name))]:
                    with noted(stream_log(name), "the query did not stop cleanly", Exception, level=logging.WARNING):
                        self._queries.pop(name).stop()
                return now, newest
        return streams, version

    def _watch(self, spark: SparkSession, fabric: SyncFabric, streams: dict[str, Stream], version: int) -> None:
        """Restart what fails, until told to stop. A query that fails is tried again; its error is published.

        Streams that are new in the catalog are begun, those that are gone are ended.
        """
        said_s = time.monotonic()
        while not self._stop.wait(_CHECK_S):
            if time.monotonic() - said_s > _SAY_S:  # so that a job that hangs or is gone can be told from an idle one
                said_s = time.monotonic()
                self._say(fabric, "ready")
                process = f"job-{self.config.name}" if self.config.name else "job"
                fabric.publish(fabric.logs.stats("process", process), read_vitals(process).encode())
            streams, version = self._follow(fabric, streams, version)
            for name, query in list(self._queries.items()):
                if not query.isActive:
                    self._failed(fabric, name, query.exception())
            missing = [stream for name, stream in streams.items() if name not in self._queries]
            if missing and not self._stop.wait(_RESTART_S):
                for stream in missing:
                    self._try_start(spark, fabric, stream)

    def _say(self, fabric: SyncFabric, state: str, stream: str = "_", **more: Any) -> None:
        whose = None if stream == "_" else stream
        report = JobReport(state=state, pid=os.getpid(), time_ms=int(time.time() * 1000), stream=whose, **more)
        logs = fabric.logs
        fabric.publish(
            logs.job_stats(self.config.name) if whose is None else logs.stats("job", stream), report.encode()
        )


def _read_as(stream: Stream | None) -> Stream | None:
    """What a query depends on: the rate that is expected is the planner's, and how long rows are kept the relay's."""
    return None if stream is None else replace(stream, rate_rows_per_s=None, keep_s=None)


def _import_all(batches: Any) -> Any:
    import headgate.pipeline.match

    del headgate
    yield from batches


def _end_with_parent() -> None:
    """Kill this process, and with it the JVM, when the one that started it is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def main(arguments: list[str]) -> None:
    """Run the job described by a configuration file."""
    _end_with_parent()
    config = JobConfig.load(Path(arguments[0]))
    configure(config.log_level, config.log_format)
    job = Job(config)
    signal.signal(signal.SIGTERM, job.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job.run()


if __name__ == "__main__":
    main(sys.argv[1:])
