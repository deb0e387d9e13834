"""A text becomes an objective or a constraint; every refusal points at its place.

An objective: `minimise average(x) over brokers where x = sum(link_latency) over path`. A constraint on the system:
`max(path_latency) over brokers <= 200 ms`. A constraint on every site: `fanout <= 6`.
"""

from __future__ import annotations

from headgate.errors import nearest
from headgate.tuning.language.check import check_constraint, check_objective
from headgate.tuning.language.errors import ObjectiveError
from headgate.tuning.language.lexer import ObjectiveToken, tokens
from headgate.tuning.language.quantities import UNITS
from headgate.tuning.language.syntax import (
    NODE_FUNCTIONS,
    NODE_SETS,
    OPERATORS,
    SYSTEM_FUNCTIONS,
    Binary,
    Constraint,
    Definitions,
    Expression,
    FunctionCall,
    Name,
    NodeAggregate,
    Number,
    SystemCost,
    SystemObjective,
)
from headgate.tuning.language.vocabulary import BUILT_IN, Vocabulary

MAX_DEPTH = 24
_GOALS = {"minimise": "minimise", "minimize": "minimise", "maximise": "maximise", "maximize": "maximise"}
_MEANS = {"mean": "average", "avg": "average", "stddev": "std", "median": "p50"}


def parse_objective(text: str, vocabulary: Vocabulary = BUILT_IN) -> SystemObjective:
    """Read an objective.

    >>> str(parse_objective("minimize mean(path_latency)"))
    'minimise average(path_latency) over brokers'
    """
    parser = _Parser(text)
    objective = parser.objective()
    check_objective(objective, vocabulary, text)
    return objective


def parse_constraint(text: str, vocabulary: Vocabulary = BUILT_IN) -> Constraint:
    """Read a constraint on the system or on every node.

    >>> str(parse_constraint("max(path_latency) <= 0.2 s"))
    'max(path_latency) over brokers <= 0.2 s'
    """
    parser = _Parser(text)
    constraint = parser.constraint()
    check_constraint(constraint, vocabulary, text)
    return constraint


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.at = 0
        self.depth = 0

    @property
    def next(self) -> ObjectiveToken:
        return self.tokens[self.at]

    def take(self, *words: str) -> ObjectiveToken | None:
        """The next token if it is one of these words (in any case), which is then consumed."""
        token = self.next
        if token.text.lower() in words and token.kind != "end":
            self.at += 1
            return token
        return None

    def fail(self, message: str, hint: str | None = None, token: ObjectiveToken | None = None) -> ObjectiveError:
        return ObjectiveError(message, text=self.text, position=(token or self.next).position, hint=hint)

    def expect(self, word: str, what: str) -> ObjectiveToken:
        token = self.take(word)
        if token is None:
            raise self.fail(f"expected {word!r} {what}, found {self.next.text or 'the end'!r}")
        return token

    def objective(self) -> SystemObjective:
        goal = self.take(*_GOALS)
        if goal is None:
            raise self.fail(
                f"expected a goal, found {self.next.text or 'the end'!r}", "start with `minimise` or `maximise`"
            )
        system = self.system()
        if system is None:
            if self.next.text.lower() in NODE_FUNCTIONS:
                raise self.fail(
                    "a node cost stands where a system cost is expected", "for example sum(...) over brokers"
                )
            close = nearest(self.next.text, [*SYSTEM_FUNCTIONS, *_MEANS])
            raise self.fail(
                f"expected a system function, found {self.next.text or 'the end'!r}",
                f"did you mean {close!r}?" if close else f"one of {', '.join(SYSTEM_FUNCTIONS)}, p95, percentile",
            )
        return SystemObjective(_GOALS[goal.text.lower()], system, self.definitions())

    def constraint(self) -> Constraint:
        metric = self.system() or self.expression()
        if self.next.text not in OPERATORS:
            raise self.fail(
                f"expected a comparison, found {self.next.text or 'the end'!r}", "one of " + " ".join(OPERATORS)
            )
        operator = self.next.text
        self.at += 1
        sign = -1.0 if self.take("-") else 1.0
        threshold = self.number()
        if threshold is None:
            raise self.fail(f"expected a threshold, found {self.next.text or 'the end'!r}", "for example 200 ms")
        limit = Number(sign * threshold.value, threshold.unit, threshold.position)
        return Constraint(metric, operator, limit, self.definitions())

    def system(self) -> SystemCost | None:
        """A system cost, or None (nothing consumed) where the text is a node cost."""
        start, name = self.at, self.next.text.lower()
        function = _MEANS.get(name, name)
        if self.tokens[self.at + 1 : self.at + 2] and self.tokens[self.at + 1].text != "(":
            return None
        if not (function in SYSTEM_FUNCTIONS or function == "percentile" or is_percentile(function)):
            return None
        self.at += 2
        if function == "percentile":
            share = self.number()
            if share is None or not 0 < share.value <= 100:
                raise self.fail("expected a percentage above 0 and up to 100", "for example percentile(95, delay)")
            function = f"p{share.value:g}"
            self.expect(",", "after the percentage")
        elif is_percentile(function) and not 0 < float(function[1:]) <= 100:
            raise self.fail(f"{function!r} is not a percentile", "p1 to p100", self.tokens[start])
        cost = self.expression()
        if self.next.text == ",":  # min(a, b) is a combination, not an aggregation
            self.at = start
            return None
        self.expect(")", "to close the system function")
        if not self.take("over"):
            return SystemCost(function, cost)
        if self.next.text in NODE_SETS:  # sum(x) over path is a node cost
            self.at = start
            return None
        return SystemCost(function, cost, self.system_set())

    def system_set(self) -> str:
        found = self.take("brokers", "clients", "both")
        if found is None:
            raise self.fail(f"unknown set {self.next.text!r}", "brokers, clients or brokers-clients")
        word = found.text.lower()
        if word == "brokers" and self.next.text in ("-", "and"):
            self.at += 1
            self.expect("clients", "after `brokers-`")
            word = "both"
        return "brokers-clients" if word == "both" else word

    def definitions(self) -> Definitions:
        found: list[tuple[str, Expression]] = []
        if self.take("where"):
            while True:
                name = self.next
                if name.kind != "name":
                    raise self.fail("expected the name of a definition", "for example `where x = sum(...) over path`")
                self.at += 1
                self.expect("=", f"after {name.text!r}")
                found.append((name.text, self.expression()))
                if not self.take(",", "and"):
                    break
        if self.next.kind != "end":
            raise self.fail(f"unexpected {self.next.text!r}", "expected `where`, an operator or the end")
        return tuple(found)

    def expression(self) -> Expression:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail("too deeply nested", f"at most {MAX_DEPTH} levels")
        left = self.product()
        while sign := self.take("+", "-"):
            left = Binary(sign.text, left, self.product(), sign.position)
        self.depth -= 1
        return left

    def product(self) -> Expression:
        left = self.factor()
        while sign := self.take("*", "/"):
            left = Binary(sign.text, left, self.factor(), sign.position)
        return left

    def factor(self) -> Expression:
        if sign := self.take("-"):
            inner = self.factor()
            if isinstance(inner, Number):
                return Number(-inner.value, inner.unit, sign.position)
            return Binary("*", Number(-1.0, "", sign.position), inner, sign.position)
        if self.take("("):
            inside = self.expression()
            self.expect(")", "to close the bracket")
            return inside
        number = self.number()
        if number is not None:
            return number
        token = self.next
        if token.kind != "name":
            raise self.fail(f"expected a value, found {token.text or 'the end'!r}", "a metric, a number or a function")
        self.at += 1
        if not self.take("("):
            return Name(token.text, token.position)
        return self.call(token)

    def call(self, token: ObjectiveToken) -> Expression:
        arguments: list[Expression] = []
        if not self.take(")"):
            while True:
                arguments.append(self.expression())
                if not self.take(","):
                    break
            self.expect(")", f"to close {token.text!r}")
        name = token.text.lower()
        if not self.take("over"):
            return FunctionCall(token.text, tuple(arguments), token.position)
        function = _MEANS.get(name, name)
        if function not in NODE_FUNCTIONS:
            raise self.fail(f"{token.text!r} is not a node function", "one of " + ", ".join(NODE_FUNCTIONS), token)
        where = self.take(*NODE_SETS)
        if where is None:
            raise self.fail(f"unknown set {self.next.text!r}", "a node cost is `over path` or `over children`")
        if len(arguments) != 1:
            raise self.fail(f"{token.text!r} over {where.text} takes one value, got {len(arguments)}", None, token)
        return NodeAggregate(function, arguments[0], where.text.lower(), token.position)

    def number(self) -> Number | None:
        token = self.next
        if token.kind != "number":
            return None
        self.at += 1
        value, unit = float(token.text), ""
        follower = self.next
        if follower.text in UNITS and (follower.kind == "name" or follower.text == "%"):
            opens_call = self.tokens[self.at + 1].text == "(" if self.at + 1 < len(self.tokens) else False
            if not opens_call:
                self.at += 1
                unit = follower.text
        elif follower.kind == "name" and follower.text.lower() not in ("over", "where", "and"):
            close = nearest(follower.text, UNITS)
            raise self.fail(
                f"unknown unit {follower.text!r}", f"did you mean {close!r}?" if close else "units: " + ", ".join(UNITS)
            )
        return Number(value * UNITS.get(unit, 1.0), unit, token.position)


def is_percentile(function: str) -> bool:
    """Whether a system function is a percentile, such as `p95` or `p99.9`."""
    return function[:1] == "p" and function[1:].replace(".", "", 1).isdigit()
