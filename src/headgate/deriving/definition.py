"""What is derived in a stream: its columns by name, the key that they are by, and how much is remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.filters import Filter
from headgate.model import Column, Schema, Stream, parse_duration, type_name
from headgate.model.roots import OPTION
from headgate.model.stream import DERIVE, DERIVE_STATE

Kind = Literal["previous", "changed", "count", "sum", "avg", "min", "max", "then"]


class DeriveError(HeadgateError):
    """A derived column that cannot be read or does not fit its stream; `position` is the character in its text."""

    def __init__(self, message: str, *, where: str, hint: str | None = None, position: int | None = None) -> None:
        self.position = position
        super().__init__(message, where=where, hint=hint)


@dataclass(frozen=True, slots=True)
class StateLimits:
    """What is remembered at most: of each key so many rows, so many keys, and rows that come so much late.

    Of more keys those are forgotten that were not seen for longest.
    """

    late_s: float = 10.0
    rows: int = 1_000
    keys: int = 100_000


@dataclass(frozen=True, slots=True)
class DerivedColumn:
    """One derived column. `column` is what it is made of, `within_s` how far it looks back.

    Of `A then B within t`, `first` is A and `second` is B.
    """

    name: str
    kind: Kind
    type: pa.DataType
    text: str
    column: str | None = None
    within_s: float | None = None
    first: Filter | None = None
    second: Filter | None = None

    @property
    def term(self) -> str | None:
        """The name of what is remembered of each row for this column; None where the row's time is enough."""
        if self.first is not None:
            return f"if {self.first.text}"
        return None if self.column is None else f"of {self.column}"


@dataclass(frozen=True)
class Derivation:
    """All derived columns of a stream. They are by the same key, so that a row is at one place for all of them."""

    columns: tuple[DerivedColumn, ...]
    by: tuple[str, ...]
    event_time: str | None
    given: Schema
    limits: StateLimits = StateLimits()

    @cached_property
    def horizon_us(self) -> int:
        """How far before the newest row of a key a row may lie that some column still needs."""
        if self.event_time is None:
            return 0
        reach_s = max((each.within_s or 0.0 for each in self.columns), default=0.0)
        return round((reach_s + self.limits.late_s) * 1e6)

    @cached_property
    def late_us(self) -> int:
        """How much older than the newest row of its key a row may be that columns are still known for."""
        return 0 if self.event_time is None else round(self.limits.late_s * 1e6)

    @cached_property
    def terms(self) -> Mapping[str, DerivedColumn]:
        """By name of what is remembered of each row, a column that needs it."""
        return {each.term: each for each in self.columns if each.term is not None}

    @cached_property
    def term_types(self) -> Mapping[str, pa.DataType]:
        """The types of what is remembered of each row."""
        return {
            name: pa.bool_() if each.first is not None else self.given.column(each.column or "").type
            for name, each in self.terms.items()
        }

    @cached_property
    def key_types(self) -> Mapping[str, pa.DataType]:
        """The types of the columns of the key."""
        return {name: self.given.column(name).type for name in self.by}

    @cached_property
    def fingerprint(self) -> str:
        """What memory of earlier rows has to agree with to be of use."""
        said = [f"{name} {type_name(kind)}" for name, kind in (*self.key_types.items(), *self.term_types.items())]
        text = "\n".join([*said, str(self.event_time), str(self.horizon_us), str(self.limits)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def of_partition(self, partitions: int) -> Derivation:
        """The same for one of so many partitions of the keys: each remembers its share of them."""
        return replace(self, limits=replace(self.limits, keys=-(-self.limits.keys // partitions)))

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The derived columns with their types."""
        return {each.name: each.type for each in self.columns}


def with_derived(schema: Schema, document: Mapping[str, Any], event_time: str | None) -> Schema:
    """A schema with the derived columns behind those of the source; what cannot be read is left out."""
    from headgate.deriving.reading import read_column

    found = []
    for name, text in document.items():
        try:
            column, _ = read_column(str(name), text, schema, event_time=event_time)
        except HeadgateError:
            continue  # it is refused, with its place, where the stream is checked
        if name not in schema.names:
            found.append(Column(str(name), column.type))
    return Schema((*schema.columns, *found))


def derivation_of(stream: Stream) -> Derivation | None:
    """What is derived in a stream, None where nothing is; a wrong document is refused."""
    document = stream.options.get(DERIVE)
    if not document:
        if stream.options.get(DERIVE_STATE) is not None:
            raise DeriveError("nothing is derived", where=DERIVE_STATE, hint="write `derive: {NAME: previous(COLUMN)}`")
        return None
    from headgate.deriving.reading import read_column

    given, columns = stream.source_schema, []
    for name in (*stream.key, *([stream.event_time] if stream.event_time else ())):
        if name in document:
            raise DeriveError(
                f"{name!r} tells rows apart or says when they happened, so it cannot be made of earlier ones",
                where=f"{DERIVE}.{name}",
                hint="let `key` and `event_time` name columns of the source",
            )
    by: dict[tuple[str, ...], str] = {}
    for name, text in document.items():
        column, named = read_column(str(name), text, given, event_time=stream.event_time)
        columns.append(column)
        whose = named or stream.key
        if not whose:
            raise DeriveError(
                f"nothing says whose earlier rows {name!r} looks at",
                where=f"{DERIVE}.{name}",
                hint="give the stream a `key`, or write `by COLUMN` at the end",
            )
        by.setdefault(whose, str(name))
    if len(by) > 1:
        (one, first), (other, second) = list(by.items())[:2]
        raise DeriveError(
            f"{second!r} is by {', '.join(other)}, but {first!r} is by {', '.join(one)}",
            where=f"{DERIVE}.{second}",
            hint="all derived columns of a stream are by the same columns",
        )
    for option, key in (("gridding", "gridding"), (OPTION, "roots")):
        if option in stream.options:
            raise DeriveError(
                f"a stream with `{key}` has no derived columns", where=DERIVE, hint="derive in a stream of its own"
            )
    limits = read_limits(stream.options.get(DERIVE_STATE) or {})
    return Derivation(tuple(columns), next(iter(by)), stream.event_time, given, limits)


def read_limits(document: Any) -> StateLimits:
    """The limits of what is remembered."""
    hint = "as in `derive_state: {late: 10 s, rows: 1000, keys: 100000}`"
    if not isinstance(document, Mapping):
        raise DeriveError(f"{document!r:.60} is no mapping", where=DERIVE_STATE, hint=hint)
    for name in document:
        if name not in ("late", "rows", "keys"):
            raise DeriveError(f"unknown key {name!r:.60}", where=DERIVE_STATE, hint=hint)
    plain = StateLimits()
    late_s = plain.late_s
    if "late" in document:
        try:
            late_s = parse_duration(document["late"])
        except HeadgateError as error:
            raise DeriveError(error.message, where=f"{DERIVE_STATE}.late", hint=error.hint) from None
    counts = {}
    for name, most in (("rows", 1_000_000), ("keys", 10_000_000)):
        value = document.get(name, getattr(plain, name))
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise DeriveError(
                f"{value!r:.60} is no number of {name}", where=f"{DERIVE_STATE}.{name}", hint=f"1 to {most:,}"
            )
        counts[name] = value
    return StateLimits(late_s, **counts)
