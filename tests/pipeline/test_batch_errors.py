"""What Spark is told of a failed micro-batch: a short error, whatever was raised."""

from __future__ import annotations

import traceback

import pytest

from headgate.pipeline.query import BatchError, Batches
from headgate.protocol.commits import LineageError


class Failing(Batches):
    def __init__(self, error):
        self._error = error

    def _run(self, frame, batch):
        raise self._error


def test_a_long_error_becomes_its_cause_and_ours_stays_what_it_is():
    """Spark's pattern for errors of a stopped query overflows the stack on long texts."""
    text = "An error occurred while calling o9.collectToPython.\n" + "\tat org.apache.spark.X(Y.scala:1)\n" * 5000
    with pytest.raises(BatchError) as failed:
        Failing(RuntimeError(text))(None, 3)
    assert len("".join(traceback.format_exception(failed.value))) < 3000
    with pytest.raises(LineageError, match="as it is"):
        Failing(LineageError("as it is"))(None, 3)
