"""What a user could pick instead of the index: each peer's cost per message and per update on the same profiles.

Slow peers take a sample of the messages. All run on one thread. Time is CPU time of this process, except Spark's, whose
work is in the JVM: that is wall time. Every peer's matches are counted and compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate_studies.workloads.matching import Floats, MatchingWorkload

# Bulks of updates: about what arrives between two micro-batches, as many as a batch has messages, and all there are.
BULKS = (1_000, 20_000, 200_000)

Updates = tuple[npt.NDArray[np.uint32], npt.NDArray[Any], Floats, Floats]


@dataclass(frozen=True, slots=True)
class PeerTiming:
    """Microseconds per message, on how many messages, and how many matches those had; per update if that was tried.

    `bulk_us` are microseconds per update by size of the bulk, where a peer takes updates in bulk.
    """

    message_us: float
    messages: int
    matches: int
    update_us: float | None = None
    bulk_us: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """Profiles as bounds, messages, and updates as (profile, attribute, low, high)."""

    workload: MatchingWorkload
    lows: Floats
    highs: Floats
    messages: Floats
    updates: Updates

    def table(self) -> pa.Table:
        """Profiles as a table of `id`, `l0`, `h0`, `l1`, ..."""
        columns: dict[str, Any] = {"id": np.arange(len(self.lows), dtype=np.int64)}
        for k in range(self.workload.attributes):
            columns[f"l{k}"] = np.ascontiguousarray(self.lows[:, k])
            columns[f"h{k}"] = np.ascontiguousarray(self.highs[:, k])
        return pa.table(columns)

    def sample(self, count: int) -> pa.Table:
        """The first messages as a table of `row`, `v0`, ..."""
        batch = self.workload.batch(self.messages[:count])
        return pa.Table.from_batches([batch]).append_column("row", pa.array(np.arange(batch.num_rows)))

    @property
    def condition(self) -> str:
        """The join condition in SQL between messages m and profiles p."""
        return " AND ".join(f"m.v{k} >= p.l{k} AND m.v{k} <= p.h{k}" for k in range(self.workload.attributes))


def _cpu(work: Callable[[], int]) -> tuple[float, int]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def rtree(case: Case, messages: int = 200, updates: int = 40) -> PeerTiming:
    """`rtree` (libspatialindex), bulk loaded, one box query per message; an update is a delete and an insert."""
    from rtree import index

    properties = index.Property(dimension=case.workload.attributes)
    tree = index.Index((np.arange(len(case.lows)), case.lows, case.highs), properties=properties)
    points = [np.concatenate([row, row]) for row in case.messages[:messages]]
    spent, matches = _cpu(lambda: sum(len(list(tree.intersection(point))) for point in points))
    profiles, attributes, lows, highs = case.updates

    def change() -> int:
        for profile, attribute, low, high in zip(
            profiles[:updates].tolist(), attributes[:updates].tolist(), lows[:updates], highs[:updates], strict=True
        ):
            box = np.concatenate([case.lows[profile], case.highs[profile]])
            tree.delete(profile, box)
            box[attribute], box[case.workload.attributes + attribute] = low, high
            tree.insert(profile, box)
            tree.delete(profile, box)
            tree.insert(profile, np.concatenate([case.lows[profile], case.highs[profile]]))
        return updates

    changing, _ = _cpu(change)
    return PeerTiming(spent / messages * 1e6, messages, matches, changing / (2 * updates) * 1e6)


def duckdb(case: Case, messages: int = 40) -> PeerTiming:
    """DuckDB: a range join of a table of messages with the profiles; updates in bulk, one statement an attribute."""
    import duckdb as engine

    connection = engine.connect(config={"threads": 1})
    connection.register("given", case.table())
    connection.execute("CREATE TABLE p AS SELECT * FROM given")
    connection.register("m", case.sample(messages))
    query = f"SELECT m.row, p.id FROM m JOIN p ON {case.condition}"  # noqa: S608 (columns named here, no user text)
    spent, matches = _cpu(lambda: len(connection.execute(query).fetchnumpy()["id"]))
    profiles, attributes, lows, highs = case.updates
    everything = pa.table({"id": profiles.astype(np.int64), "a": attributes, "l": lows, "h": highs})

    def change() -> int:
        for k in range(case.workload.attributes):
            connection.execute(f"UPDATE p SET l{k} = u.l, h{k} = u.h FROM u WHERE p.id = u.id AND u.a = {k}")  # noqa: S608 (as above)
        return 0

    bulk_us = {}
    for bulk in BULKS:
        connection.register("u", everything.slice(0, bulk))
        bulk_us[bulk] = min(_cpu(change)[0] for _ in range(3)) / min(bulk, len(profiles)) * 1e6
    connection.close()
    return PeerTiming(spent / messages * 1e6, messages, matches, bulk_us[BULKS[-1]], bulk_us)


def polars(case: Case, messages: int = 40) -> PeerTiming:
    """Polars: a filter over the profiles per message, which is faster here than its inequality join."""
    import polars as pl

    frame = pl.from_arrow(case.table())
    assert isinstance(frame, pl.DataFrame)

    def work() -> int:
        found = 0
        for row in case.messages[:messages].tolist():
            inside = pl.all_horizontal(
                *[(pl.col(f"l{k}") <= value) & (pl.col(f"h{k}") >= value) for k, value in enumerate(row)]
            )
            found += frame.lazy().filter(inside).select("id").collect().height
        return found

    spent, matches = _cpu(work)
    return PeerTiming(spent / messages * 1e6, messages, matches)


def spark(case: Case, messages: int = 40) -> PeerTiming:
    """Spark SQL: a range join with the messages broadcast, on one core, the profiles cached; wall time."""
    from headgate_studies.session import make_session

    session = make_session("headgate-bench-matching", "local[1]", {"spark.sql.shuffle.partitions": "1"})
    session.createDataFrame(case.table()).cache().createOrReplaceTempView("p")
    session.createDataFrame(case.sample(messages)).createOrReplaceTempView("m")
    session.sql("SELECT count(*) FROM p").collect()
    query = f"SELECT /*+ BROADCAST(m) */ m.row, p.id FROM m JOIN p ON {case.condition}"  # noqa: S608 (as above)
    start = time.perf_counter()
    matches = session.sql(query).toArrow().num_rows
    spent = time.perf_counter() - start
    session.stop()
    return PeerTiming(spent / messages * 1e6, messages, matches)


@numba.njit(cache=True)  # type: ignore[untyped-decorator]  # numba ships no types
def _scan(lows: Floats, highs: Floats, messages: Floats, out: npt.NDArray[np.uint32]) -> int:
    total = 0
    for m in range(len(messages)):
        found = 0
        for p in range(len(lows)):
            inside = True
            for k in range(lows.shape[1]):
                if messages[m, k] < lows[p, k] or messages[m, k] > highs[p, k]:
                    inside = False
                    break
            if inside:
                out[found] = p
                found += 1
        total += found
    return total


def scan(case: Case, messages: int = 200) -> PeerTiming:
    """A plain numba loop over all profiles that leaves at the first attribute that does not fit."""
    out = np.empty(len(case.lows), np.uint32)
    _scan(case.lows[:10], case.highs[:10], case.messages[:1], out)
    spent, matches = _cpu(lambda: int(_scan(case.lows, case.highs, case.messages[:messages], out)))
    return PeerTiming(spent / messages * 1e6, messages, matches)


PEERS: dict[str, Callable[[Case], PeerTiming]] = {
    "rtree": rtree,
    "duckdb": duckdb,
    "polars": polars,
    "spark": spark,
    "scan": scan,
}
