"""The page of the deployment file, from the models that read it."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headgate.catalog import document, entry
from headgate.model.units import UNITS
from headgate_studies.testing.reference.tables import table

_TYPES: tuple[tuple[Any, str], ...] = (
    (entry.Duration, "duration"),
    (entry.Bandwidth, "bandwidth"),
    (entry.Rate, "rate"),
    (entry.Share, "number from 0 to 1"),
    (entry.Name, "name"),
    (entry.Names, "column or list of columns"),
    (document.SchemaEntry, "mapping of column"),
    (str, "text"),
    (float, "number"),
    (int, "whole number"),
    (bool, "true or false"),
)


def deployment_page() -> str:
    """Every key of the deployment file: its type, its default and its meaning."""
    lines = [
        "# Keys of the deployment file",
        "",
        "What the file is and how it is read: [deployment-file.md](../deployment-file.md).",
        "",
    ]
    for title, model in _models(document.DeploymentEntry, ""):
        lines += [f"## {title}", "", (model.__doc__ or "").strip(), ""]
        hints = typing.get_type_hints(model, include_extras=True)
        rows = [
            [
                f"`{field.alias or name}`",
                _type(hints[name]),
                _default(field, _type(hints[name])),
                field.description or "",
            ]
            for name, field in sorted(model.model_fields.items(), key=lambda item: not item[1].is_required())
        ]
        lines += [*table(["key", "type", "default", "meaning"], rows), ""]
    lines += ["## Units", "", "A quantity is a number and a unit in one value; case matters.", ""]
    lines += table(
        ["quantity", "units"], [[name, ", ".join(f"`{unit}`" for unit in units)] for name, units in UNITS.items()]
    )
    return "\n".join(lines)


def _models(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """A model and the models below it, each with the place where it stands in the file."""
    yield path or "The file", model
    hints = typing.get_type_hints(model, include_extras=True)
    for name, field in model.model_fields.items():
        key = f"{path}.{field.alias or name}".removeprefix(".")
        for suffix, inner in _inner(hints[name]):
            yield from _models(inner, key + suffix)


def _inner(hint: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield "", hint
        return
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is dict:
        yield from ((f".NAME{suffix}", model) for suffix, model in _inner(arguments[1]))
    elif origin is list:
        yield from ((f"[]{suffix}", model) for suffix, model in _inner(arguments[0]))
    else:
        for argument in arguments:
            yield from _inner(argument)


def _type(hint: Any) -> str:
    for known, text in _TYPES:
        if hint == known:
            return text
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "mapping"
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_type(argument) for argument in arguments if argument is not type(None))
    if origin is list:
        return f"list of {_type(arguments[0])}"
    return "mapping" if origin is dict else "any value"


def _default(field: FieldInfo, kind: str) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None or field.default is None or isinstance(field.default, BaseModel):
        return ""
    text = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
    return f"`{text} s`" if kind == "duration" else f"`{text}`"
