"""What an objective is made of: frozen expressions that print back as the text they came from.

Positions are kept for error messages and take no part in comparison, so that a text and its data form are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

Expression: TypeAlias = "Number | Name | FunctionCall | Binary | NodeAggregate"

SYSTEM_FUNCTIONS = ("min", "max", "sum", "average", "product", "variance", "std")
NODE_FUNCTIONS = ("min", "max", "sum", "average")
SYSTEM_SETS = ("brokers", "clients", "brokers-clients")
NODE_SETS = ("path", "children")
OPERATORS = ("<=", ">=", "!=", "==", "<", ">")
GOALS = ("minimise", "maximise")


@dataclass(frozen=True, slots=True)
class Number:
    """A number in base units (seconds, bytes, bytes per second); `unit` is how it was written."""

    value: float
    unit: str = ""
    position: int = field(default=0, compare=False)

    def __str__(self) -> str:
        from headgate.tuning.language.quantities import show

        return show(self.value, self.unit)


@dataclass(frozen=True, slots=True)
class Name:
    """A metric, a piece of state, or a definition of the `where` part."""

    name: str
    position: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function of values: built in (`size`, `log`, `max`) or the user's own."""

    function: str
    arguments: tuple[Expression, ...]
    position: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.function}({', '.join(str(argument) for argument in self.arguments)})"


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic on two values."""

    operator: str
    left: Expression
    right: Expression
    position: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{_side(self.left, self.operator, False)} {self.operator} {_side(self.right, self.operator, True)}"


@dataclass(frozen=True, slots=True)
class NodeAggregate:
    """The first level: a node function of a local value over the path to the root or over the children."""

    function: str
    value: Expression
    over: str
    position: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.function}({self.value}) over {self.over}"


Definitions: TypeAlias = tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class SystemCost:
    """The second level: a system function of the node cost over brokers, clients or both."""

    function: str
    cost: Expression
    over: str = "brokers"

    def __str__(self) -> str:
        if "." in self.function:  # p99.9 has no short spelling
            return f"percentile({self.function[1:]}, {self.cost}) over {self.over}"
        return f"{self.function}({self.cost}) over {self.over}"


@dataclass(frozen=True, slots=True)
class SystemObjective:
    """A goal and a system cost, with the definitions that it uses."""

    goal: str
    system: SystemCost
    definitions: Definitions = ()

    def __str__(self) -> str:
        return f"{self.goal} {self.system}{_where(self.definitions)}"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound on a system cost, or (when `metric` is an expression) on the cost of every node."""

    metric: SystemCost | Expression
    operator: str
    threshold: Number
    definitions: Definitions = ()

    def __str__(self) -> str:
        return f"{self.metric} {self.operator} {self.threshold}{_where(self.definitions)}"


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything inside it, outside first."""
    pending = [expression]
    while pending:
        found = pending.pop()
        yield found
        match found:
            case FunctionCall(_, arguments):
                pending.extend(reversed(arguments))
            case Binary(_, left, right):
                pending.extend((right, left))
            case NodeAggregate(_, value, _):
                pending.append(value)
            case _:
                pass


def _where(definitions: Definitions) -> str:
    if not definitions:
        return ""
    return " where " + ", ".join(f"{name} = {expression}" for name, expression in definitions)


def _side(expression: Expression, operator: str, right: bool) -> str:
    if not isinstance(expression, Binary):
        return str(expression)
    strength = {"+": 0, "-": 0, "*": 1, "/": 1}
    inner, outer = strength[expression.operator], strength[operator]
    return f"({expression})" if inner < outer or (right and inner == outer) else str(expression)
