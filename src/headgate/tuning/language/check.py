"""Rules that the grammar's shape alone does not enforce: known names, two levels at most, state only as an argument."""

from __future__ import annotations

from headgate.errors import nearest
from headgate.tuning.language.errors import ObjectiveError
from headgate.tuning.language.syntax import (
    NODE_FUNCTIONS,
    Binary,
    Constraint,
    Definitions,
    Expression,
    FunctionCall,
    Name,
    NodeAggregate,
    SystemCost,
    SystemObjective,
    walk,
)
from headgate.tuning.language.vocabulary import FUNCTIONS, LIBRARY, STATE_FUNCTIONS, STATES, Vocabulary


def check_objective(objective: SystemObjective, vocabulary: Vocabulary, text: str = "") -> None:
    """Refuse an objective with unknown names or nested aggregations."""
    _Checker(vocabulary, text, objective.definitions).everything(objective.system.cost)


def check_constraint(constraint: Constraint, vocabulary: Vocabulary, text: str = "") -> None:
    """Refuse a constraint with unknown names or nested aggregations."""
    metric = constraint.metric.cost if isinstance(constraint.metric, SystemCost) else constraint.metric
    _Checker(vocabulary, text, constraint.definitions).everything(metric)


class _Checker:
    def __init__(self, vocabulary: Vocabulary, text: str, definitions: Definitions) -> None:
        self.vocabulary = vocabulary
        self.text = text
        self.definitions = dict(definitions)
        if len(self.definitions) < len(definitions):
            names = [name for name, _ in definitions]
            twice = next(name for name in names if names.count(name) > 1)
            raise ObjectiveError(f"{twice!r} is defined twice", text=text, position=text.rfind(twice))

    def fail(self, expression: Expression, message: str, hint: str | None = None) -> ObjectiveError:
        return ObjectiveError(message, text=self.text, position=expression.position, hint=hint)

    def everything(self, cost: Expression) -> None:
        self.check(cost, (), False, False)
        for name, expression in self.definitions.items():
            self.check(expression, (name,), False, False)

    def check(self, expression: Expression, inside: tuple[str, ...], aggregated: bool, state: bool) -> None:
        """Check one expression: `inside` lists the definitions that led here, `state` allows a profile."""
        match expression:
            case Name(name):
                self.name(expression, name, inside, aggregated, state)
            case FunctionCall(function, arguments):
                self.call(expression, function, len(arguments))
                for argument in arguments:
                    self.check(argument, inside, aggregated, self.takes_state(function))
            case Binary(_, left, right):
                self.check(left, inside, aggregated, False)
                self.check(right, inside, aggregated, False)
            case NodeAggregate(function, value, over):
                if aggregated:
                    raise self.fail(
                        expression,
                        f"{function} over {over} stands inside another aggregation",
                        "a local value cannot aggregate: there are two levels, node and system",
                    )
                self.check(value, inside, True, False)
            case _:
                pass

    def takes_state(self, function: str) -> bool:
        return function in STATE_FUNCTIONS or function in self.vocabulary.functions

    def name(self, at: Expression, name: str, inside: tuple[str, ...], aggregated: bool, state: bool) -> None:
        if name in self.definitions:
            if name in inside:
                raise self.fail(at, f"{name!r} is defined by itself", "definitions must not go round in circles")
            self.check(self.definitions[name], (*inside, name), aggregated, state)
        elif name in STATES:
            if not state:
                raise self.fail(at, f"{name!r} is a profile, not a number", f"for example size({name})")
        elif name in LIBRARY:
            if aggregated and " over " in LIBRARY[name]:
                raise self.fail(at, f"{name!r} is an aggregation ({LIBRARY[name]}) inside another one")
        elif name not in self.vocabulary.link_metrics and name not in self.vocabulary.node_metrics:
            close = nearest(name, [*self.vocabulary.values, *self.definitions])
            raise self.fail(
                at,
                f"unknown metric {name!r}",
                f"did you mean {close!r}?" if close else "known: " + ", ".join(self.vocabulary.values),
            )

    def call(self, at: Expression, function: str, count: int) -> None:
        if function in self.vocabulary.functions:
            return
        expected = FUNCTIONS.get(function, -1)
        if expected == -1 or (expected is None and count < 2):
            if function in NODE_FUNCTIONS:
                raise self.fail(at, f"{function}() needs a set", f"write {function}(...) over path, or over children")
            close = nearest(function, [*FUNCTIONS, *self.vocabulary.functions])
            hint = f"did you mean {close!r}?" if close else "known: " + ", ".join(FUNCTIONS)
            raise self.fail(at, f"unknown function {function!r}", hint)
        if expected is not None and count != expected:
            raise self.fail(at, f"{function}() takes {expected} value(s), got {count}")


def uses(expression: Expression, definitions: Definitions) -> frozenset[str]:
    """Every name that an expression reaches through its definitions, definitions and calls included."""
    known, found, pending = dict(definitions), set[str](), [expression]
    while pending:
        for part in walk(pending.pop()):
            if isinstance(part, Name | FunctionCall):
                name = part.name if isinstance(part, Name) else part.function
                if name in known and name not in found:
                    pending.append(known[name])
                found.add(name)
    return frozenset(found)
