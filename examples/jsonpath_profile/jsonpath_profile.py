"""A profile type of a third party: conditions on JSON text, such as `payload: $.sensor.values[0] > 20`.

Install it (`pip install ./examples/jsonpath_profile`) and write `profile: jsonpath` in a subscription.
"""

import json
import re
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne

import numpy as np
import pyarrow as pa

from headgate.filters import FilterError
from headgate.filters.profiles import DefaultProfileType, text_columns

OPERATORS = dict(zip(("=", "!=", "<", "<=", ">", ">="), (eq, ne, lt, le, gt, ge), strict=True))
CONDITION = re.compile(r"\s*\$((?:\.\w+|\[\d+\])*)\s*(?:(!=|<=|>=|=|<|>)\s*(.+?))?\s*")
STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


def lookup(value, steps):
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


@dataclass(frozen=True)
class JsonPath:
    column: str
    steps: tuple
    op: str | None
    value: object
    text: str
    parameters = frozenset()

    @property
    def columns(self):
        return frozenset({self.column})

    def holds(self, text):
        try:
            found = lookup(json.loads(text), self.steps)
            return found is not None and (self.op is None or bool(OPERATORS[self.op](found, self.value)))
        except (ValueError, TypeError):
            return False

    def evaluate(self, batch, context=None):  # noqa: ARG002 - it reads no context
        encoded = batch.column(self.column).cast(pa.string()).dictionary_encode()
        answers = np.array([self.holds(text) for text in encoded.dictionary.to_pylist()] + [False])
        return answers[encoded.indices.fill_null(len(answers) - 1).to_numpy(zero_copy_only=False)]


class JsonPathType(DefaultProfileType):
    name = "jsonpath"

    def compile(self, where, schema, context):  # noqa: ARG002
        (column, *_), condition, start = text_columns(where, schema, "payload")
        match = CONDITION.fullmatch(condition)
        if match is None:
            raise FilterError("not a path and a value", where, start, hint="write `column: $.a.b[0] > 20`")
        try:
            value = json.loads(match[3]) if match[3] else None
        except ValueError as error:
            at = start + match.start(3)
            raise FilterError(f"{match[3]} is not JSON: {error}", where, at, hint="texts have double quotes") from None
        steps = tuple(name or int(index) for name, index in STEP.findall(match[1]))
        text = f"{column}: ${match[1]}" + (f" {match[2]} {json.dumps(value)}" if match[2] else "")
        return JsonPath(column, steps, match[2], value, text)


PROFILE = JsonPathType()
