"""Values as bytes: MessagePack of a closed set of types, as nothing from another host may be trusted.

A value is written with a tag for what it is. What is read can only become one of the types that the codec was made for;
everything else is a `WireError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import msgspec
import numpy as np

from headgate.wire.frame import WireError

_DTYPES: Final = ("<f8", "<i8", "|b1")
_TUPLE, _LIST, _DICT, _SET, _ARRAY, _OTHER, _VALUE = range(7)
_DEEPEST: Final = 24
_PLAIN: Final = bool | int | float | str | bytes


class TaggedCodec:
    """Writes and reads dataclasses of the given types, with tuples, lists, sets, dicts and arrays of numbers in them.

    `what` is how a message is called in errors.
    """

    def __init__(self, types: Sequence[type[Any]], what: str) -> None:
        self._types = tuple(types)
        self._what = what
        self._numbers = {kind: number for number, kind in enumerate(types)}
        self._fields = tuple(tuple(field.name for field in fields(kind)) for kind in types)

    def encode(self, value: Any) -> bytes:
        """A value as bytes."""
        return msgspec.msgpack.encode(self.plain(value))

    def decode(self, data: bytes, expected: type[Any] | tuple[type[Any], ...] = object) -> Any:
        """Read it again; what is of no known type, or not of the expected ones, is a `WireError`."""
        try:
            found = self.rich(msgspec.msgpack.decode(data), 0)
        except Exception as error:
            raise WireError(f"this is no {self._what}: {error or type(error).__name__}") from error
        if not isinstance(found, expected):
            raise WireError(f"a {self._what} is a {type(found).__name__}, which nobody expects here")
        return found

    def plain_other(self, value: Any) -> list[Any] | None:
        """A value of a type that needs a form of its own, None for any other."""
        del value
        return None

    def rich_other(self, parts: list[Any]) -> Any:
        """The value of such a form."""
        raise ValueError(f"a form of {len(parts)} parts that nobody knows")

    def plain(self, value: Any) -> Any:
        """A value as lists, numbers and text."""
        if value is None or isinstance(value, _PLAIN):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            array = np.ascontiguousarray(value).astype(_dtype(value.dtype), copy=False)
            return [_ARRAY, array.dtype.str, list(array.shape), array.tobytes()]
        other = self.plain_other(value)
        if other is not None:
            return [_OTHER, *(self.plain(part) for part in other)]
        if isinstance(value, tuple | list | frozenset):
            tag = _TUPLE if isinstance(value, tuple) else _LIST if isinstance(value, list) else _SET
            return [tag, *(self.plain(each) for each in (sorted(value) if tag == _SET else value))]
        if isinstance(value, dict):
            return [_DICT, *(self.plain(each) for item in value.items() for each in item)]
        number = self._numbers[type(value)]
        return [_VALUE, number, *(self.plain(getattr(value, name)) for name in self._fields[number])]

    def rich(self, value: Any, depth: int) -> Any:
        """The value that lists, numbers and text stand for."""
        if not isinstance(value, list):
            if value is None or isinstance(value, _PLAIN):
                return value
            raise ValueError(f"a {type(value).__name__} without a tag")
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        tag, *rest = value
        if tag == _ARRAY:
            dtype, shape, data = rest
            if dtype not in _DTYPES:
                raise ValueError(f"an array of {dtype!r}")
            return np.frombuffer(data, dtype=dtype).reshape(shape).copy()
        parts = [self.rich(each, depth + 1) for each in (rest[1:] if tag == _VALUE else rest)]
        if tag == _TUPLE:
            return tuple(parts)
        if tag == _LIST:
            return parts
        if tag == _SET:
            return frozenset(parts)
        if tag == _DICT:
            return dict(zip(parts[::2], parts[1::2], strict=True))
        if tag == _OTHER:
            return self.rich_other(parts)
        if tag == _VALUE and len(parts) == len(self._fields[rest[0]]):
            return self._types[rest[0]](*parts)
        raise ValueError(f"the tag {tag!r}")


def _dtype(dtype: np.dtype[Any]) -> str:
    return "|b1" if dtype.kind == "b" else "<i8" if dtype.kind in "iu" else "<f8"
