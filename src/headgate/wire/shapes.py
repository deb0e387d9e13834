"""What a stored JSON document must look like, as data: so that garbage is refused where it is read and not where used.

A shape is a type, a tuple of types (None for null), a list with the shape of its items, or a dict. A dict with the key
`EACH` gives the shape of every value; otherwise it names keys, and one that ends in ``?`` may be missing. What a shape
does not name is not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.wire.frame import WireError

EACH: Final = "*"
NUMBER: Final = (int, float)


def check_shape(value: Any, shape: Any, path: str = "") -> None:
    """Refuse a value that does not fit, and say where.

    >>> check_shape({"rows": {"a": 1}, "more": ""}, {"rows": {EACH: int}, "state?": str})
    >>> check_shape({"rows": {"a": "x"}}, {"rows": {EACH: int}})
    Traceback (most recent call last):
        ...
    headgate.wire.frame.WireError: 'rows.a' should be int, found 'x'
    """
    if isinstance(shape, dict):
        _check_object(value, shape, path)
    elif isinstance(shape, list):
        _expect(isinstance(value, list), value, "a list", path)
        for number, item in enumerate(value):
            check_shape(item, shape[0], f"{path}[{number}]")
    else:
        allowed = shape if isinstance(shape, tuple) else (shape,)
        fits = any(value is None if kind is None else _is(value, kind) for kind in allowed)
        _expect(fits, value, " or ".join("null" if kind is None else kind.__name__ for kind in allowed), path)


def _check_object(value: Any, shape: Mapping[str, Any], path: str) -> None:
    _expect(isinstance(value, dict), value, "an object", path)
    if EACH in shape:
        for name, item in value.items():
            check_shape(item, shape[EACH], _under(path, name))
        return
    for key, wanted in shape.items():
        name = key.removesuffix("?")
        if name in value:
            check_shape(value[name], wanted, _under(path, name))
        elif name == key:
            raise WireError(f"{_under(path, name)!r} is missing")


def _is(value: Any, kind: type) -> bool:
    """Whether a value is of a type; a truth value is no number."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _expect(fits: bool, value: Any, what: str, path: str) -> None:
    if not fits:
        raise WireError(f"{path or 'it'!r} should be {what}, found {value!r:.40}")
