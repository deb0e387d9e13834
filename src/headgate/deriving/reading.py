"""Reads the text of a derived column.

| text | the column |
|---|---|
| `previous(COLUMN)` | the value in the row of the key before this one |
| `changed(COLUMN)` | whether the value is another than in the row before this one |
| `count()`, `count(COLUMN)`, `sum`, `avg`, `min`, `max` of `(COLUMN) over last TIME` | of the rows of so much time |
| `(A) then (B) within TIME` | whether B holds, and A held in a row before this one, no longer ago |

Any of them may end in `by COLUMN, ...`. A and B are filters over the columns of the source.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, get_args

import pyarrow as pa

from headgate.deriving.definition import DerivedColumn, DeriveError, Kind
from headgate.errors import HeadgateError, nearest
from headgate.filters import FilterError, parse_filter
from headgate.filters.cost import ROW_US
from headgate.filters.lexer import END, NAME, SYMBOL, WORD, Token, tokenize
from headgate.filters.limits import check_limits
from headgate.model import Schema, parse_duration, type_name
from headgate.model.stream import DERIVE

_FORMS: Final = (
    "`previous(speed)`, `changed(cell)`, `avg(speed) over last 5 min`, or `(speed > 80) then (speed < 10) within 30 s`"
)
_OVER: Final = ("count", "sum", "avg", "min", "max")
_CALLS: Final = ("previous", "changed", *_OVER)
assert set(_CALLS) | {"then"} == set(get_args(Kind))


def read_column(
    name: str, text: Any, schema: Schema, *, event_time: str | None
) -> tuple[DerivedColumn, tuple[str, ...]]:
    """A derived column over the columns of a source, and the columns that it says it is by, if it does."""
    reader = _Reader(name, text, schema, event_time)
    return reader.column()


class _Reader:
    """One text; every refusal names the column, and where it can the character."""

    def __init__(self, name: str, text: Any, schema: Schema, event_time: str | None) -> None:
        self.name, self.schema, self.event_time = name, schema, event_time
        self.where = f"{DERIVE}.{name}"
        if name in schema.names or name.lower() in {each.lower() for each in schema.names}:
            self._refuse(f"the source has a column {name!r} of its own", "give the derived column another name")
        if not isinstance(text, str) or not text.strip():
            self._refuse("a derived column is a text", f"write {_FORMS}")
        self.text: str = text
        try:
            self.tokens = tokenize(check_limits(text))
        except FilterError as error:
            self._refuse(error.message, error.hint, error.position)

    def _refuse(self, message: str, hint: str | None = None, position: int | None = None) -> NoReturn:
        raise DeriveError(message, where=self.where, hint=hint, position=position)

    def column(self) -> tuple[DerivedColumn, tuple[str, ...]]:
        """The column, and what it is by."""
        body, by = self._by()
        then, within = self._word(body, "then"), self._word(body, "within")
        if then is not None:
            return self._then(body, then, within), by
        head = body[0]
        called = head.kind == WORD and len(body) > 1 and body[1].text == "("
        if not called or head.text not in _CALLS:
            close = nearest(head.text, _CALLS) if head.kind == WORD else None
            what = f"{self.text[head.start : head.end]!r} begins no derived column" if body[:-1] else "nothing is said"
            self._refuse(what, f"did you mean {close!r}?" if close else f"write {_FORMS}", head.start)
        return self._call(body, head), by

    def _word(self, tokens: list[Token], word: str) -> int | None:
        """Where a word stands outside of brackets."""
        depth = 0
        for index, token in enumerate(tokens):
            if token.kind == SYMBOL:
                depth += (token.text in "([") - (token.text in ")]")
            elif depth == 0 and token.kind == WORD and token.text == word:
                return index
        return None

    def _by(self) -> tuple[list[Token], tuple[str, ...]]:
        """The tokens without what it is by, closed by an END token, and the columns of that."""
        place = self._word(self.tokens, "by")
        if place is None:
            return self.tokens, ()
        start, named = self.tokens[place].start, self.tokens[place + 1 : -1]
        names, commas = named[::2], named[1::2]
        wrong = any(each.kind not in (WORD, NAME) for each in names) or any(each.text != "," for each in commas)
        if wrong or len(names) != len(commas) + 1:
            self._refuse("`by` is followed by names of columns", "as in `by vehicle`", start)
        by = tuple(self._column(token, "cannot be a key", _plain) for token in names)
        return [*self.tokens[:place], Token(END, "", start, start)], by

    def _column(self, token: Token, wrong: str, fits: Any) -> str:
        """The column that a token names, if its type is one that fits."""
        given = str(token.value)
        found = {each.lower(): each for each in self.schema.names}.get(given.lower())
        if found is None:
            close = nearest(given, self.schema.names)
            hint = f"did you mean {close!r}?" if close else "columns of the source are " + ", ".join(self.schema.names)
            self._refuse(f"unknown column {given!r}", hint, token.start)
        kind = self.schema.column(str(found)).type
        if not fits(kind):
            self._refuse(f"column {found!r} of type {type_name(kind)} {wrong}", "name another column", token.start)
        return str(found)

    def _call(self, body: list[Token], head: Token) -> DerivedColumn:
        kind: Any = head.text
        close = next((index for index, token in enumerate(body) if token.text == ")"), len(body) - 1)
        inner = body[2:close]
        if body[close].text != ")":
            self._refuse("a bracket is not closed", f"write {_FORMS}", body[1].start)
        column = None
        if len(inner) == 1 and inner[0].kind in (WORD, NAME):
            wrong, fits = _FITS[kind]
            column = self._column(inner[0], wrong, fits)
        elif kind != "count" or [token.text for token in inner] not in ([], ["*"]):
            self._refuse(f"{kind} takes one column", f"as in `{kind}({self.schema.names[0]})`", head.start)
        rest = body[close + 1 :]
        within_s = None
        if kind in _OVER:
            if [token.text for token in rest[:2]] != ["over", "last"]:
                hint = f"as in `{self.text[head.start : body[close].end]} over last 5 min`"
                self._refuse(f"{kind} is over a time", hint, rest[0].start)
            within_s = self._time(rest[2:])
        elif rest[0].kind != END:
            self._refuse(f"{self.text[rest[0].start : rest[-1].start].strip()!r} is left over", None, rest[0].start)
        made = pa.bool_() if kind == "changed" else _result(kind, column and self.schema.column(column).type)
        return DerivedColumn(self.name, kind, made, self.text, column, within_s)

    def _then(self, body: list[Token], then: int, within: int | None) -> DerivedColumn:
        if within is None or within < then:
            self._refuse("`then` needs a time", "as in `(A) then (B) within 30 s`", body[then].start)
        first = self._condition(0, body[then].start)
        second = self._condition(body[then].end, body[within].start)
        within_s = self._time(body[within + 1 :])
        return DerivedColumn(self.name, "then", pa.bool_(), self.text, None, within_s, first, second)

    def _condition(self, start: int, end: int) -> Any:
        try:
            return parse_filter(self.text[start:end], self.schema, row_us=ROW_US)
        except FilterError as error:
            self._refuse(error.message, error.hint, start + error.position)

    def _time(self, tokens: list[Token]) -> float:
        """A duration, from the first of these tokens to the END token."""
        start, end = tokens[0].start, tokens[-1].start
        if self.event_time is None:
            self._refuse("time is that of events, and the stream has none", "give the stream an `event_time`", start)
        try:
            found = parse_duration(self.text[start:end].strip())
        except HeadgateError as error:
            self._refuse(error.message, error.hint, start)
        if found <= 0:
            self._refuse("a time of nothing holds no rows", "as in `5 min`", start)
        return found


def _any(kind: pa.DataType) -> bool:
    return kind is not None


def _plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind))


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _ordered(kind: pa.DataType) -> bool:
    return _number(kind) or bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


_FITS: Final = {
    "previous": ("has no previous", _any),
    "changed": ("cannot be compared", _plain),
    "count": ("cannot be counted", _any),
    "sum": ("is no number to add up", _number),
    "avg": ("is no number to take the mean of", _number),
    "min": ("has no least value", _ordered),
    "max": ("has no greatest value", _ordered),
}


def _result(kind: str, given: pa.DataType | None) -> pa.DataType:
    """The type of a derived column."""
    if kind == "count":
        return pa.int64()
    if kind == "avg":
        return pa.float64()
    if kind == "sum":
        return pa.int64() if pa.types.is_integer(given) else pa.float64()
    assert given is not None
    return given
