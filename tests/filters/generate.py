"""Seeded random expressions of the filter language over the schema of `rows`, built through the typed constructors."""

import random

from headgate.filters import build, functions, temporal_literals
from headgate.filters.errors import RefusedError
from headgate.filters.expr import ColumnRef, Literal, Parameter
from headgate.filters.filter import context_types
from headgate.filters.lexer import tokenize
from headgate.filters.types import BOOL, INT, NULL, STRING
from tests.filters.rows import CONTEXT, SCHEMA, TEXTS

NUMERIC = ["tiny", "small", "i", "j", "big", "f", "x", "y", "price", "huge"]
NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "10",
    "127",
    "2.5",
    "0.05",
    "1.50",
    "1e3",
    "2.675D",
    "100L",
    "3.25F",
    "5S",
    "1BD",
    "9223372036854775807",
    "1234567.125",
    "0.1D",
]
LIKES = ["%", "a%", "%b", "%a%", "a_b", "a\\%b", "_", "", "Z_rich", "%\n%", "%😀%", "straße", "a\\_b", "%a%b%"]
REGEXES = ["^a", "b$", "[0-9]+", "ü|ß", "^$", "a.b", "(?i)abc", "^.x$", "z{5,}"]
COMPARISONS = ["=", "!=", "<", "<=", ">", ">=", "<=>"]
TYPES = context_types(CONTEXT)


class Generator:
    """One seeded stream of expressions."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def boolean(self, depth: int = 3):
        """A random condition of at most that depth."""
        while True:
            try:
                return build.boolean(self._boolean(depth), "a filter")
            except RefusedError:
                continue

    def _pick(self, *options):
        return self.rng.choice(options)()

    def _column(self, name):
        return ColumnRef(SCHEMA.column(name).type, name)

    def _parameter(self, name):
        return Parameter(TYPES[name], name)

    def _int(self, low, high):
        return Literal(INT, self.rng.randint(low, high))

    def _boolean(self, depth):
        if depth <= 0 or self.rng.random() < 0.35:
            return self._predicate(depth)
        inner = depth - 1
        return self._pick(
            lambda: build.conjunction([self._boolean(inner) for _ in range(self.rng.randint(2, 3))]),
            lambda: build.disjunction([self._boolean(inner) for _ in range(self.rng.randint(2, 3))]),
            lambda: build.negation(self._boolean(inner)),
            lambda: build.is_null(self._boolean(inner)),
            lambda: self._predicate(inner),
            lambda: self._predicate(inner),
        )

    def _predicate(self, depth):
        op = self.rng.choice(COMPARISONS)
        return self._pick(
            lambda: build.compare(op, self._number(depth), self._number(depth)),
            lambda: build.compare(op, self._number(depth), self._number(depth)),
            lambda: build.compare(op, self._number(depth), self._number(depth)),
            lambda: build.compare(op, self._text(depth), self._text(depth)),
            lambda: build.compare(op, self._when(depth), self._when(depth)),
            lambda: build.compare(op, build.arithmetic("-", self._when(1), self._when(1)), self._interval()),
            lambda: build.between(self._number(depth), self._number(0), self._number(0)),
            lambda: build.between(self._text(0), self._text(0), self._text(0)),
            lambda: build.membership(self._number(depth), [self._number(0) for _ in range(self.rng.randint(1, 4))]),
            lambda: build.membership(self._text(depth), [self._literal_text() for _ in range(self.rng.randint(1, 4))]),
            lambda: build.membership(self._text(0), [self._literal_text(), Literal(NULL, None)]),
            lambda: build.like(self._text(depth), Literal(STRING, self.rng.choice(LIKES))),
            lambda: build.rlike(self._text(depth), Literal(STRING, self.rng.choice(REGEXES))),
            lambda: build.is_null(
                self._pick(lambda: self._number(depth), lambda: self._text(depth), lambda: self._when(depth))
            ),
            lambda: self._call("array_contains", self._column("tags"), self._text(0)),
            lambda: self._call("array_contains", self._column("readings"), self._number(0)),
            lambda: self._call("array_contains", self._column("counts"), self._number(0)),
            lambda: self._call("array_contains", self._parameter("watch"), self._text(1)),
            lambda: self._call(
                self.rng.choice(["startswith", "endswith", "contains"]), self._text(1), self._literal_text()
            ),
            lambda: self._call("isnan", self._number(1)),
            lambda: self._call("isnotnull", self._number(1)),
            lambda: build.compare(
                self.rng.choice(COMPARISONS),
                self._column("flag"),
                self._pick(lambda: self._boolean(0), lambda: Literal(BOOL, True)),
            ),
            lambda: self._column("flag"),
        )

    def _call(self, name, *args):
        return functions.call(name, tuple(args))

    def _number(self, depth):
        if depth <= 0 or self.rng.random() < 0.3:
            return self._pick(
                lambda: self._column(self.rng.choice(NUMERIC)),
                lambda: self._column(self.rng.choice(NUMERIC)),
                self._literal_number,
                lambda: self._parameter(self.rng.choice(["bound", "most"])),
                lambda: build.field(self._column("place"), "lat"),
            )
        inner = depth - 1
        return self._pick(
            *[
                lambda: build.arithmetic(
                    self.rng.choice(["+", "-", "*", "/", "%"]), self._number(inner), self._number(inner)
                )
            ]
            * 4,
            lambda: build.arithmetic("div", self._number(inner), self._number(inner)),
            lambda: build.negate(self._number(inner)),
            lambda: self._call("abs", self._number(inner)),
            lambda: self._call("round", self._number(inner), self._int(-2, 3)),
            lambda: self._call(self.rng.choice(["floor", "ceil"]), self._number(inner)),
            lambda: self._call("length", self._text(inner)),
            lambda: self._call("size", self._column(self.rng.choice(["tags", "readings", "limits"]))),
            lambda: self._call(self.rng.choice(sorted(functions.DATE_PARTS)), self._when(inner)),
            lambda: self._call("coalesce", self._number(inner), self._number(0)),
            lambda: self._call("if", self._boolean(0), self._number(0), self._number(inner)),
            lambda: build.item(self._column("readings"), self._int(-1, 3)),
            lambda: build.item(self._column("counts"), self._column("i")),
            lambda: self._call(
                "element_at", self._column("readings"), self.rng.choice([Literal(INT, -1), Literal(INT, 2)])
            ),
            lambda: build.item(
                self._column("limits"), self._pick(lambda: Literal(STRING, "low"), lambda: self._column("city"))
            ),
            lambda: self._call("distance", self._column("x"), self._number(0), self._parameter("position")),
            lambda: self._call("sqrt", self._number(inner)),
        )

    def _literal_number(self):
        token = tokenize(self.rng.choice(NUMBERS))[0]
        found = Literal(token.type, token.value)
        return build.negate(found) if self.rng.random() < 0.3 else found

    def _literal_text(self):
        return Literal(STRING, self.rng.choice(TEXTS))

    def _text(self, depth):
        if depth <= 0 or self.rng.random() < 0.4:
            return self._pick(
                lambda: self._column(self.rng.choice(["name", "city"])),
                self._literal_text,
                lambda: self._parameter("word"),
                lambda: build.field(self._column("place"), "label"),
            )
        inner = depth - 1
        return self._pick(
            lambda: self._call("trim", self._text(inner)),
            # Spark's optimiser rewrites upper(lower(x)) to upper(x), which differs for a dotted capital I.
            lambda: self._call(self.rng.choice(["lower", "upper"]), self._text(0)),
            lambda: self._call("substring", self._text(inner), self._int(-3, 3), self._int(-1, 3)),
            lambda: self._call("substring", self._text(inner), self._int(-3, 3)),
            lambda: self._call("concat", self._text(inner), self._text(0)),
            lambda: self._call("coalesce", self._text(inner), self._text(0)),
            lambda: self._call("if", self._boolean(0), self._text(0), self._text(inner)),
            lambda: build.item(self._column("tags"), self._int(0, 2)),
        )

    def _interval(self):
        amount, unit = (
            str(self.rng.randint(-40, 40)),
            self.rng.choice(["day", "hour", "second", "month", "year", "week"]),
        )
        return temporal_literals.interval([(amount, unit)])

    def _when(self, depth):
        if depth <= 0 or self.rng.random() < 0.4:
            return self._pick(
                lambda: self._column("day"),
                lambda: self._column("at"),
                lambda: self._column("till"),
                lambda: temporal_literals.date(self.rng.choice(["2024-02-29", "1970-01-01", "2020-01-31"])),
                lambda: temporal_literals.timestamp(
                    self.rng.choice(["2024-02-29 23:59:59.999999", "1970-01-01", "1969-12-31T23:00:00.000001Z"])
                ),
            )
        return build.arithmetic(
            self.rng.choice("+-"), self._when(depth - 1), self._pick(self._interval, lambda: self._int(-40, 40))
        )
