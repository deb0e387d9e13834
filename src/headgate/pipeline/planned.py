"""The match pass inside of the streaming query's own plan, so that Spark plans a micro-batch once and not twice.

A match pass is different for every micro-batch: it carries the pin, the index and the costs so far. As a function of
its own it would be pickled, analysed, optimised and planned again for each. Here the plan holds one function for good,
and what is different travels as a local property of the thread that runs the micro-batch, which Spark gives to each of
its tasks. Spark keeps such properties in its event log, so how to log in to NATS is part of the function instead.
"""

from __future__ import annotations

import base64
import pickle
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headgate.pipeline.match import MatchPass
from headgate.pipeline.worker import Address
from headgate.wire.logs import Logs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PROPERTY: Final = "headgate.match_pass"
"""The local property with the match pass of the running micro-batch."""
_NOWHERE: Final = Address("", Logs())


@dataclass(frozen=True)
class PlannedPass:
    """The function in the plan: it runs the match pass that the driver has set for the micro-batch of this task."""

    address: Address

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Match and stage in a process of Spark; yields what was staged."""
        from pyspark import TaskContext

        context = TaskContext.get()
        told = None if context is None else context.getLocalProperty(PROPERTY)
        if told is None:
            raise RuntimeError(f"this task has no local property {PROPERTY!r}: nobody has set its match pass")
        return self.of(told)(batches)

    def of(self, told: str) -> MatchPass:
        """The match pass of a property's text."""
        work = pickle.loads(zlib.decompress(base64.b85decode(told)))  # noqa: S301 - written by our own driver
        assert isinstance(work, MatchPass)
        return replace(work, address=self.address)


def property_of(work: MatchPass) -> str:
    """The match pass as the text of a property, without how to log in."""
    return base64.b85encode(zlib.compress(pickle.dumps(replace(work, address=_NOWHERE)), 1)).decode()


def set_pass(frame: DataFrame, work: MatchPass) -> DataFrame:
    """Set what the tasks of a micro-batch do; the frame of a plan that ends in a `PlannedPass`, unchanged."""
    frame.sparkSession.sparkContext.setLocalProperty(PROPERTY, property_of(work))
    return frame
