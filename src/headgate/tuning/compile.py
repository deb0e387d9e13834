"""An objective becomes terms: what is aggregated over the path, what over children, what is local, how they combine.

The same compiled closures run on one site (floats) and on all sites at once (arrays): a `SiteView` answers for metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headgate.tuning.language.parser import parse_objective
from headgate.tuning.language.syntax import (
    Binary,
    Definitions,
    Expression,
    FunctionCall,
    Name,
    NodeAggregate,
    Number,
    SystemCost,
    SystemObjective,
    walk,
)
from headgate.tuning.language.vocabulary import (
    BUILT_IN,
    LIBRARY,
    STATE_FUNCTIONS,
    STATES,
    Vocabulary,
    scalar_function,
)


class SiteView(Protocol):
    """One site, or all of them: metrics as a float or an array, profiles as bits."""

    def metric(self, name: str) -> Any:
        """A metric's value."""

    def state(self, name: str) -> Any:
        """A profile."""

    def size(self, profile: Any) -> Any:
        """Bytes per second of a profile."""


Local = Callable[[SiteView], Any]
Combine = Callable[[tuple[Any, ...]], Any]


@dataclass(frozen=True, slots=True)
class Term:
    """One aggregation of the node cost. `kind` is path, children or local; `function` is empty for local."""

    kind: str
    function: str
    value: Local
    on_link: bool
    metrics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A system cost ready to be evaluated. A single-metric cost has one term and no combination."""

    function: str
    over: str
    terms: tuple[Term, ...]
    combine: Combine | None
    metrics: frozenset[str]
    sign: float = 1.0
    text: str = ""
    plain_links: frozenset[str] = frozenset()

    @property
    def needs_profiles(self) -> bool:
        """Whether any local value depends on what sites ask for."""
        return bool(self.metrics & _PROFILE_METRICS)

    @property
    def follows_shape(self) -> bool:
        """Whether any local value of a node changes with the shape of the tree."""
        return bool(self.metrics & (_PROFILE_METRICS | {"fanout"}))

    def better(self, before: float, after: float) -> float:
        """The benefit of a change: positive when the system gets better (ERRATA: the goal gives the sign)."""
        return 0.0 if before == after else self.sign * (before - after)


_PROFILE_METRICS = frozenset(
    {
        "incoming_rate",
        "superfluous_data",
        "outgoing_rate",
        "upload_excess",
        "download_excess",
        "matching_cpu",
        "attained_quality",
        "granted_shortfall",
        "extra_incoming",
        *STATES,
    }
)


def compile_objective(objective: SystemObjective | str, vocabulary: Vocabulary = BUILT_IN) -> Compiled:
    """Compile an objective; its sign is +1 to minimise and -1 to maximise."""
    if isinstance(objective, str):
        objective = parse_objective(objective, vocabulary)
    sign = 1.0 if objective.goal == "minimise" else -1.0
    return compile_system(objective.system, objective.definitions, vocabulary, sign, str(objective))


def compile_system(
    system: SystemCost, definitions: Definitions, vocabulary: Vocabulary, sign: float = 1.0, text: str = ""
) -> Compiled:
    """Compile a system cost with its definitions."""
    compiler = _Compiler(vocabulary, definitions)
    cost = compiler.inline(system.cost)
    combine = compiler.node(cost)
    terms = tuple(compiler.terms)
    single = len(terms) == 1 and compiler.bare
    used = frozenset[str]().union(*(term.metrics for term in terms))
    plain = (
        isinstance(cost, NodeAggregate) and isinstance(cost.value, Name) and cost.value.name in vocabulary.link_metrics
    )
    links = used if plain and used != {"link_hop"} else frozenset[str]()
    return Compiled(system.function, system.over, terms, None if single else combine, used, sign, text, links)


def divide(left: Any, right: Any) -> Any:
    """Division where nothing stops the tuner: x / 0 is infinite, 0 / 0 is absent (NaN)."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.true_divide(left, right)
    if right == 0:
        return float("nan") if left == 0 or left != left else float("inf") * (1 if left > 0 else -1)
    return left / right


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": divide,
}


class _Compiler:
    def __init__(self, vocabulary: Vocabulary, definitions: Definitions) -> None:
        self.vocabulary = vocabulary
        self.definitions = dict(definitions)
        self.terms: list[Term] = []
        self.bare = True

    def inline(self, expression: Expression) -> Expression:
        """Replace definitions and library names by what they stand for."""
        match expression:
            case Name(name):
                if name in self.definitions:
                    return self.inline(self.definitions[name])
                if name in LIBRARY:
                    return self.inline(_library(name))
                return expression
            case FunctionCall("extra_incoming", ()):
                return Name("superfluous_data")
            case FunctionCall(function, arguments):
                return FunctionCall(function, tuple(self.inline(argument) for argument in arguments))
            case Binary(operator, left, right):
                return Binary(operator, self.inline(left), self.inline(right))
            case NodeAggregate(function, value, over):
                return NodeAggregate(function, self.inline(value), over)
            case _:
                return expression

    def node(self, cost: Expression, *, inside: bool = False) -> Combine:
        """A node cost over terms: aggregations and maximal local parts become terms, the rest combines them."""
        if isinstance(cost, NodeAggregate):
            return self.term(Term(cost.over, cost.function, *self.local_of(cost.value)), inside)
        if not _aggregates(cost):
            return self.term(Term("local", "", *self.local_of(cost)), inside)
        self.bare = False
        if isinstance(cost, Binary):
            operation = _OPERATIONS[cost.operator]
            left, right = self.node(cost.left, inside=True), self.node(cost.right, inside=True)
            return lambda values: operation(left(values), right(values))
        assert isinstance(cost, FunctionCall)
        parts = [self.node(argument, inside=True) for argument in cost.arguments]
        function = self.function(cost.function)
        return lambda values: function(*(part(values) for part in parts))

    def term(self, term: Term, inside: bool) -> Combine:
        if inside:
            self.bare = False
        index = len(self.terms)
        self.terms.append(term)
        return lambda values: values[index]

    def local_of(self, value: Expression) -> tuple[Local, bool, frozenset[str]]:
        names = {part.name for part in _names(value)}
        return self.local(value), bool(names & self.vocabulary.link_metrics), frozenset(names)

    def local(self, expression: Expression) -> Local:
        match expression:
            case Number(value):
                return lambda _: value
            case Name(name):
                if name in STATES:
                    return lambda view: view.state(name)
                return lambda view: view.metric(name)
            case Binary(operator, left, right):
                operation, first, second = _OPERATIONS[operator], self.local(left), self.local(right)
                return lambda view: operation(first(view), second(view))
            case FunctionCall(function, arguments):
                parts = [self.local(argument) for argument in arguments]
                if function == "size":
                    return lambda view: view.size(parts[0](view))
                if function == "overlap":
                    return lambda view: view.size(parts[0](view) & parts[1](view))
                if any(isinstance(argument, Name) and argument.name in STATES for argument in arguments):
                    own = self.vocabulary.functions[function]
                    return lambda view: _of_profiles(own, [part(view) for part in parts])
                apply = self.function(function)
                return lambda view: apply(*(part(view) for part in parts))
            case _:
                raise AssertionError("a local value holds no aggregation")

    def function(self, name: str) -> Callable[..., Any]:
        """A function of numbers that takes arrays element by element."""
        assert name not in STATE_FUNCTIONS
        own = self.vocabulary.functions.get(name)
        scalar = own or scalar_function(name)
        spread = np.vectorize(scalar, otypes=[np.float64])

        def apply(*values: Any) -> Any:
            if not any(isinstance(value, np.ndarray) for value in values):
                return float(scalar(*values))
            with np.errstate(all="ignore"):
                return spread(*values)

        return apply


def _of_profiles(function: Callable[..., float], values: list[Any]) -> Any:
    """A user's function of profiles: once for one site, row by row for all of them."""
    rows = next((len(value) for value in values if isinstance(value, np.ndarray) and value.ndim == 2), None)
    if rows is None:
        return float(function(*values))
    spread = [value if isinstance(value, np.ndarray) else [value] * rows for value in values]
    return np.array([function(*row) for row in zip(*spread, strict=True)], dtype=np.float64)


def _library(name: str) -> Expression:
    return parse_objective(f"minimise sum({LIBRARY[name]}) over brokers").system.cost


def _names(expression: Expression) -> list[Name]:
    return [part for part in walk(expression) if isinstance(part, Name)]


def _aggregates(expression: Expression) -> bool:
    return any(isinstance(part, NodeAggregate) for part in walk(expression))
