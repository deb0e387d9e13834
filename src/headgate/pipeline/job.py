"""The Spark driver of a deployment, as a process of its own: ``python -m headgate.pipeline.job CONFIG``.

It runs one query per stream in one session, restarts a query that fails, and ends with the process that started it.
All that it needs after a crash is in the checkpoints and the root logs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from headgate.errors import HeadgateError
from headgate.fabric import SyncFabric
from headgate.model import Stream
from headgate.pipeline.query import start_query
from headgate.pipeline.session import make_session
from headgate.pipeline.states import read_snapshot
from headgate.pipeline.worker import Address
from headgate.wire.logs import Logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CHECK_S: Final = 0.5
_RESTART_S: Final = 2.0
_FIRST_S: Final = 90.0


@dataclass(frozen=True)
class JobConfig:
    """What the driver needs to know; written by the service into the state directory."""

    url: str
    namespace: str
    state_dir: str
    master: str = "local[*]"
    trigger_s: float = 1.0
    partitions: int | None = None
    new_lineage: bool = False
    streams: tuple[str, ...] | None = None
    spark_options: Mapping[str, str] = field(default_factory=dict)
    nats_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a configuration file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    @property
    def address(self) -> Address:
        """How to reach the fabric."""
        return Address(self.url, Logs(self.namespace), self.nats_options)


class Job:
    """The running queries. `run` returns when `stop` was called."""

    def __init__(self, config: JobConfig) -> None:
        self.config = config
        self._stop = threading.Event()
        self._queries: dict[str, StreamingQuery] = {}

    def stop(self, *_: object) -> None:
        """Ask `run` to end; also a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Start every query, watch them, and stop them."""
        config = self.config
        state = Path(config.state_dir)
        with config.address.connect() as fabric:
            self._say(fabric, "starting Spark")
            spark = make_session("headgate", config.master, config.spark_options, state)
            try:
                self._warm_up(spark)
                head = fabric.last(fabric.logs.state, fabric.logs.head)
                if head is None:
                    raise HeadgateError(
                        f"the log {fabric.logs.state.name} holds no message of {fabric.logs.head}: which revision of "
                        "the catalog is in force cannot be read",
                        hint="start `headgate up` again; it says whether the NATS store is damaged",
                    )
                streams = read_snapshot(fabric, int(head.data)).deployment.streams
                wanted = [
                    stream for name, stream in streams.items() if config.streams is None or name in config.streams
                ]
                for stream in wanted:
                    self._try_start(spark, fabric, stream)
                self._say(fabric, "running the first micro-batches")
                self._wait_first()
                self._say(fabric, "ready")
                self._watch(spark, fabric, {stream.name: stream for stream in wanted})
            finally:
                for query in self._queries.values():
                    with contextlib.suppress(Exception):
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
        print(f"headgate: stream {name!r} stopped: {error}", file=sys.stderr, flush=True)
        self._say(fabric, "failed", stream=name, error=_brief(str(error)))

    def _start(self, spark: SparkSession, fabric: SyncFabric, stream: Stream) -> None:
        count = self.config.partitions
        self._queries[stream.name] = start_query(
            spark,
            stream,
            self.config.address,
            fabric,
            Path(self.config.state_dir) / "checkpoints" / stream.name,
            trigger_s=float(stream.options.get("trigger_s", self.config.trigger_s)),
            new_lineage=self.config.new_lineage,
            shape=None if count is None else lambda frame: frame.repartition(count),
        )

    def _warm_up(self, spark: SparkSession) -> None:
        """Start the Python workers and load what they import, so that the first rows do not wait for it."""
        cores = spark.sparkContext.defaultParallelism
        spark.range(cores, numPartitions=cores).mapInArrow(_import_all, "id bigint").count()

    def _wait_first(self) -> None:
        """Wait until every query has run once: the first micro-batch compiles its plan and starts its workers."""
        deadline = time.monotonic() + _FIRST_S
        while time.monotonic() < deadline and not self._stop.wait(_CHECK_S / 5):
            if all(query.lastProgress is not None or not query.isActive for query in self._queries.values()):
                return

    def _watch(self, spark: SparkSession, fabric: SyncFabric, streams: Mapping[str, Stream]) -> None:
        """Restart what fails, until told to stop. A query that fails is tried again; its error is published."""
        while not self._stop.wait(_CHECK_S):
            for name, query in list(self._queries.items()):
                if not query.isActive:
                    self._failed(fabric, name, query.exception())
            missing = [stream for name, stream in streams.items() if name not in self._queries]
            if missing and not self._stop.wait(_RESTART_S):
                for stream in missing:
                    self._try_start(spark, fabric, stream)

    def _say(self, fabric: SyncFabric, state: str, **more: str) -> None:
        document = {"state": state, "pid": os.getpid(), "time_ms": int(time.time() * 1000), **more}
        fabric.publish(fabric.logs.stats("job", more.get("stream", "_")), json.dumps(document).encode())


def _brief(text: str) -> str:
    return text.strip().split("\n", 1)[0][:500]


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
    job = Job(JobConfig.load(Path(arguments[0])))
    signal.signal(signal.SIGTERM, job.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job.run()


if __name__ == "__main__":
    main(sys.argv[1:])
