"""The canonical text of an expression tree: upper-case keywords, few parentheses, one spelling per meaning.

Parsing a canonical text gives back the same tree.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headgate.filters.expr import (
    And,
    Arithmetic,
    Call,
    Cast,
    ColumnRef,
    Compare,
    Element,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    Parameter,
    Rlike,
    StructField,
)
from headgate.filters.lexer import QUOTED, RESERVED
from headgate.filters.types import (
    BIGINT,
    BINARY,
    BOOL,
    DATE,
    DAY,
    DAY_TIME,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    YEAR_MONTH,
    is_decimal,
)

OR, AND, NOT, PREDICATE, COMPARISON, SUM, PRODUCT, UNARY, PRIMARY = range(9)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def render(node: Expr) -> str:
    """The canonical text of a tree."""
    return _at(node, OR)


def _at(node: Expr, least: int) -> str:
    text, level = _render(node)
    return text if level >= least else f"({text})"


def quote_name(name: str) -> str:
    """A name as it must stand in a filter: in backticks where it is no plain word.

    >>> quote_name("wind speed")
    '`wind speed`'
    """
    if _PLAIN.fullmatch(name) and name.lower() not in RESERVED | QUOTED:
        return name
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    r"""A string literal.

    >>> print(quote_text("it's"))
    'it\'s'
    """
    return "'" + "".join(_ESCAPES.get(one) or (one if one.isprintable() else _code(one)) for one in text) + "'"


def _code(one: str) -> str:
    return f"\\u{ord(one):04x}" if ord(one) < 0x10000 else f"\\U{ord(one):08x}"


def _render(node: Expr) -> tuple[str, int]:  # noqa: C901 - one line per kind of node reads best in one place
    match node:
        case Literal():
            return _literal(node.value, node.kind), PRIMARY
        case ColumnRef():
            return quote_name(node.name), PRIMARY
        case Parameter():
            return "$" + quote_name(node.name), PRIMARY
        case Cast():
            return _render(node.value)
        case StructField():
            return f"{_at(node.base, PRIMARY)}.{quote_name(node.name)}", PRIMARY
        case Element():
            return f"{_at(node.base, PRIMARY)}[{_at(node.key, OR)}]", PRIMARY
        case Call():
            return f"{node.name}({', '.join(_at(arg, OR) for arg in node.args)})", PRIMARY
        case Negate():
            return f"-{_operand(node.value)}", UNARY
        case Arithmetic():
            level = SUM if node.op in "+-" else PRODUCT
            return f"{_at(node.left, level)} {node.op.upper()} {_at(node.right, level + 1)}", level
        case Compare():
            return f"{_at(node.left, SUM)} {node.op} {_at(node.right, SUM)}", COMPARISON
        case In() | Like() | Rlike() | IsNull():
            return _predicate(node, ""), PREDICATE
        case Not():
            if isinstance(node.item, In | Like | Rlike | IsNull):
                return _predicate(node.item, "NOT "), PREDICATE
            return f"NOT {_at(node.item, NOT)}", NOT
        case And():
            return " AND ".join(_at(item, NOT) for item in node.items), AND
        case Or():
            return " OR ".join(_at(item, AND) for item in node.items), OR
    raise AssertionError(f"no text for {type(node).__name__}")


def _operand(node: Expr) -> str:
    """What a minus stands before: a number would become a negative literal, so it is put in parentheses."""
    text, level = _render(node)
    return text if level >= PRIMARY and not text[0].isdigit() else f"({text})"


def _predicate(node: Expr, negation: str) -> str:
    match node:
        case In():
            options = ", ".join(_at(option, OR) for option in node.options)
            return f"{_at(node.value, SUM)} {negation}IN ({options})"
        case Like():
            escape = "" if node.escape == "\\" else f" ESCAPE {quote_text(node.escape)}"
            return f"{_at(node.value, SUM)} {negation}LIKE {quote_text(node.pattern)}{escape}"
        case Rlike():
            return f"{_at(node.value, SUM)} {negation}RLIKE {quote_text(node.pattern)}"
        case IsNull():
            return f"{_at(node.value, SUM)} IS {negation}NULL"
    raise AssertionError(f"no text for {type(node).__name__}")


def _literal(value: Any, kind: pa.DataType) -> str:  # noqa: C901 - one line per type
    if value is None:
        return "NULL"
    if kind == BOOL:
        return "TRUE" if value else "FALSE"
    if kind == STRING:
        return quote_text(value)
    if kind == BINARY:
        return f"X'{value.hex().upper()}'"
    if kind == INT:
        return str(value)
    if kind == BIGINT:
        return str(value) if not -(2**31) <= value < 2**31 else f"{value}L"
    if kind == DOUBLE:
        return f"{value!r}D"
    if kind == FLOAT:
        return f"{value!r}F"
    if is_decimal(kind):
        return f"{Decimal(value)}BD" if kind.scale == 0 else _point(value, kind.scale)
    if kind == DATE:
        return f"DATE '{(_EPOCH + dt.timedelta(days=value)).date().isoformat()}'"
    if kind == TIMESTAMP:
        when = _EPOCH + dt.timedelta(microseconds=value)
        return f"TIMESTAMP '{when.replace(tzinfo=None).isoformat(sep=' ')}'"
    if kind == DAY:
        return f"INTERVAL '{value // 86_400_000_000}' DAY"
    if kind == DAY_TIME:
        return f"INTERVAL '{_point(value, 6).rstrip('0').rstrip('.')}' SECOND"
    if kind == YEAR_MONTH:
        return f"INTERVAL '{value}' MONTH"
    return f"{value}{'S' if kind == pa.int16() else 'Y'}"


def _point(value: int, scale: int) -> str:
    sign, digits = "-" if value < 0 else "", str(abs(value)).rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"
