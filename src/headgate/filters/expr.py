"""The frozen expression tree of a filter: one dataclass per kind of node, every node with its type.

Trees are made by `build`, which inserts a `Cast` wherever Spark would convert a value, so an operation's operands
always have the type it works in. Nodes carry no positions: two texts that mean the same tree are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

import pyarrow as pa

from headgate.filters.types import BOOL

_Node = TypeVar("_Node")


class _Hashed:
    """Room for a node's hash, which is no part of its value and does not travel with it."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass_transform(frozen_default=True)
def _node(cls: type[_Node]) -> type[_Node]:
    """A frozen dataclass that computes its hash once: hashing a tree visits all of it, and it is looked up often."""
    made = dataclass(frozen=True, slots=True)(cls)
    computed: Any = made.__hash__

    def remembered(self: Any) -> int:
        try:
            return int(self._hash)
        except AttributeError:
            found = int(computed(self))
            object.__setattr__(self, "_hash", found)
            return found

    made.__hash__ = remembered  # type: ignore[method-assign]  # that is the purpose
    return made


@_node
class Expr(_Hashed):
    """Any node."""

    @property
    def type(self) -> pa.DataType:
        """The type of the node's values."""
        return BOOL


@_node
class _Typed(Expr):
    kind: pa.DataType

    @property
    def type(self) -> pa.DataType:
        """The type of the node's values."""
        return self.kind


@_node
class Literal(_Typed):
    """A constant. Decimals are their unscaled integer, dates days, timestamps and intervals microseconds or months."""

    value: Any


@_node
class ColumnRef(_Typed):
    """A column of the stream."""

    name: str


@_node
class Parameter(_Typed):
    """`$name`: a value of the subscriber's context."""

    name: str


@_node
class StructField(_Typed):
    """`base.name`: a field of a struct."""

    base: Expr
    name: str


@_node
class Element(_Typed):
    """`base[key]`: an array element counted from 0, or a map's value; NULL where there is none."""

    base: Expr
    key: Expr


@_node
class Cast(_Typed):
    """A conversion that Spark would insert; never written by a user."""

    value: Expr


@_node
class Arithmetic(_Typed):
    """`left op right` with op one of + - * / % div."""

    op: str
    left: Expr
    right: Expr


@_node
class Negate(_Typed):
    """`-value`."""

    value: Expr


@_node
class Call(_Typed):
    """A function of the table in `functions`."""

    name: str
    args: tuple[Expr, ...]


@_node
class Compare(Expr):
    """`left op right` with op one of = != < <= > >= <=>."""

    op: str
    left: Expr
    right: Expr


@_node
class In(Expr):
    """`value IN (options)`."""

    value: Expr
    options: tuple[Expr, ...]


@_node
class Like(Expr):
    r"""`value LIKE pattern`; the pattern is kept with its escape character."""

    value: Expr
    pattern: str
    escape: str = "\\"


@_node
class Rlike(Expr):
    """`value RLIKE pattern`: the pattern, in RE2's syntax, is found anywhere in the value."""

    value: Expr
    pattern: str


@_node
class IsNull(Expr):
    """`value IS NULL`."""

    value: Expr


@_node
class Not(Expr):
    """`NOT item`."""

    item: Expr


@_node
class And(Expr):
    """All of at least two items; never directly inside another `And`."""

    items: tuple[Expr, ...]


@_node
class Or(Expr):
    """Any of at least two items; never directly inside another `Or`."""

    items: tuple[Expr, ...]


def operand_names(node: Expr) -> tuple[str, ...]:
    """The names of what a node consists of, in order."""
    found: tuple[str, ...] = node.__match_args__
    return found


def children(node: Expr) -> Iterator[Expr]:
    """The direct operands of a node, in order."""
    for name in operand_names(node):
        found = getattr(node, name)
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
        if not isinstance(found, Literal | ColumnRef | Parameter):
            pending.extend(reversed(list(children(found))))


TRUE = Literal(BOOL, True)
FALSE = Literal(BOOL, False)
