"""`generate`: rows [start, stop) of a kind, and the registry of kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.errors import HeadgateError, nearest
from headgate.model import Schema
from headgate.pipeline.sources.generators.base import Generator
from headgate.pipeline.sources.generators.fleet import FLEET
from headgate.pipeline.sources.generators.pulse import PULSE
from headgate.pipeline.sources.generators.ticks import TICKS
from headgate.pipeline.sources.generators.weather import WEATHER

GENERATORS: Mapping[str, Generator] = {found.kind: found for found in (WEATHER, FLEET, PULSE, TICKS)}

GENERATOR_SCHEMAS: Mapping[str, Schema] = {kind: found.schema for kind, found in GENERATORS.items()}

ORIGIN_US = 1_767_225_600_000_000
"""The time of row 0 where none is given: the start of 2026 (UTC) in microseconds since 1970."""


class GeneratorError(HeadgateError):
    """A kind of generator or an option that there is none of."""


def generator_of(kind: str) -> Generator:
    """The generator of a kind; an unknown one is refused with the nearest valid name."""
    if kind in GENERATORS:
        return GENERATORS[kind]
    close = nearest(kind, GENERATORS)
    hint = f"did you mean {close!r}?" if close else "kinds are " + ", ".join(GENERATORS)
    raise GeneratorError(f"no generator of the kind {kind!r}", hint=hint)


def generate(
    kind: str,
    seed: int,
    start: int,
    stop: int,
    *,
    rate: float = 100.0,
    origin_us: int = ORIGIN_US,
    **options: Any,
) -> pa.RecordBatch:
    """Rows [start, stop) of a stream: row k happens `k / rate` seconds after the origin.

    A pure function: the same arguments give the same rows, however a range is cut.

    >>> generate("fleet", seed=1, start=5, stop=8, vehicles=10).column("vehicle").to_pylist()
    ['v5', 'v6', 'v7']
    """
    generator = generator_of(kind)
    settled = _settle(generator, options)
    rows = np.arange(start, stop, dtype=np.int64)
    group = generator.group(settled)
    happened = origin_us + np.floor((rows // group * group) * (1e6 / rate)).astype(np.int64)
    columns = dict(generator.columns(seed, rows, settled))
    columns["at"] = pa.array(happened, pa.timestamp("us", tz="UTC"))
    schema = generator.schema.arrow
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _settle(generator: Generator, given: Mapping[str, Any]) -> Mapping[str, int]:
    settled = dict(generator.options)
    for name, value in given.items():
        if name not in settled:
            close = nearest(name, settled)
            hint = f"did you mean {close!r}?" if close else "options are " + ", ".join(settled)
            raise GeneratorError(f"the generator {generator.kind!r} has no option {name!r}", hint=hint)
        try:
            settled[name] = int(value)
        except (TypeError, ValueError):
            settled[name] = 0
        if settled[name] < 1:
            raise GeneratorError(
                f"{value!r} is not a value for {name!r} of the generator {generator.kind!r}",
                hint="write a whole number of at least 1",
            )
    return settled
