"""What a function of the filter language is: a rule that checks its arguments and a vectorised kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from headgate.filters.errors import RefusedError
from headgate.filters.expr import Call, Expr, Literal
from headgate.filters.types import NULL, is_integer, name_of
from headgate.filters.vector import Vector

Resolved: TypeAlias = tuple[tuple[Expr, ...], pa.DataType]


@dataclass(frozen=True, slots=True)
class Function:
    """A function: its names (the first is canonical), a line for the reference, its typing rule and its kernel."""

    names: tuple[str, ...]
    signature: str
    about: str
    resolve: Callable[[tuple[Expr, ...]], Resolved]
    kernel: Callable[[Call, tuple[Vector, ...]], Vector]


def count(args: tuple[Expr, ...], least: int, most: int | None = None) -> None:
    """Refuse a wrong number of arguments."""
    most = least if most is None else most
    if not least <= len(args) <= most:
        expected = str(least) if least == most else f"{least} to {most}"
        raise RefusedError(f"{len(args)} arguments where {expected} are expected")


def expect(arg: Expr, what: str, allowed: Callable[[pa.DataType], bool]) -> Expr:
    """The argument if its type is allowed; NULL always is."""
    if arg.type != NULL and not allowed(arg.type):
        raise RefusedError(f"{what} was expected, not {name_of(arg.type)}")
    return arg


def whole_literal(arg: Expr, what: str) -> int:
    """The value of an argument that must be a whole number in the text."""
    if not isinstance(arg, Literal) or not is_integer(arg.type):
        raise RefusedError(f"{what} must be a whole number in the text", "for example 2")
    return int(arg.value)


def literal_value(arg: Expr) -> Any:
    """The value of an argument that `resolve` found to be a literal."""
    assert isinstance(arg, Literal)
    return arg.value
