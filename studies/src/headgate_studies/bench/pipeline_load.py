"""The Spark job over files of Zipf messages, with an index of profiles or with a single class, and what it took."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.fabric import SyncFabric
from headgate.matching import ClassLists
from headgate.matching.definitions import ClassGroup
from headgate.matching.live import LiveIndex
from headgate.model import Deployment, Schema, Site, Source, Stream, Subscription
from headgate.pipeline.classes import reading_of, template_of
from headgate.pipeline.query import QuerySettings, start_query
from headgate.pipeline.worker import Address
from headgate.protocol.reports import JobReport
from headgate.relay.tables import publish_snapshot
from headgate.wire.codec import encode_stream
from headgate.wire.manifest import Manifest, decode_manifest
from headgate.wire.part import Part, decode_part
from headgate.wire.snapshot import Snapshot
from headgate_studies.bench.cpu import cpu_by_process, memory_by_process
from headgate_studies.workloads.matching import MatchingWorkload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKED: Final = 200


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """One job: its stream, rows and seconds between the first and the last commit, and what the workers told.

    `first_ms` is when the first commit was, in milliseconds since 1970.
    """

    stream: str
    rows: int
    first_ms: int
    seconds: float
    matched: int
    match_s: float
    class_s: float
    class_bytes: int
    work_s: float
    cpu_s: float
    cpu_by_process_s: dict[str, float]
    part_bytes: int
    manifest_bytes: float
    batches: int
    worker_mb: float


class PipelineLoad:
    """The deployment that both jobs run in: one stream a run, all over the same files."""

    def __init__(
        self,
        spark: SparkSession,
        fabric: SyncFabric,
        address: Address,
        place: Path,
        workload: MatchingWorkload,
        cores: int,
    ) -> None:
        self.spark, self.fabric, self.address, self.place = spark, fabric, address, place
        self.workload, self.cores = workload, cores
        self.schema = Schema.of(dict.fromkeys(workload.names, "double"))
        self.version = 0
        for log in (fabric.logs.state, fabric.logs.tables):
            fabric.ensure(log)

    def write(self, rng: np.random.Generator, rows: int, batches: int) -> None:
        """Files of so many messages, one a core and micro-batch; the first micro-batch is not measured."""
        directory = self.place / f"in-{rows}"
        directory.mkdir()
        for number in range((batches + 1) * self.cores):
            batch = self.workload.batch(self.workload.messages(rng, rows))
            pq.write_table(pa.Table.from_batches([batch]), directory / f"{number:04d}.parquet")

    def _stream(self, name: str, rows: int = 0) -> Stream:
        options = {"path": str(self.place / f"in-{rows}"), "maxFilesPerTrigger": str(self.cores)}
        return Stream(name, self.schema, Source("parquet", options), "root")

    def template(self) -> str:
        """The paper's profile: a range of a set width around a value of the context, for each attribute."""
        pairs = enumerate(zip(self.workload.names, self.workload.widths.tolist(), strict=True))
        where = " AND ".join(
            f"{name} BETWEEN $c{k} - {width / 2!r}D AND $c{k} + {width / 2!r}D" for k, (name, width) in pairs
        )
        context = {f"c{k}": 0.5 for k in range(self.workload.attributes)}
        return template_of(Subscription("p", "s", "root", where, context=context))

    def index(self, contexts: np.ndarray) -> LiveIndex:
        """The index of all profiles, compiled from one filter and a table of contexts as the driver compiles it."""
        columns = [pa.array(np.ascontiguousarray(contexts[:, k])) for k in range(self.workload.attributes)]
        table = pa.RecordBatch.from_arrays(columns, names=[f"c{k}" for k in range(self.workload.attributes)])
        group = ClassGroup(self.template(), np.arange(len(contexts), dtype=np.uint32), table)
        return LiveIndex.build(reading_of(self._stream("s")), [group])

    def run(self, name: str, rows: int, index: LiveIndex | None) -> PipelineRun:
        """Run a job over all files and read its manifests and reports."""
        from headgate.matching.compiled.saved import SavedIndexes

        self.version += 1
        stream, checkpoint = self._stream(name, rows), self.place / name
        everything = Subscription("everything", name, "root")
        snapshot = Snapshot(
            self.version,
            Deployment({name: stream}, {"root": Site("root")}, subscriptions={"everything": everything}),
            subscription_ids={"everything": 1},
            class_ids={"everything": 1},
        )
        self.fabric.run(publish_snapshot(self.fabric.fabric, snapshot))
        if index is not None:
            document = {"stream": json.loads(json.dumps(encode_stream(stream))), "context": 0}
            SavedIndexes(checkpoint / "indexes").save(self.version, index, document)
        reports: list[JobReport] = []
        spent: list[dict[str, float]] = []
        held: list[dict[str, float]] = []

        def told(report: JobReport) -> None:
            reports.append(report)
            spent.append(cpu_by_process())
            held.append(memory_by_process())

        settings = QuerySettings(trigger_s=0.0, told=told)
        query = start_query(self.spark, stream, self.address, self.fabric, checkpoint, settings)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        manifests = self._manifests(name)
        counted = manifests[1:]
        match_s, class_s, class_bytes, work_s = (
            sum(getattr(each, key) for each in reports[1:]) for key in ("match_s", "class_s", "class_bytes", "work_s")
        )
        return PipelineRun(
            stream=name,
            rows=sum(each.rows_in for each in counted),
            first_ms=manifests[0].time_ms,
            seconds=(manifests[-1].time_ms - manifests[0].time_ms) / 1000,
            matched=sum(int(each.class_counts.sum()) for each in counted),
            match_s=match_s,
            class_s=class_s,
            class_bytes=class_bytes,
            work_s=work_s,
            cpu_s=sum(spent[-1].values()) - sum(spent[0].values()),
            cpu_by_process_s={kind: spent[-1][kind] - used_s for kind, used_s in spent[0].items()},
            part_bytes=self._part_bytes(name, counted),
            manifest_bytes=self._manifest_bytes(name) / len(manifests),
            batches=len(counted),
            worker_mb=max(each["workers"] for each in held),
        )

    def _manifests(self, name: str) -> list[Manifest]:
        logs, place = self.fabric.logs, 0
        found: list[Manifest] = []
        while batch := self.fabric.read(logs.root(name), logs.commit(name), place):
            found.extend(decode_manifest(stored.data) for stored in batch)
            place = batch[-1].sequence
        return found

    def _part_bytes(self, name: str, manifests: Sequence[Manifest]) -> int:
        """The bytes of the parts that manifests name, as they lie in the root log."""
        log = self.fabric.logs.root(name)
        found = [
            self.fabric.get(log, part.log_sequence) for each in manifests for part in each.parts if part.log_sequence
        ]
        return sum(len(stored.data) for stored in found if stored is not None)

    def _manifest_bytes(self, name: str) -> int:
        logs = self.fabric.logs
        return sum(len(stored.data) for stored in self.fabric.read(logs.root(name), logs.commit(name), 0))

    def parts(self, run: PipelineRun) -> Iterator[Part]:
        """All parts that a job has committed, in the order of their rows."""
        log = self.fabric.logs.root(run.stream)
        for manifest in self._manifests(run.stream):
            for reference in manifest.parts:
                if reference.log_sequence:
                    stored = self.fabric.get(log, reference.log_sequence)
                    assert stored is not None
                    yield decode_part(stored.data, self.schema.arrow)

    def check(self, run: PipelineRun, contexts: np.ndarray) -> int:
        """How many of the first rows have other classes in the log than brute force gives them."""
        part = next(self.parts(run))
        values = np.stack([part.rows.column(name).to_numpy() for name in self.workload.names], axis=1)[:_CHECKED]
        lows, highs = self.workload.ranges(contexts)
        expected = ClassLists.of(np.flatnonzero(((row >= lows) & (row <= highs)).all(axis=1)) for row in values)
        given = part.classes.take(np.arange(len(values)))
        return sum(given.row(k).tolist() != expected.row(k).tolist() for k in range(len(values)))
