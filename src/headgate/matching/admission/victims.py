"""Which context updates are shed before others: a filter over the values that an update sets.

The columns are the `$names` of the subscriptions' contexts with the new values, `was_NAME` with the values that they
replace, and `subscriber`, the name of the subscription. So an update may be judged by what it says, by how little it
changes, or by whose it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters import Filter, FilterError, context_types, parse_filter
from headgate.matching.index import MatchingError
from headgate.model import Column, Schema

SUBSCRIBER = "subscriber"
WAS = "was_"
Values = Mapping[str, Any]
# An update of one class: its subscriber, the values before and the values after.
Change = tuple[str, Values, Values]


def update_schema(contexts: Iterable[Values]) -> Schema:
    """The columns of updates to these contexts. A name that has values of different types is left out.

    >>> update_schema([{"x": 1, "who": "a"}, {"x": 2.5}]).names
    ('subscriber', 'x', 'was_x', 'who', 'was_who')
    """
    known: dict[str, pa.DataType | None] = {}
    for context in contexts:
        for name, kind in context_types(context).items():
            if not pa.types.is_null(kind):
                known[name] = _joined(known[name], kind) if name in known else kind
    columns = [Column(SUBSCRIBER, pa.string())]
    for name, found in known.items():
        if found is not None and name != SUBSCRIBER:
            columns += [Column(name, found), Column(WAS + name, found)]
    return Schema(tuple(columns))


def _joined(one: pa.DataType | None, other: pa.DataType) -> pa.DataType | None:
    if one is None or one.equals(other):
        return one
    numbers = (pa.int64(), pa.float64())
    return pa.float64() if one in numbers and other in numbers else None


@dataclass(frozen=True, slots=True)
class UpdateVictims:
    """A filter that says which updates go first."""

    filter: Filter
    schema: Schema

    @classmethod
    def parse(cls, text: str, contexts: Iterable[Values]) -> UpdateVictims:
        """Read the filter against the contexts that there are; one that cannot be read is refused."""
        schema = update_schema(contexts)
        try:
            return cls(parse_filter(text, schema), schema)
        except FilterError as error:
            raise MatchingError(
                f"{error.message}, at character {error.position + 1} of {text[:80]!r}",
                where="admission.options.update_victims",
                hint="it may refer to " + ", ".join(schema.names),
            ) from None

    def first(self, changes: Sequence[Change]) -> npt.NDArray[np.bool_]:
        """Which updates are shed before the others.

        >>> victims = UpdateVictims.parse("x BETWEEN was_x - 1 AND was_x + 1", [{"x": 1.0}])
        >>> victims.first([("a", {"x": 1.0}, {"x": 1.5}), ("b", {"x": 1.0}, {"x": 7.0})]).tolist()
        [True, False]
        """
        columns = [pa.array([each[0] for each in changes], pa.string())]
        columns += [
            _array([values.get(column.name) for values in side], column.type)
            for column in self.schema.columns[1::2]
            for side in ([now for _, _, now in changes], [was for _, was, _ in changes])
        ]
        return self.filter.evaluate(pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow), {})


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as a column; those of another type than the contexts had when the filter was read are null."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError):
        return pa.array([_value(each, kind) for each in values], kind)


def _value(value: Any, kind: pa.DataType) -> Any:
    try:
        pa.array([value], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError):
        return None
    return value
