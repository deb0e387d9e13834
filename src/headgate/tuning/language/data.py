"""Objectives and constraints as plain data (JSON, YAML), the same information as their text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.tuning.language.check import check_constraint, check_objective
from headgate.tuning.language.errors import ObjectiveError
from headgate.tuning.language.parser import is_percentile
from headgate.tuning.language.quantities import UNITS
from headgate.tuning.language.syntax import (
    GOALS,
    NODE_FUNCTIONS,
    NODE_SETS,
    OPERATORS,
    SYSTEM_FUNCTIONS,
    SYSTEM_SETS,
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


def objective_to_data(objective: SystemObjective) -> dict[str, Any]:
    """An objective as nested dicts and lists."""
    return {"goal": objective.goal, **_system(objective.system), **_named(objective.definitions)}


def objective_from_data(data: Mapping[str, Any], vocabulary: Vocabulary = BUILT_IN) -> SystemObjective:
    """The inverse of `objective_to_data`, with the same checks as text."""
    objective = SystemObjective(_one_of(data, "goal", GOALS), _read_system(data), _read_named(data))
    check_objective(objective, vocabulary)
    return objective


def constraint_to_data(constraint: Constraint) -> dict[str, Any]:
    """A constraint as nested dicts and lists."""
    metric = constraint.metric
    shown = _system(metric) if isinstance(metric, SystemCost) else _write(metric)
    return {
        "metric": shown,
        "operator": constraint.operator,
        "threshold": _write(constraint.threshold),
        **_named(constraint.definitions),
    }


def constraint_from_data(data: Mapping[str, Any], vocabulary: Vocabulary = BUILT_IN) -> Constraint:
    """The inverse of `constraint_to_data`."""
    metric = data.get("metric")
    is_system = isinstance(metric, Mapping) and "system" in metric
    threshold = _read(data.get("threshold"))
    if not isinstance(threshold, Number):
        raise ObjectiveError(
            "the threshold of a constraint is a number", hint='for example {"value": 200, "unit": "ms"}'
        )
    constraint = Constraint(
        _read_system(metric) if is_system and isinstance(metric, Mapping) else _read(metric),
        _one_of(data, "operator", OPERATORS),
        threshold,
        _read_named(data),
    )
    check_constraint(constraint, vocabulary)
    return constraint


def _named(definitions: Definitions) -> dict[str, Any]:
    return {"where": {name: _write(expression) for name, expression in definitions}} if definitions else {}


def _read_named(data: Mapping[str, Any]) -> Definitions:
    return tuple((str(name), _read(value)) for name, value in dict(data.get("where", {})).items())


def _system(system: SystemCost) -> dict[str, Any]:
    return {"system": system.function, "cost": _write(system.cost), "over": system.over}


def _read_system(data: Mapping[str, Any]) -> SystemCost:
    function = str(data.get("system"))
    if function not in SYSTEM_FUNCTIONS and not is_percentile(function):
        raise ObjectiveError(f"unknown system function {function!r}", hint="one of " + ", ".join(SYSTEM_FUNCTIONS))
    over = _one_of({"over": "brokers", **data}, "over", SYSTEM_SETS)
    return SystemCost(function, _read(data.get("cost")), over)


def _write(expression: Expression) -> Any:
    match expression:
        case Number(value, unit):
            return {"value": value / UNITS[unit], "unit": unit} if unit else value
        case Name(name):
            return name
        case FunctionCall(function, arguments):
            return {"call": function, "arguments": [_write(argument) for argument in arguments]}
        case Binary(operator, left, right):
            return {"operator": operator, "left": _write(left), "right": _write(right)}
        case NodeAggregate(function, value, over):
            return {"function": function, "value": _write(value), "over": over}


def _read(data: Any) -> Expression:
    if isinstance(data, str):
        return Name(data)
    if isinstance(data, int | float) and not isinstance(data, bool):
        return Number(float(data))
    if isinstance(data, Mapping):
        if "value" in data and "unit" in data:
            unit = _one_of(data, "unit", tuple(UNITS))
            return Number(float(data["value"]) * UNITS[unit], unit)
        if "call" in data:
            return FunctionCall(str(data["call"]), tuple(_read(argument) for argument in data.get("arguments", ())))
        if "operator" in data:
            operator = _one_of(data, "operator", ("+", "-", "*", "/"))
            return Binary(operator, _read(data.get("left")), _read(data.get("right")))
        if "function" in data:
            return NodeAggregate(
                _one_of(data, "function", NODE_FUNCTIONS), _read(data.get("value")), _one_of(data, "over", NODE_SETS)
            )
    raise ObjectiveError(
        f"{data!r} is not an expression",
        hint="a name, a number, or a mapping with `call`, `operator`, `function`, or `value` and `unit`",
    )


def _one_of(data: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    found = data.get(key)
    if found not in allowed:
        raise ObjectiveError(f"{key} {found!r} is unknown", hint="one of " + ", ".join(allowed))
    return str(found)
