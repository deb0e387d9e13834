"""The frozen expression tree of a filter: one dataclass per kind of node, every node with its type.

Trees are made by `build`, which inserts a `Cast` wherever Spark would convert a value, so an operation's operands
always have the type it works in. Nodes carry no positions: two texts that mean the same tree are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from headgate.filters.types import BOOL


@dataclass(frozen=True, slots=True)
class Expr:
    """Any node."""

    @property
    def type(self) -> pa.DataType:
        """The type of the node's values."""
        return BOOL


@dataclass(frozen=True, slots=True)
class _Typed(Expr):
    kind: pa.DataType

    @property
    def type(self) -> pa.DataType:
        """The type of the node's values."""
        return self.kind


@dataclass(frozen=True, slots=True)
class Literal(_Typed):
    """A constant. Decimals are their unscaled integer, dates days, timestamps and intervals microseconds or months."""

    value: Any


@dataclass(frozen=True, slots=True)
class Column(_Typed):
    """A column of the stream."""

    name: str


@dataclass(frozen=True, slots=True)
class Parameter(_Typed):
    """`$name`: a value of the subscriber's context."""

    name: str


@dataclass(frozen=True, slots=True)
class Field(_Typed):
    """`base.name`: a field of a struct."""

    base: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Item(_Typed):
    """`base[key]`: an array element counted from 0, or a map's value; NULL where there is none."""

    base: Expr
    key: Expr


@dataclass(frozen=True, slots=True)
class Cast(_Typed):
    """A conversion that Spark would insert; never written by a user."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Arithmetic(_Typed):
    """`left op right` with op one of + - * / % div."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Negate(_Typed):
    """`-value`."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Call(_Typed):
    """A function of the table in `functions`."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Compare(Expr):
    """`left op right` with op one of = != < <= > >= <=>."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class In(Expr):
    """`value IN (options)`."""

    value: Expr
    options: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Like(Expr):
    r"""`value LIKE pattern`; the pattern is kept with its escape character."""

    value: Expr
    pattern: str
    escape: str = "\\"


@dataclass(frozen=True, slots=True)
class Rlike(Expr):
    """`value RLIKE pattern`: the pattern, in RE2's syntax, is found anywhere in the value."""

    value: Expr
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull(Expr):
    """`value IS NULL`."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Not(Expr):
    """`NOT item`."""

    item: Expr


@dataclass(frozen=True, slots=True)
class And(Expr):
    """All of at least two items; never directly inside another `And`."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or(Expr):
    """Any of at least two items; never directly inside another `Or`."""

    items: tuple[Expr, ...]


def children(node: Expr) -> Iterator[Expr]:
    """The direct operands of a node, in order."""
    for field in fields(node):
        found = getattr(node, field.name)
        if isinstance(found, Expr):
            yield found
        elif isinstance(found, tuple):
            yield from found


def walk(node: Expr) -> Iterator[Expr]:
    """The node and everything below it, parents first."""
    pending = [node]
    while pending:
        found = pending.pop()
        yield found
        pending.extend(reversed(list(children(found))))


TRUE = Literal(BOOL, True)
FALSE = Literal(BOOL, False)
