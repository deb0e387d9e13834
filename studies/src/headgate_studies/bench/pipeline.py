"""The whole Spark job, source to committed manifest, with 500,000 profiles against the same job without matching.

Both jobs read the same Parquet files of Zipf messages (the filter-QoS paper's Table 1, workload a), validate, stage and
commit every row. One matches with an index of the paper's profiles, saved as the driver saves it and mapped by the
workers; the other has a single class that takes every row, so that rows are carried and nothing is looked for. Runs
alternate; figures are from the first commit to the last, so that start-up is not in them. A micro-batch has a fixed
cost, so the share of matching grows with its rows: it is given for several sizes, and the judged one is the largest.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.fabric import EmbeddedServer, SyncFabric
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
from headgate.wire.logs import Logs
from headgate.wire.manifest import Manifest, decode_manifest
from headgate.wire.part import decode_part
from headgate.wire.snapshot import Snapshot
from headgate_studies.bench.cpu import cpu_by_process, memory_by_process
from headgate_studies.bench.versions import check_version, figures_of
from headgate_studies.workloads.matching import FEW_MATCHES, MatchingWorkload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKED = 200
# What is compared with a version before, and which of its runs counts: the one that others disturbed least.
_COMPARED: Final[dict[str, Callable[[Iterable[float]], float]]] = {
    "rows_per_s_with_matching": max,
    "cpu_us_per_row_with_matching": min,
    "match_cpu_us_per_row": min,
    "class_transport_cpu_us_per_row": min,
}


def run(
    profiles: int = 500_000,
    rows: Sequence[int] = (20_000, 100_000),
    batches: int = 6,
    repeats: int = 3,
    seed: int = 1,
    master: str = "local[*]",
    before: str = "",
) -> dict[str, Any]:
    """Rows per second of both jobs and what matching adds, by the number of rows that a core gets in a micro-batch.

    With `before`, the folder of another version's sources, that version runs the same in turn, a process for each time.
    """
    if before:
        return _beside(before, profiles, rows, batches, repeats, seed, master)
    from headgate_studies.session import make_session

    workload = MatchingWorkload(profiles=profiles, narrowest=FEW_MATCHES.narrowest)
    rng = np.random.default_rng(seed)
    contexts = workload.contexts(rng)
    spark = make_session("bench pipeline", master)
    figures: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as place,
        EmbeddedServer(Path(place) / "nats", sync_always=True) as server,
        SyncFabric(server.url, Logs(root_bytes=8 << 30)) as fabric,
    ):
        cores = spark.sparkContext.defaultParallelism
        bench = _Bench(spark, fabric, Address(server.url, fabric.logs), Path(place), workload, cores)
        began = time.perf_counter()
        index = bench.index(contexts)
        built_s = time.perf_counter() - began
        mismatches = 0
        for size in sorted(rows):
            bench.write(rng, size, batches)
            runs: dict[bool, list[_Run]] = {True: [], False: []}
            for number in range(repeats):
                for matching in (False, True):
                    name = f"{'on' if matching else 'off'}-{size}-{number}"
                    runs[matching].append(bench.run(name, size, index if matching else None))
            mismatches += bench.check(runs[True][-1], contexts)
            found = _figures(runs[False], runs[True])
            print(f"{size * cores:,} rows a micro-batch")
            for name, value in found.items():
                print(f"  {name:<40} {value:>14,}")
            figures |= {f"share_at_{size * cores}_rows": found["matching_share_of_job"], **found}
    figures |= {"profiles": profiles, "index_build_s": round(built_s, 2), "oracle_mismatches": mismatches}
    print(f"index built in {built_s:.1f} s, {mismatches} lists differ from brute force")
    if mismatches:
        raise AssertionError(f"{mismatches} lists differ from brute force")
    return figures


def _beside(before: str, *given: Any) -> dict[str, Any]:
    """The figures of this version, and ratios of its rows and processor time to those of the version before."""
    check_version(before)
    code = f"import json; from headgate_studies.bench.pipeline import run; print(json.dumps(run(*{given!r})))"
    found: dict[str, list[dict[str, Any]]] = {"": [], before: []}
    for place in (before, "", before, ""):
        found[place].append(figures_of(code, place))
        told = {key: found[place][-1][key] for key in _COMPARED}
        print(f"{'before' if place else 'now'}: " + ", ".join(f"{key} {value:,}" for key, value in told.items()))
    result: dict[str, Any] = {**found[""][-1]}
    for key, better in _COMPARED.items():
        now, then = (better(each[key] for each in found[place]) for place in ("", before))
        result |= {key: now, f"before_{key}": then, f"ratio_{key}": round(now / then, 3)}
    return result


@dataclass(frozen=True, slots=True)
class _Run:
    """One job: its stream, rows and seconds between the first and the last commit, and what the workers told."""

    stream: str
    rows: int
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


class _Bench:
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

    def run(self, name: str, rows: int, index: LiveIndex | None) -> _Run:
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
        return _Run(
            stream=name,
            rows=sum(each.rows_in for each in counted),
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

    def check(self, run: _Run, contexts: np.ndarray) -> int:
        """How many of the first rows have other classes in the log than brute force gives them."""
        logs = self.fabric.logs
        reference = next(part for each in self._manifests(run.stream) for part in each.parts if part.log_sequence)
        stored = self.fabric.get(logs.root(run.stream), reference.log_sequence)
        assert stored is not None
        part = decode_part(stored.data, self.schema.arrow)
        values = np.stack([part.rows.column(name).to_numpy() for name in self.workload.names], axis=1)[:_CHECKED]
        lows, highs = self.workload.ranges(contexts)
        expected = ClassLists.of(np.flatnonzero(((row >= lows) & (row <= highs)).all(axis=1)) for row in values)
        given = part.classes.take(np.arange(len(values)))
        return sum(given.row(k).tolist() != expected.row(k).tolist() for k in range(len(values)))


def _figures(off: Sequence[_Run], on: Sequence[_Run]) -> dict[str, Any]:
    """Medians over the repeats; a share is of the job with matching."""
    without = statistics.median(each.seconds / each.rows for each in off)
    matching = statistics.median(each.seconds / each.rows for each in on)
    rows = sum(each.rows for each in on)

    def micros(name: str, runs: Sequence[_Run] = on) -> float:
        seconds = float(sum(getattr(each, name) for each in runs))
        return round(1e6 * seconds / sum(each.rows for each in runs), 3)

    def by_process(kind: str, count: int) -> float:
        return round(1e6 * sum(each.cpu_by_process_s[kind] for each in on) / count, 3)

    return {
        "rows_per_s_without_matching": round(1 / without),
        "rows_per_s_with_matching": round(1 / matching),
        "matching_share_of_job": round(1 - without / matching, 3),
        "cpu_us_per_row_without_matching": micros("cpu_s", off),
        "cpu_us_per_row_with_matching": micros("cpu_s"),
        "matching_share_of_cpu": round(1 - micros("cpu_s", off) / micros("cpu_s"), 3),
        "match_and_classes_share_of_cpu": round((micros("match_s") + micros("class_s")) / micros("cpu_s"), 3),
        "matches_per_row": round(sum(each.matched for each in on) / rows, 1),
        "match_cpu_us_per_row": micros("match_s"),
        "class_transport_cpu_us_per_row": micros("class_s"),
        "class_bytes_per_row": round(sum(each.class_bytes for each in on) / rows, 1),
        "worker_us_per_row_with": micros("work_s"),
        "worker_us_per_row_without": micros("work_s", off),
        **{f"{kind}_cpu_us_per_row": by_process(kind, rows) for kind in ("java", "workers", "server")},
        "driver_cpu_us_per_micro_batch": by_process("driver", sum(each.batches for each in on)),
        "largest_worker_mb": round(max(each.worker_mb for each in on), 1),
        "staged_bytes_per_row": round(sum(each.part_bytes for each in on) / rows, 1),
        "manifest_bytes_per_micro_batch": round(statistics.mean(each.manifest_bytes for each in on), 1),
        "rows_measured": rows,
    }
