"""Functions of strings. Lengths and positions count characters (code points), as in Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.filters import build
from headgate.filters.errors import RefusedError
from headgate.filters.expr import Call, ColumnRef, Expr, walk
from headgate.filters.functions.base import Function, Resolved, count, expect, literal_value, whole_literal
from headgate.filters.types import BINARY, BOOL, INT, NULL, STRING
from headgate.filters.vector import Vector, from_arrow, from_python, truth

_MOST = 2**31 - 1


def _string(arg: Expr) -> Expr:
    found = expect(arg, "a string", lambda kind: kind == STRING)
    return build.cast(found, STRING) if found.type == NULL else found


def _one(args: tuple[Expr, ...]) -> Resolved:
    count(args, 1)
    return (_string(args[0]),), STRING


def _two(args: tuple[Expr, ...]) -> Resolved:
    count(args, 2)
    return (_string(args[0]), _string(args[1])), BOOL


def _resolve_length(args: tuple[Expr, ...]) -> Resolved:
    count(args, 1)
    arg = expect(args[0], "a string", lambda kind: kind in (STRING, BINARY))
    return (build.cast(arg, STRING) if arg.type == NULL else arg,), INT


def _length(_call: Call, args: tuple[Vector, ...]) -> Vector:
    found = (pc.utf8_length if args[0].type == STRING else pc.binary_length)(args[0].values)
    return from_python(found.as_py(), INT) if isinstance(found, pa.Scalar) else from_arrow(found, INT)


def _resolve_substring(args: tuple[Expr, ...]) -> Resolved:
    count(args, 2, 3)
    for arg in args[1:]:
        if abs(whole_literal(arg, "a position or length of substring")) > _MOST:
            raise RefusedError("a position or length of substring is beyond the range of an int")
    return (_string(args[0]), *args[1:]), STRING


def _substring(call: Call, args: tuple[Vector, ...]) -> Vector:
    position = literal_value(call.args[1])
    length = literal_value(call.args[2]) if len(args) > 2 else _MOST
    start = position - 1 if position > 0 else position
    if length <= 0:
        return _map_text(args[0], lambda array: pc.utf8_slice_codeunits(array, 0, 0))
    stop: int | None = start + length
    if start < 0 and start + length >= 0:
        stop = None
    return _map_text(args[0], lambda array: pc.utf8_slice_codeunits(array, start, stop))


def _map_text(value: Vector, kernel: Callable[[Any], Any]) -> Vector:
    if not isinstance(value.values, pa.Scalar):
        return Vector(STRING, kernel(value.values))
    return Vector(STRING, kernel(pa.array([value.values.as_py()], STRING))[0])


def _recase(
    ascii_kernel: Callable[[Any], Any], full: Callable[[str], str]
) -> Callable[[Call, tuple[Vector, ...]], Vector]:
    """Case conversion: ASCII by Arrow; other strings once per distinct value, by the full Unicode rules Spark uses."""

    def convert(array: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(array), min_count=0).as_py() is not False:
            return ascii_kernel(array)
        encoded = array.dictionary_encode()
        distinct = pa.array([full(text) for text in encoded.dictionary.to_pylist()], STRING)
        return distinct.take(encoded.indices)

    return lambda _call, args: _map_text(args[0], convert)


def _resolve_concat(args: tuple[Expr, ...]) -> Resolved:
    count(args, 1, 64)
    return tuple(_string(arg) for arg in args), STRING


def _concat(_call: Call, args: tuple[Vector, ...]) -> Vector:
    return Vector(STRING, pc.binary_join_element_wise(*(arg.values for arg in args), ""))


def _search(position: str) -> Callable[[Call, tuple[Vector, ...]], Vector]:
    """startswith, endswith, contains, by Arrow's kernels."""

    def kernel(_call: Call, args: tuple[Vector, ...]) -> Vector:
        text, part = args
        assert isinstance(part.values, pa.Scalar), "resolve lets only constants through"
        if not part.values.is_valid:
            return from_python(None, BOOL)
        pattern = part.values.as_py()
        function = {"start": pc.starts_with, "end": pc.ends_with, "any": pc.match_substring}[position]
        values = text.values
        if isinstance(values, pa.Scalar):
            return truth(function(pa.array([values.as_py()], STRING), pattern)[0])
        return truth(function(values, pattern))

    return kernel


def _resolve_search(args: tuple[Expr, ...]) -> Resolved:
    found, kind = _two(args)
    if any(isinstance(node, ColumnRef) for node in walk(found[1])):
        raise RefusedError("the text to look for must be a constant", "a string, or a context value such as $word")
    return found, kind


FUNCTIONS = (
    Function(("lower", "lcase"), "lower(text)", "In lower case.", _one, _recase(pc.ascii_lower, str.lower)),
    Function(("upper", "ucase"), "upper(text)", "In upper case.", _one, _recase(pc.ascii_upper, str.upper)),
    Function(
        ("length", "char_length", "character_length", "len"),
        "length(text)",
        "Characters of a string, bytes of a binary.",
        _resolve_length,
        _length,
    ),
    Function(
        ("substring", "substr"),
        "substring(text, position[, length])",
        "A part; positions count from 1, negative ones from the end.",
        _resolve_substring,
        _substring,
    ),
    Function(
        ("trim",),
        "trim(text)",
        "Without spaces at both ends.",
        _one,
        lambda _, args: _map_text(args[0], lambda array: pc.ascii_trim(array, " ")),
    ),
    Function(("concat",), "concat(text, ...)", "Joined; `a || b` is the same.", _resolve_concat, _concat),
    Function(("startswith",), "startswith(text, part)", "Whether it begins so.", _resolve_search, _search("start")),
    Function(("endswith",), "endswith(text, part)", "Whether it ends so.", _resolve_search, _search("end")),
    Function(("contains",), "contains(text, part)", "Whether it occurs.", _resolve_search, _search("any")),
)
