"""Typed nodes from untyped parts: checks operand types and inserts the conversions that Spark would insert.

A combination that Spark would only accept by casting a string or a boolean is refused (`RefusedError`), with what to
write instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from headgate.errors import nearest
from headgate.filters.errors import RefusedError
from headgate.filters.expr import (
    And,
    Arithmetic,
    Cast,
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
    Rlike,
    StructField,
)
from headgate.filters.kernels.patterns import compiled_size
from headgate.filters.limits import DEFAULT_LIMITS, Limits
from headgate.filters.types import (
    BIGINT,
    BOOL,
    DATE,
    DAY,
    DAY_TIME,
    DOUBLE,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    YEAR_MONTH,
    decimal_form,
    decimal_result,
    is_decimal,
    is_float,
    is_integer,
    is_list,
    is_map,
    is_nested,
    is_number,
    is_struct,
    name_of,
    wider,
)

_INTERVALS = (DAY, DAY_TIME, YEAR_MONTH)


def cast(node: Expr, kind: pa.DataType) -> Expr:
    """The node converted to a wider type."""
    return node if node.type == kind else Cast(kind, node)


def common(nodes: Sequence[Expr]) -> tuple[Expr, ...]:
    """The nodes converted to the narrowest type that holds them all."""
    kind = nodes[0].type
    for node in nodes[1:]:
        found = wider(kind, node.type)
        if found is None:
            raise RefusedError(f"cannot compare {name_of(kind)} with {name_of(node.type)}", _cast_hint(kind, node.type))
        kind = found
    return tuple(cast(node, kind) for node in nodes)


def _cast_hint(one: pa.DataType, other: pa.DataType) -> str:
    pair = {one, other}
    if STRING in pair and TIMESTAMP in pair:
        return "write TIMESTAMP '2026-01-31 12:00:00'"
    if STRING in pair and DATE in pair:
        return "write DATE '2026-01-31'"
    if STRING in pair and (is_number(one) or is_number(other)):
        return "strings and numbers are never converted into one another: leave the quotes away, or quote both"
    return "both sides must have the same kind of type"


def compare(op: str, left: Expr, right: Expr) -> Expr:
    """A comparison of two scalars."""
    left, right = _literal_precision(left, right)
    left, right = common((left, right))
    if is_nested(left.type):
        raise RefusedError(f"values of type {name_of(left.type)} cannot be compared", "compare a field or an element")
    return Compare(op, left, right)


def _literal_precision(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """An integer literal beside a decimal becomes a decimal of just its digits."""
    if is_decimal(left.type) and isinstance(right, Literal) and is_integer(right.type):
        return left, Cast(_digits(right), right)
    if is_decimal(right.type) and isinstance(left, Literal) and is_integer(left.type):
        return Cast(_digits(left), left), right
    return left, right


def _digits(literal: Literal) -> pa.DataType:
    return pa.decimal128(max(1, len(str(abs(literal.value)))), 0)


def between(value: Expr, low: Expr, high: Expr) -> Expr:
    """`value BETWEEN low AND high`, which is two comparisons."""
    return conjunction((compare(">=", value, low), compare("<=", value, high)))


def membership(value: Expr, options: Sequence[Expr]) -> Expr:
    """`value IN (options)`."""
    if is_nested(value.type):
        raise RefusedError(f"IN does not apply to {name_of(value.type)}", "use array_contains(array, value)")
    converted = common((value, *options))
    return In(converted[0], converted[1:])


def like(value: Expr, pattern: Expr, escape: str = "\\") -> Expr:
    """`value LIKE pattern`; the escape character may stand only before `_`, `%` and itself."""
    text = _pattern(value, pattern, "LIKE")
    position = 0
    while (position := text.find(escape, position)) >= 0:
        following = text[position + 1 : position + 2]
        if not following or following not in ("_", "%", escape):
            raise RefusedError(
                f"in the pattern {text!r} the escape {escape!r} stands before {following or 'the end'!r}",
                f"it may stand before _, % and {escape}; to match it, write it twice",
            )
        position += 2
    return Like(value, text, escape)


def rlike(value: Expr, pattern: Expr) -> Expr:
    """`value RLIKE pattern`; the pattern is compiled here, so a bad one is refused before any row is seen."""
    text = _pattern(value, pattern, "RLIKE")
    check_regex(text)
    return Rlike(value, text)


def check_regex(pattern: str, limits: Limits = DEFAULT_LIMITS) -> int:
    """The instructions that RE2 compiles a pattern to; `RefusedError` for one that is none or takes too many.

    >>> check_regex("a|b")
    5
    """
    import re2  # heavy, and only patterns need it

    if len(pattern) > limits.pattern:
        raise RefusedError(
            f"the regular expression has {len(pattern):,} characters, at most {limits.pattern:,} are accepted",
            "look for a part of it, or use IN, LIKE or contains",
        )
    try:
        size = compiled_size(pattern)
    except re2.error as error:
        detail = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise RefusedError(
            f"bad regular expression: {detail}", "the syntax is RE2's: no back references, no look-around"
        ) from None
    if size > limits.program:
        raise RefusedError(
            f"the regular expression takes {size:,} instructions, at most {limits.program:,} are accepted",
            "repeat less: {100} writes a part a hundred times",
        )
    return size


def _pattern(value: Expr, pattern: Expr, operator: str) -> str:
    if value.type not in (STRING, NULL):
        raise RefusedError(f"{operator} needs a string, not {name_of(value.type)}")
    if not isinstance(pattern, Literal) or pattern.type != STRING:
        raise RefusedError(f"the pattern of {operator} must be a string literal", "for example 'a%'")
    return str(pattern.value)


def is_null(value: Expr) -> Expr:
    """`value IS NULL`."""
    return IsNull(value)


def boolean(node: Expr, what: str) -> Expr:
    """The node if it is a truth value."""
    if node.type == NULL:
        return Cast(BOOL, node)
    if node.type != BOOL:
        raise RefusedError(f"{what} needs a boolean, not {name_of(node.type)}", "write a comparison, such as x > 0")
    return node


def negation(item: Expr) -> Expr:
    """`NOT item`."""
    return Not(boolean(item, "NOT"))


def conjunction(items: Iterable[Expr]) -> Expr:
    """AND of the items, flattened; a single item is itself."""
    flat = [part for item in items for part in (item.items if isinstance(item, And) else (boolean(item, "AND"),))]
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def disjunction(items: Iterable[Expr]) -> Expr:
    """OR of the items, flattened; a single item is itself."""
    flat = [part for item in items for part in (item.items if isinstance(item, Or) else (boolean(item, "OR"),))]
    return flat[0] if len(flat) == 1 else Or(tuple(flat))


def negate(value: Expr) -> Expr:
    """`-value`; a number literal becomes negative itself."""
    kind = value.type
    if isinstance(value, Literal) and value.value is not None and is_number(kind):
        return Literal(kind, -value.value)
    if not is_number(kind) and kind not in _INTERVALS and kind != NULL:
        raise RefusedError(f"- needs a number, not {name_of(kind)}")
    return Negate(kind, value) if kind != NULL else value


def arithmetic(op: str, left: Expr, right: Expr) -> Expr:
    """`left op right`: numbers by Spark's promotion rules, dates and timestamps with intervals."""
    if left.type == NULL and right.type == NULL:
        return Literal(DOUBLE if op == "/" else INT, None)
    if left.type == NULL and is_number(right.type):
        left = cast(left, right.type)
    if right.type == NULL and is_number(left.type):
        right = cast(right, left.type)
    if is_number(left.type) and is_number(right.type):
        return _numeric(op, left, right)
    if op in "+-":
        shifted = _temporal(op, left, right)
        if shifted is not None:
            return shifted
    raise RefusedError(
        f"{op} does not apply to {name_of(left.type)} and {name_of(right.type)}", _cast_hint(left.type, right.type)
    )


def _numeric(op: str, left: Expr, right: Expr) -> Expr:
    if op == "div":
        if not (is_integer(left.type) and is_integer(right.type)):
            raise RefusedError("div needs whole numbers", "write floor(a / b)")
        return Arithmetic(BIGINT, op, cast(left, BIGINT), cast(right, BIGINT))
    either_decimal = is_decimal(left.type) or is_decimal(right.type)
    either_float = is_float(left.type) or is_float(right.type)
    if either_decimal and not either_float:
        left, right = _literal_precision(left, right)
        one, other = decimal_form(left.type), decimal_form(right.type)
        left, right = cast(left, pa.decimal128(*one)), cast(right, pa.decimal128(*other))
        return Arithmetic(decimal_result(op, one, other), op, left, right)
    kind = DOUBLE if op == "/" else wider(left.type, right.type)
    return Arithmetic(kind, op, cast(left, kind), cast(right, kind))


def _temporal(op: str, left: Expr, right: Expr) -> Expr | None:
    if op == "+" and right.type in (DATE, TIMESTAMP):
        left, right = right, left
    one, other = left.type, right.type
    if one in _INTERVALS and other in _INTERVALS:
        kind = wider(one, other)
        return None if kind is None else Arithmetic(kind, op, cast(left, kind), cast(right, kind))
    if op == "-" and one in (DATE, TIMESTAMP) and other in (DATE, TIMESTAMP):
        if one == other == DATE:
            return Arithmetic(DAY, op, left, right)
        return Arithmetic(DAY_TIME, op, cast(left, TIMESTAMP), cast(right, TIMESTAMP))
    if one == DATE and (other == DAY or (is_integer(other) and other != BIGINT)):
        return Arithmetic(DATE, op, left, right)
    if one in (DATE, TIMESTAMP) and other == YEAR_MONTH:
        return Arithmetic(one, op, left, right)
    if one in (DATE, TIMESTAMP) and other in (DAY, DAY_TIME):
        return Arithmetic(TIMESTAMP, op, cast(left, TIMESTAMP), right)
    return None


def field(base: Expr, name: str) -> Expr:
    """`base.name`."""
    if not is_struct(base.type):
        raise RefusedError(f"{name_of(base.type)} has no field {name!r}", "only a struct has fields")
    names = [part.name for part in base.type]
    found = resolve(name, names)
    if found is None:
        close = nearest(name, names)
        raise RefusedError(
            f"unknown field {name!r}", f"did you mean {close!r}?" if close else "fields are " + ", ".join(names)
        )
    return StructField(base.type.field(found).type, base, found)


def resolve(name: str, names: Sequence[str]) -> str | None:
    """The known name that was meant: the same one, or the only one that differs in case alone."""
    if name in names:
        return name
    folded = [known for known in names if known.casefold() == name.casefold()]
    return folded[0] if len(folded) == 1 else None


def item(base: Expr, key: Expr) -> Expr:
    """`base[key]`."""
    if is_list(base.type):
        if not is_integer(key.type):
            raise RefusedError(f"an array is indexed by a whole number, not {name_of(key.type)}")
        return Element(base.type.value_type, base, cast(key, BIGINT))
    if is_map(base.type):
        if wider(base.type.key_type, key.type) != base.type.key_type:
            raise RefusedError(f"the keys are {name_of(base.type.key_type)}, not {name_of(key.type)}")
        return Element(base.type.item_type, base, cast(key, base.type.key_type))
    if is_struct(base.type) and isinstance(key, Literal) and key.type == STRING:
        return field(base, key.value)
    raise RefusedError(f"{name_of(base.type)} has no elements", "only arrays and maps are indexed with [ ]")
