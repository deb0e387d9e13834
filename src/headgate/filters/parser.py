"""From text to a typed tree, by the precedence of Spark's grammar.

sqlglot's tokenizer reads the text; the grouping is done here because sqlglot's expression parser groups otherwise than
Spark where comparisons meet (`a = b < c` is `(a = b) < c` in Spark) and keeps no positions for most nodes. Depth
is bounded while parsing, so no tree can exhaust the stack of anything that walks it later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.errors import nearest
from headgate.filters import build, functions, temporal_literals
from headgate.filters.cost import ROW_HINT, evaluation
from headgate.filters.cursor import Cursor
from headgate.filters.errors import FilterError, RefusedError
from headgate.filters.expr import (
    FALSE,
    TRUE,
    And,
    ColumnRef,
    Compare,
    Expr,
    Like,
    Literal,
    Not,
    Or,
    Parameter,
    Rlike,
    children,
)
from headgate.filters.kernels.patterns import compiled_size, like_size
from headgate.filters.lexer import BYTES, END, NAME, NUMBER, RESERVED, SYMBOL, TEXT, WORD, Token, tokenize
from headgate.filters.limits import DEFAULT_LIMITS, Limits
from headgate.filters.types import BIGINT, BINARY, BOOL, FLOAT, INT, NULL, STRING, is_integer, name_of
from headgate.model import Schema

_COMPARISONS = {"=": "=", "==": "=", "<>": "!=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "<=>"}
_EXTRACTED = {"dow": "dayofweek", "doy": "dayofyear", "week": "weekofyear", "dayofweek_iso": "weekday"}
_PREDICATES = frozenset(("is", "not", "between", "in", "like", "rlike", "regexp"))
_PLAIN = frozenset((NUMBER, TEXT, NAME, WORD))
_AFTER = frozenset((SYMBOL, WORD, END))
_LONGER = frozenset(("+", "-", "||", "*", "/", "%", "div", "[", ".", "("))  # what makes a value part of a longer one
_COMPILING = 100  # instructions that take as long as compiling any pattern does
_OPEN = 4  # how many extra levels one nested expression costs in a tree: negation, cast, operator, call


class Parser(Cursor):
    """One pass over the tokens of a filter."""

    def __init__(
        self,
        text: str,
        schema: Schema,
        context: Mapping[str, pa.DataType],
        limits: Limits = DEFAULT_LIMITS,
        row_us: float = math.inf,
    ) -> None:
        super().__init__(text, tokenize(text, limits))
        self.schema = schema
        self.context = context
        self.limits = limits
        self.depth = 0
        self.program = 0
        self.row_us = row_us
        self.spent_us = 0.0
        self.places: dict[int, tuple[Expr, int]] = {}
        """Every predicate by its `id`, and where it starts, so that a refusal can say which one is too much."""

    def parse(self) -> Expr:
        """The whole text as one boolean expression."""
        start = self._peek
        found = self._make(start, build.boolean, self._whole(), "a filter")
        self._check_depth(found)
        return found

    def parse_value(self) -> Expr:
        """The whole text as one expression of any type."""
        found = self._whole()
        self._check_depth(found)
        return found

    def _whole(self) -> Expr:
        if self._peek.kind == END:
            self._fail("the filter is empty", self._peek, "write a condition, or true for every row")
        found = self._expression()
        if self._peek.kind != END:
            self._unexpected("the end of the filter, AND or OR")
        return found

    # Nodes.

    def _make(self, token: Token, function: Callable[..., Expr], *args: Any) -> Expr:
        try:
            return function(*args)
        except RefusedError as error:
            raise FilterError(error.message, self.text, token.start, hint=error.hint) from None

    def _nested(self, token: Token, parse: Callable[[], Expr]) -> Expr:
        self.depth += 1
        if self.depth > self.limits.depth:
            self._fail(f"the filter is nested more than {self.limits.depth} deep", token, "flatten it")
        found = parse()
        self.depth -= 1
        return found

    def _chained(self, start: int, token: Token) -> Token:
        if self.index - start > self.limits.depth * _OPEN * 2:
            self._fail("the filter chains too many operations", token, "group them with parentheses")
        return token

    def _check_depth(self, root: Expr) -> None:
        level, deepest = [root], 0
        while level:
            deepest += 1
            if deepest > self.limits.depth * _OPEN:
                self._fail("the filter chains too many operations", self.tokens[0], "group them with parentheses")
            level = [below for node in level for below in children(node)]

    # booleanExpression of Spark's grammar.

    def _expression(self) -> Expr:
        start = self._peek
        items = [self._conjunction()]
        while self._take("or"):
            items.append(self._conjunction())
        return items[0] if len(items) == 1 else self._make(start, build.disjunction, items)

    def _conjunction(self) -> Expr:
        start = self._peek
        items = [self._negation()]
        while self._take("and", "&&"):
            items.append(self._negation())
        return items[0] if len(items) == 1 else self._make(start, build.conjunction, items)

    def _negation(self) -> Expr:
        if token := self._take("not", "!"):
            return self._make(token, build.negation, self._nested(token, self._negation))
        return self._predicate()

    def _predicate(self) -> Expr:
        token = self._peek
        found = self._condition()
        if id(found) not in self.places and not isinstance(found, And | Or | Not):
            self.spent_us += evaluation(found, None, self.places).row_us
            self.places[id(found)] = found, token.start
            if self.spent_us > self.row_us:
                what = f"evaluating the filter up to here takes about {self.spent_us:.3g} us a row"
                self._fail(f"{what}, at most {self.row_us:.3g} are accepted", token, ROW_HINT)
        return found

    def _condition(self) -> Expr:
        value = self._comparison()
        token = self._peek
        if token.kind != WORD or token.text not in _PREDICATES:
            return value
        if self._take("is"):
            return self._is(token, value)
        negated = self._take("not") is not None
        token = self._peek
        if self._take("between"):
            low = self._comparison()
            self._expect("and")
            found = self._make(token, build.between, value, low, self._comparison())
        elif self._take("in"):
            found = self._make(token, build.membership, value, self._arguments("in", least=1))
        elif self._take("like"):
            found = self._like(token, value)
        elif self._take("rlike", "regexp"):
            pattern = self._comparison()
            found = self._make(token, build.rlike, value, pattern)
            self._spend(token, _COMPILING + compiled_size(found.pattern) if isinstance(found, Rlike) else 0)
        elif negated:
            self._unexpected("BETWEEN, IN, LIKE or RLIKE")
        else:
            return value
        return build.negation(found) if negated else found

    def _like(self, token: Token, value: Expr) -> Expr:
        pattern = self._comparison()
        escape = "\\"
        if self._take("escape"):
            mark = self._next()
            if mark.kind != TEXT or len(mark.value) != 1:
                self._fail("ESCAPE needs a string of one character", mark, "for example ESCAPE '!'")
            escape = mark.value
        found = self._make(token, build.like, value, pattern, escape)
        self._spend(token, like_size(found.pattern, found.escape) if isinstance(found, Like) else 0)
        return found

    def _spend(self, token: Token, program: int) -> None:
        """Add to the instructions of the filter's patterns, which are compiled for every batch of rows."""
        self.program += program
        if self.program > self.limits.program:
            what = f"the patterns up to here take {self.program:,} instructions"
            most = f"at most {self.limits.program:,} are accepted"
            self._fail(f"{what}, {most}", token, "use fewer or shorter patterns, or IN for whole values")

    def _is(self, token: Token, value: Expr) -> Expr:
        negated = self._take("not") is not None
        if self._take("null"):
            found = build.is_null(value)
        elif word := self._take("true", "false"):
            truth = self._make(token, build.boolean, value, "IS TRUE")
            found = Compare("<=>", truth, TRUE if word.text == "true" else FALSE)
        elif self._take("distinct"):
            self._expect("from")
            found = self._make(token, build.compare, "<=>", value, self._comparison())
            negated = not negated
        else:
            self._unexpected("NULL, TRUE, FALSE or DISTINCT FROM")
        return build.negation(found) if negated else found

    # valueExpression.

    def _comparison(self) -> Expr:
        left = self._sum()
        start = self.index
        while self._peek.kind == SYMBOL and self._peek.text in _COMPARISONS:
            token = self._chained(start, self._next())
            left = self._make(token, build.compare, _COMPARISONS[token.text], left, self._sum())
        return left

    def _sum(self) -> Expr:
        if self._peek.kind in _PLAIN:
            following = self._ahead(1)
            if following.kind in _AFTER and following.text not in _LONGER:
                return self._primary()  # a name or a literal alone, which most values are
        left = self._product()
        start = self.index
        while token := self._take("+", "-", "||"):
            self._chained(start, token)
            right = self._product()
            if token.text == "||":
                left = self._make(token, functions.call, "concat", (left, right))
            else:
                left = self._make(token, build.arithmetic, token.text, left, right)
        return left

    def _product(self) -> Expr:
        left = self._unary()
        start = self.index
        while token := self._take("*", "/", "%", "div"):
            self._chained(start, token)
            left = self._make(token, build.arithmetic, token.text, left, self._unary())
        return left

    def _unary(self) -> Expr:
        if token := self._take("-"):
            if self._peek.kind == NUMBER:
                return self._suffixes(self._literal(self._next(), -1))
            return self._make(token, build.negate, self._nested(token, self._unary))
        if token := self._take("+"):
            return self._nested(token, self._unary)
        return self._suffixes(self._primary())

    def _suffixes(self, base: Expr) -> Expr:
        start = self.index
        while token := self._take("[", "."):
            self._chained(start, token)
            if token.text == "[":
                key = self._nested(token, self._expression)
                self._expect("]")
                base = self._make(token, build.item, base, key)
            else:
                name = self._next()
                if name.kind not in (WORD, NAME):
                    self._fail("a field's name was expected after the point", name)
                base = self._make(name, build.field, base, name.value)
        return base

    # primaryExpression.

    def _primary(self) -> Expr:
        token = self._next()
        if token.kind == NUMBER:
            return self._literal(token, 1)
        if token.kind == TEXT:
            return Literal(STRING, token.value)
        if token.kind == BYTES:
            return Literal(BINARY, token.value)
        if token.kind == NAME:
            return self._column(token)
        if token.kind == WORD:
            return self._word(token)
        if token.text == "(":
            found = self._nested(token, self._expression)
            self._expect(")")
            return found
        if token.text == "$":
            return self._parameter(token)
        self.index -= token.kind != END
        return self._unexpected("a value, a column or a condition")

    def _literal(self, token: Token, sign: int) -> Expr:
        kind: Any = token.type
        value = token.value * sign
        if kind == FLOAT:
            value = float(np.float32(value))
        if is_integer(kind) and value == 1 << (kind.bit_width - 1):
            if kind != INT or token.text[-1:].isalpha():
                self._fail(f"{token.text} is beyond the range of {name_of(kind)}", token)
            kind = BIGINT
        return Literal(kind, value)

    def _word(self, token: Token) -> Expr:
        word = token.text
        if word in ("true", "false"):
            return Literal(BOOL, word == "true")
        if word == "null":
            return Literal(NULL, None)
        following = self._peek
        if word == "interval" and following.text not in (".", ")", ",") and following.kind != END:
            return self._interval(token)
        if word in ("date", "timestamp", "timestamp_ltz") and following.kind == TEXT:
            parse = temporal_literals.date if word == "date" else temporal_literals.timestamp
            return self._make(following, parse, self._next().value)
        if following.text == "(" and following.kind == SYMBOL and word not in RESERVED:
            return self._extract(token) if word == "extract" else self._call(token)
        if word in RESERVED:
            self.index -= 1
            self._unexpected("a value, a column or a condition")
        return self._column(token)

    def _column(self, token: Token) -> Expr:
        name = build.resolve(token.value, self.schema.names)
        if name is None:
            close = nearest(token.value, self.schema.names)
            known = "columns are " + ", ".join(self.schema.names[:12])
            self._fail(f"unknown column {token.value!r}", token, f"did you mean {close!r}?" if close else known)
        return ColumnRef(self.schema.column(str(name)).type, str(name))

    def _parameter(self, dollar: Token) -> Expr:
        token = self._next()
        if token.kind not in (WORD, NAME) or token.start != dollar.end:
            self._fail("a name was expected after $", dollar, "for example $position")
        if token.value not in self.context:
            close = nearest(token.value, self.context)
            known = ", ".join("$" + name for name in sorted(self.context)) or "no values"
            hint = f"did you mean ${close}?" if close else f"the subscriber's context has {known}"
            self._fail(f"unknown context value ${token.value}", dollar, hint)
        return Parameter(self.context[token.value], token.value)

    def _arguments(self, what: str, least: int = 0) -> tuple[Expr, ...]:
        opening = self._take("(") or self._unexpected(f"( after {what.upper()}")
        found: list[Expr] = []
        if not self._at(")") or least:
            found.append(self._argument(opening))
            while self._take(","):
                found.append(self._argument(opening))
        self._expect(")")
        return tuple(found)

    def _argument(self, opening: Token) -> Expr:
        token, following = self._peek, self._ahead(1)
        if token.kind in (NUMBER, TEXT) and following.kind == SYMBOL and following.text in (",", ")"):
            return self._primary()  # a literal alone: long lists consist of them
        return self._nested(opening, self._expression)

    def _call(self, token: Token) -> Expr:
        if token.text not in functions.FUNCTIONS:
            close = nearest(token.text, functions.FUNCTIONS)
            known = "functions are " + ", ".join(sorted(functions.FUNCTIONS))
            self._fail(f"unknown function {token.value!r}", token, f"did you mean {close!r}?" if close else known)
        if token.text in ("substring", "substr"):
            return self._make(token, functions.call, "substring", self._substring())
        return self._make(token, functions.call, token.text, self._arguments(token.text))

    def _substring(self) -> tuple[Expr, ...]:
        """`substring(text, 2, 3)` or `substring(text FROM 2 FOR 3)`."""
        opening = self._expect("(")
        found = [self._nested(opening, self._expression)]
        separators = ("from", "for") if self._at("from") else (",", ",")
        for separator in separators:
            found += [self._nested(opening, self._expression)] if self._take(separator) else []
        self._expect(")")
        return tuple(found)

    def _extract(self, token: Token) -> Expr:
        self._expect("(")
        part = self._next()
        name = _EXTRACTED.get(part.text, part.text)
        if name not in functions.DATE_PARTS or name == "second":
            self._fail(f"cannot extract {part.text!r}", part, "fields are " + ", ".join(sorted(functions.DATE_PARTS)))
        self._expect("from")
        found = self._make(token, functions.call, name, (self._nested(token, self._expression),))
        self._expect(")")
        return found

    def _interval(self, token: Token) -> Expr:
        parts: list[tuple[str, str]] = []
        while True:
            sign = int(self._at("-"))
            amount, unit = self._ahead(sign), self._ahead(sign + 1)
            if amount.kind not in (NUMBER, TEXT) or unit.kind != WORD or not temporal_literals.is_unit(unit.text):
                break
            self.index += sign + 2
            parts.append(("-" * sign + str(amount.value if amount.kind == TEXT else amount.text), unit.text))
            if self._take("to"):
                parts[-1] = (parts[-1][0], f"{unit.text} to {self._next().text}")
                break
        if not parts:
            self._unexpected("an amount and a unit, such as INTERVAL 2 HOURS,")
        return self._make(token, temporal_literals.interval, parts)
