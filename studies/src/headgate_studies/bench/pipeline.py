"""The whole Spark job, source to committed manifest, with 500,000 profiles against the same job without matching.

Both jobs read the same Parquet files of Zipf messages (the filter-QoS paper's Table 1, workload a), validate, stage and
commit every row. One matches with an index of the paper's profiles, saved as the driver saves it and mapped by the
workers; the other has a single class that takes every row, so that rows are carried and nothing is looked for. Runs
alternate; figures are from the first commit to the last, so that start-up is not in them. A micro-batch has a fixed
cost, so the share of matching grows with its rows: it is given for several sizes, and the judged one is the largest.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from headgate.fabric import EmbeddedServer, SyncFabric
from headgate.pipeline.worker import Address
from headgate.wire.logs import Logs
from headgate_studies.bench.pipeline_load import PipelineLoad, PipelineRun
from headgate_studies.bench.versions import check_version, figures_of
from headgate_studies.workloads.matching import FEW_MATCHES, MatchingWorkload

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
        bench = PipelineLoad(spark, fabric, Address(server.url, fabric.logs), Path(place), workload, cores)
        began = time.perf_counter()
        index = bench.index(contexts)
        built_s = time.perf_counter() - began
        mismatches = 0
        for size in sorted(rows):
            bench.write(rng, size, batches)
            runs: dict[bool, list[PipelineRun]] = {True: [], False: []}
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


def _figures(off: Sequence[PipelineRun], on: Sequence[PipelineRun]) -> dict[str, Any]:
    """Medians over the repeats; a share is of the job with matching."""
    without = statistics.median(each.seconds / each.rows for each in off)
    matching = statistics.median(each.seconds / each.rows for each in on)
    rows = sum(each.rows for each in on)

    def micros(name: str, runs: Sequence[PipelineRun] = on) -> float:
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
