"""Options of the source `generator`, checked without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headgate.model import Schema, parse_duration, type_name
from headgate.model.schema import SchemaError
from headgate.pipeline.sources.generators import ORIGIN_US, generate, generator_of
from headgate.pipeline.sources.options import check_names, count, happened, instant_us, one_of, rate, whole

OPTIONS: Mapping[str, str] = {
    "kind": "weather, fleet, pulse or ticks",
    "seed": "a whole number; the same seed gives the same rows (0)",
    "rate": "rows a second (the stream's expected rate)",
    "limit": "rows in total; the stream ends there (no limit)",
    "pace": "`clock`, or `none`: every row up to the limit is there at once (`none` where only a limit is given)",
    "origin": "the time of row 0 (when the stream starts; the start of 2026 where the pace is `none`)",
    "catch_up": "how much of a pause is made up for at a restart, where no origin is given (60 s)",
    "max_rows_per_trigger": "rows in one micro-batch (500,000)",
    "partitions": "tasks that a large micro-batch is made by (2)",
}
"""Options of every kind; each kind has its own besides, such as `vehicles`."""


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """The options of a generator source, checked."""

    kind: str
    seed: int
    rate: float
    limit: int | None
    paced: bool
    origin_us: int | None
    max_rows: int | None
    partitions: int
    catch_up_s: float
    own: Mapping[str, int]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> GeneratorSettings:
        """Check the options as they stand in a deployment file."""
        options = {name.lower(): str(value) for name, value in options.items()}
        generator = generator_of(options.get("kind", "none"))
        check_names("generator", options, {**OPTIONS, **dict.fromkeys(generator.options, "")})
        limit = count(options, "limit")
        words = ("none", "clock") if limit is not None and "rate" not in options else ("clock", "none")
        pace = one_of(options, "pace", words)
        origin = instant_us(options["origin"], "origin") if "origin" in options else None
        return cls(
            kind=generator.kind,
            seed=whole(options, "seed", 0),
            rate=rate(options, 100.0),
            limit=limit,
            paced=pace == "clock",
            origin_us=ORIGIN_US if origin is None and pace == "none" else origin,
            max_rows=count(options, "max_rows_per_trigger"),
            partitions=count(options, "partitions", 2) or 2,
            catch_up_s=parse_duration(options.get("catch_up", "60 s")),
            own={name: count(options, name, default) or default for name, default in generator.options.items()},
        )

    def rows(self, start: int, stop: int, origin_us: int) -> pa.RecordBatch:
        """Rows [start, stop) of this stream."""
        return generate(self.kind, self.seed, start, stop, rate=self.rate, origin_us=origin_us, **self.own)

    def available(self, origin_us: int, now_us: int) -> int:
        """How many rows have happened by a time, the first at the origin. Rows that share a time come together."""
        if not self.paced and self.limit is not None:
            return self.limit
        whole = happened(self.rate, generator_of(self.kind).group(self.own), origin_us, now_us)
        return whole if self.limit is None else min(whole, self.limit)


def check_generator(options: Mapping[str, str], schema: Schema) -> GeneratorSettings:
    """The settings of a generator source, or what is wrong with its options or the stream's schema."""
    settings = GeneratorSettings.of(options)
    own = generator_of(settings.kind).schema
    for column in schema.columns:
        made = own.column(column.name)
        if not made.type.equals(column.type):
            raise SchemaError(
                f"column {column.name!r} is declared as {type_name(column.type)}, but the generator "
                f"{settings.kind!r} makes {type_name(made.type)}",
                hint="declare it so",
            )
    return settings
