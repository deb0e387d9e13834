"""Turns the errors of the file's models into problems that say what was expected and name the nearest valid key."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from headgate.catalog.entry import COLUMN, CONTEXT, NAME, describe
from headgate.catalog.positions import Document, Path, dotted
from headgate.catalog.problems import FileProblem, suggestion
from headgate.errors import nearest

T = TypeVar("T")

# Words that other systems use for our keys.
_SYNONYMS = {"filter": "where", "columns": "select", "bandwidth": "upload", "latency": "delay", "topic": "stream"}

_EXPECTED = {
    "string_type": "text",
    "float_type": "a number",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "finite_number": "a finite number",
}
_PATTERNS = {
    NAME: ("is not a name", "names have letters, digits, _ and -, at most 64"),
    COLUMN: ("is not a column name", "column names have no dots, backticks or control characters"),
    CONTEXT: ("is not a name for a context value", "such names have letters, digits and _, and start with no digit"),
}


_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    """What reads values of a kind; making one takes longer than reading a subscription."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def validate(kind: type[T], document: Document, path: Path, value: Any) -> tuple[T | None, list[FileProblem]]:
    """The value at a path as that kind, or None and its problems."""
    try:
        return _adapter(kind).validate_python(value), []
    except ValidationError as error:
        return None, [_problem(kind, document, path, detail) for detail in error.errors(include_url=False)]


def salvage(kind: type[T], value: Any, stand_ins: Mapping[str, Any] | None = None) -> T | None:
    """The value without its broken keys, so that the others can be checked further; None if it cannot be without.

    A key that it cannot be without and that is broken or missing has its stand-in, if there is one.
    """
    adapter = _adapter(kind)
    if not isinstance(value, dict):
        return None
    broken = broken_keys(kind, value)
    sound = {key: item for key, item in value.items() if key not in broken}
    for tried in (sound, {**(stand_ins or {}), **sound}):
        try:
            return adapter.validate_python(tried)
        except ValidationError:
            continue
    return None


def broken_keys(kind: type[Any], value: Any) -> set[str | int]:
    """The keys of a value that are missing or cannot be read as that kind."""
    try:
        _adapter(kind).validate_python(value)
    except ValidationError as error:
        return {detail["loc"][0] for detail in error.errors(include_url=False) if detail["loc"]}
    return set()


def _problem(kind: Any, document: Document, base: Path, detail: ErrorDetails) -> FileProblem:
    on_key = detail["loc"][-1:] == ("[key]",)
    local: Path = tuple(part for part in detail["loc"] if part != "[key]")
    path = (*base, *local)
    where = dotted(path)
    given, context = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "headgate":
            return document.problem(path, f"{where}: {context['message']}", context.get("hint"))
        case "extra_forbidden":
            keys = list(_keys(kind, local[:-1]))
            inside = f" in {dotted(path[:-1])}" if path[:-1] else ""
            known = _SYNONYMS.get(str(path[-1]))
            fix = f"did you mean {known!r}?" if known in keys else suggestion(str(path[-1]), keys, "known keys")
            return document.problem(path, f"unknown key {str(path[-1])!r}{inside}", fix, key=True)
        case "missing":
            inside = f" in {dotted(path[:-1])}" if path[:-1] else ""
            return document.problem(path, f"key {str(path[-1])!r} is missing{inside}", f"add `{path[-1]}: ...`")
        case "string_pattern_mismatch":
            what, fix = _PATTERNS[context["pattern"]]
            return document.problem(path, f"{where}: {str(given)!r} {what}", fix, key=on_key)
        case "literal_error":
            choices = [part.strip(" '") for part in context["expected"].replace(" or ", ", ").split(", ")]
            close = nearest(str(given), choices)
            what = f"{where}: expected {' or '.join(choices)}, found {describe(given)}"
            return document.problem(path, what, f"did you mean {close!r}?" if close else None)
        case "too_short" | "too_long":
            return document.problem(path, f"{where}: {_length(context)}, found {context['actual_length']}")
        case "greater_than" | "greater_than_equal" | "less_than_equal":
            return document.problem(path, f"{where}: {given} is out of range: {detail['msg'].removeprefix('Input ')}")
    expected = _EXPECTED.get(detail["type"])
    if expected is None:
        return document.problem(path, f"{where}: {detail['msg']}")
    hint = "write the text in quotes" if expected == "text" and isinstance(given, bool | int | float) else None
    return document.problem(path, f"{where}: expected {expected}, found {describe(given)}", hint)


def _length(context: dict[str, Any]) -> str:
    at_least = "min_length" in context
    number = context["min_length" if at_least else "max_length"]
    return f"expected at {'least' if at_least else 'most'} {number} {'entry' if number == 1 else 'entries'}"


def _keys(kind: Any, path: Path) -> Iterator[str]:
    """The keys of the model that stands at a path of a type."""
    for part in path:
        kind = _inner(kind, part)
    model = _model(kind)
    if model is not None:
        for name, field in model.model_fields.items():
            yield field.alias or name


def _model(kind: Any) -> type[BaseModel] | None:
    """The model that a possibly annotated or optional type holds."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    if typing.get_origin(kind) in (dict, list):
        return None
    found = (_model(argument) for argument in typing.get_args(kind) if argument is not type(None))
    return next((model for model in found if model is not None), None)


def _inner(kind: Any, part: str | int) -> Any:
    """The type of what stands under a key or an index of a type."""
    model = _model(kind)
    if model is not None:
        for name, field in model.model_fields.items():
            if part == (field.alias or name):
                return field.annotation
        return None
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (dict, list):
        return arguments[-1]
    return next((_inner(argument, part) for argument in arguments if typing.get_origin(argument) in (dict, list)), None)
