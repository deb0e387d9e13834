"""Rows committed from this process, as the Spark job commits them, without Spark.

The same match pass, staging and manifest as in a query, one batch at a time: for benchmarks and studies of what comes
behind the root, whose figures a Spark session beside them would blur, and for tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

import pyarrow as pa

from headgate.pipeline.commit import commit, pin_batch
from headgate.pipeline.control import UpdateController
from headgate.pipeline.errors import Errors
from headgate.pipeline.indexes import IndexKeeper
from headgate.pipeline.match import MatchPass
from headgate.pipeline.sampled_rows import SampleKeeper
from headgate.pipeline.shares import MatchingShares
from headgate.pipeline.slow_classes import slow_classes
from headgate.pipeline.staged import Staged
from headgate.pipeline.worker import Address
from headgate.protocol.reports import JobReport
from headgate.wire.manifest import Manifest


class DirectCommits:
    """Commits batches of rows to streams. Owns a connection: use it as a context manager; not thread-safe.

    `on_commit` hears of every manifest, in the thread that commits. Streams with a keeper have their index saved, and
    those with a controller have their updates of contexts shed or deferred under overload.
    """

    def __init__(
        self,
        address: Address,
        lineage: str = "direct",
        on_commit: Callable[[Manifest], None] | None = None,
        keepers: Mapping[str, IndexKeeper] | None = None,
        controllers: Mapping[str, UpdateController] | None = None,
    ) -> None:
        self._address = address
        self._lineage = lineage
        self._on_commit = on_commit
        self._keepers = keepers or {}
        self._controllers = controllers or {}
        self._fabric = address.connect()
        self._slow: dict[str, dict[int, int]] = {}
        self._samples: dict[str, SampleKeeper] = {}
        self.shares: dict[str, MatchingShares] = {}
        """Streams whose matching is shared fairly while they are behind."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fabric.close()

    def commit(
        self,
        stream: str,
        rows: pa.RecordBatch,
        batch: int,
        row_cost_s: float = 0.0,
        dead: Sequence[str | None] | None = None,
    ) -> Manifest | None:
        """Match, stage and commit rows as the batch of that number, None when it was committed before.

        `dead` has for each row why it is a dead letter, None for one that is not.
        """
        nothing = pa.nulls(rows.num_rows, pa.string())
        reasons = nothing if dead is None else pa.array(dead, pa.string())
        marked = rows.append_column("_dead", reasons).append_column("_raw", nothing)
        control = self._controllers.get(stream)
        pin = pin_batch(self._fabric, stream, batch, None if control is None else control.plan)
        keeper = self._keepers.get(stream)
        index = None if keeper is None else keeper.ensure(self._fabric, pin.version)
        work = MatchPass(self._address, stream, pin, row_cost_s=row_cost_s, index=index)
        if control is not None:
            demands = self._fabric.run(control.demands(self._fabric.fabric, pin.version))
            work = replace(work, levels=demands.levels, in_order=demands.in_order)
        shares, began = self.shares.get(stream), time.perf_counter()
        if shares is not None:
            work = replace(work, parts=self._fabric.run(shares.serve(self._fabric.fabric, pin.version)).parts)
        staged = Staged.of(work(iter([marked])))
        if control is not None:
            control.learn(staged)
        manifest = commit(self._fabric, stream, self._lineage, batch, pin, staged)
        Errors.read(self._fabric, stream).after(staged, self._fabric, stream)
        self._slow[stream], slow = slow_classes(self._slow.get(stream, {}), staged)
        report = JobReport(
            stream=stream,
            state="running",
            batch=batch,
            time_ms=int(time.time() * 1000),
            slow=slow,
            **({} if shares is None else shares.report()),
        )
        if shares is not None:
            shares.learn(staged, time.perf_counter() - began)
        if report.slow or report.shares:
            self._fabric.publish(self._fabric.logs.stats("job", stream), report.encode())
        self._samples.setdefault(stream, SampleKeeper(stream)).learn(staged.samples(), self._fabric)
        if manifest is not None and self._on_commit is not None:
            self._on_commit(manifest)
        return manifest


def feed(
    direct: DirectCommits,
    stream: str,
    make: Callable[[int, int], pa.RecordBatch],
    *,
    rate: float,
    rows: int,
    every_s: float,
    stop: threading.Event,
) -> int:
    """Commit `make(start, stop)` at `rate` rows a second, a batch every `every_s`, until all `rows` are in or `stop`.

    Returns how many rows were committed. When a commit takes longer, the next batch is larger: the rate is kept.
    """
    began, sent, batch = time.monotonic(), 0, 0
    while sent < rows and not stop.wait(max(0.0, began + (batch + 1) * every_s - time.monotonic())):
        due = min(rows, int((time.monotonic() - began) * rate))
        if due > sent:
            direct.commit(stream, make(sent, due), batch)
            sent = due
        batch += 1
    return sent
