"""Rows that were drawn from a stream at random, with how many rows each of them stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.wire.frame import WireError

_WEIGHTS: Final = "headgate.weights"


@dataclass(frozen=True, slots=True)
class RowSample:
    """Sampled rows; `weights` says how many rows of the stream each stands for."""

    rows: pa.RecordBatch
    weights: npt.NDArray[np.float64]


def encode_sample(sample: RowSample) -> bytes:
    """The sample as an Arrow stream with its own schema: it outlives changes of the stream's."""
    sink = pa.BufferOutputStream()
    weights = np.ascontiguousarray(sample.weights, np.float64).tobytes().hex()
    schema = sample.rows.schema.with_metadata({_WEIGHTS: weights})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(sample.rows.replace_schema_metadata({_WEIGHTS: weights}))
    return bytes(sink.getvalue())


def decode_sample(data: bytes) -> RowSample:
    """Read a sample back; anything else is a `WireError`.

    >>> rows = pa.RecordBatch.from_pylist([{"n": 1}, {"n": 2}])
    >>> decode_sample(encode_sample(RowSample(rows, np.array([5.0, 5.0])))).weights.tolist()
    [5.0, 5.0]
    """
    try:
        with pa.ipc.open_stream(data) as reader:
            found = reader.read_all().combine_chunks().to_batches()
            metadata = reader.schema.metadata or {}
        weights = np.frombuffer(bytes.fromhex(metadata[_WEIGHTS.encode()].decode()), np.float64)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise WireError(f"this is no sample of rows: {error}") from error
    if len(found) != 1 or found[0].num_rows != len(weights):
        raise WireError("a sample of rows does not say what each row stands for")
    return RowSample(found[0].replace_schema_metadata(None), weights)
