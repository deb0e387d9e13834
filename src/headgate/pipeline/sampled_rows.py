"""A few rows of every micro-batch, whether anybody wants them or not, for whoever asks what a filter would match.

The root log holds only rows that somebody wants, so it says nothing about a filter that nobody has yet. The sample is
drawn before matching: it does not depend on who subscribes to what, and tells nobody about that.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.fabric import SyncFabric
from headgate.protocol.reports import SampleReport
from headgate.wire.row_sample import RowSample, decode_sample, encode_sample

BATCH_ROWS: Final = 16
"""Rows that are drawn of an Arrow batch of a micro-batch."""
BATCH_BYTES: Final = 64 << 10
"""What they may take; of large rows fewer are drawn."""
KEPT: Final = 48
"""Of how many Arrow batches the rows are kept."""
KEPT_BYTES: Final = 256 << 10
PUBLISH_S: Final = 10.0


def draw(rows: pa.RecordBatch, seed: int) -> bytes:
    """A sample of rows without replacement, encoded; no bytes where there is no row that is small enough."""
    count = min(BATCH_ROWS, rows.num_rows)
    if not count:
        return b""
    places = np.random.default_rng(seed).choice(rows.num_rows, count, replace=False)
    while count:
        found = rows.take(pa.array(np.sort(places[:count])))
        if found.nbytes <= BATCH_BYTES:
            return encode_sample(RowSample(found, np.full(count, rows.num_rows / count)))
        count //= 4
    return b""


class SampleKeeper:
    """Keeps the newest sampled rows of a stream, and publishes them every few seconds."""

    def __init__(self, stream: str, every_s: float = PUBLISH_S) -> None:
        self._stream = stream
        self._every_s = every_s
        self._samples: deque[RowSample] = deque(maxlen=KEPT)
        self._published_s: float | None = None

    def learn(self, samples: Iterable[bytes], fabric: SyncFabric) -> None:
        """Take the samples of a micro-batch that was committed."""
        self._samples.extend(map(decode_sample, samples))
        while sum(each.rows.nbytes for each in self._samples) > KEPT_BYTES:
            self._samples.popleft()
        now_s = time.monotonic()
        if self._samples and (self._published_s is None or now_s >= self._published_s + self._every_s):
            self._published_s = now_s
            schema = self._samples[-1].rows.schema
            kept = [each for each in self._samples if each.rows.schema == schema]
            rows = pa.Table.from_batches([each.rows for each in kept]).combine_chunks().to_batches()[0]
            found = RowSample(rows, np.concatenate([each.weights for each in kept]))
            report = SampleReport(time_ms=int(time.time() * 1000), data=encode_sample(found))
            fabric.publish(fabric.logs.stats("sample", self._stream), report.encode())
