"""Commands whose options belong together: a parameter that is a dataclass stands for one option per field.

Typer makes an option of every parameter of a command. Options that several commands share, or that are used together,
are written once as a frozen dataclass whose fields are annotated like parameters. A command of a `Program` takes such
an object as one parameter; on the command line its fields are options like all others.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints

import typer


class Program(typer.Typer):
    """A Typer application whose commands may take dataclasses of options."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # type: ignore[override] # Typer spells out its settings
        """Register a command, with the fields of its dataclasses as options."""
        register = super().command(name, **settings)

        def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
            if isinstance(command, type):
                raise TypeError(f"{command.__name__} is a group of options, not a command")
            register(with_groups(command))
            return command

        return decorate


def with_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with a parameter for every field of its dataclasses, as Typer reads it; unchanged if it has none."""
    signature = inspect.signature(command, eval_str=True)
    groups = {name: each.annotation for name, each in signature.parameters.items() if _is_group(each.annotation)}
    if not groups:
        return command
    parameters = [
        parameter
        for name, each in signature.parameters.items()
        for parameter in (_parameters(groups[name]) if name in groups else [_by_name(each)])
    ]

    @functools.wraps(command)
    def call(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        return command(**given)

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined] # what Typer reads
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and is_dataclass(annotation)


def _parameters(group: type) -> list[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
            annotation=types[each.name],
        )
        for each in fields(group)
    ]


def _by_name(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
