"""Messages of the tuner as bytes: MessagePack of a closed set of types, as nothing from another host may be trusted.

Statistics are of many shapes (counts, tables of rows, profiles), so a value is written with a tag for what it is. What
is read can only become one of the types named here; everything else is a `WireError`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import msgspec
import numpy as np

from headgate.protocol import tuning
from headgate.tuning.overlay import PieceSizes
from headgate.tuning.protocol import messages
from headgate.tuning.protocol.rope import Rope
from headgate.tuning.protocol.superpose import TreeChange
from headgate.tuning.states.rows import Table
from headgate.tuning.unit import Facts, Frontier
from headgate.wire.frame import WireError

TYPES: Final[tuple[type[Any], ...]] = (
    tuning.UnitLetter, tuning.AskHome, tuning.HomeWord, tuning.AskCommit, tuning.CommitWord, tuning.TellCost,
    tuning.TellMoved, tuning.TuningBrief, tuning.TreeBrief, PieceSizes, Facts, Frontier, Table, TreeChange,
    messages.SubtreeReport, messages.Surroundings, messages.Beat, messages.SubtreeTotals, messages.Attach,
    messages.Attached, messages.Detach, messages.Leaving, messages.UnitRequest, messages.ReportPart,
    messages.BranchReply, messages.ParentReply, messages.MeasureRequest, messages.MeasureReply, messages.Proposal,
    messages.Decision, messages.Move, messages.Moved,
)  # fmt: skip
_NUMBERS: Final = {kind: number for number, kind in enumerate(TYPES)}
_FIELDS: Final = tuple(tuple(field.name for field in fields(kind)) for kind in TYPES)
_DTYPES: Final = ("<f8", "<i8", "|b1")
_TUPLE, _LIST, _DICT, _SET, _ARRAY, _ROPE, _VALUE = range(7)
_DEEPEST: Final = 24


def encode_tuning(value: Any) -> bytes:
    """A message, a question to home or its answer as bytes.

    >>> decode_tuning(encode_tuning(messages.Move(3, 1, 0)))
    Move(period=3, parent=1, old=0)
    """
    return msgspec.msgpack.encode(_plain(value))


def decode_tuning(data: bytes, expected: type[Any] | tuple[type[Any], ...] = object) -> Any:
    """Read it again; what is no message of these types, or not of the expected ones, is a `WireError`."""
    try:
        found = _rich(msgspec.msgpack.decode(data), 0)
    except Exception as error:
        raise WireError(f"this is no message of the tuner: {error or type(error).__name__}") from error
    if not isinstance(found, expected):
        raise WireError(f"a message of the tuner is a {type(found).__name__}, which nobody expects here")
    return found


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value).astype(_dtype(value.dtype), copy=False)
        return [_ARRAY, array.dtype.str, list(array.shape), array.tobytes()]
    if isinstance(value, Rope):
        return [_ROPE, *(_plain(part) for part in value.flat())]
    if isinstance(value, tuple | list | frozenset):
        tag = _TUPLE if isinstance(value, tuple) else _LIST if isinstance(value, list) else _SET
        return [tag, *(_plain(each) for each in (sorted(value) if tag == _SET else value))]
    if isinstance(value, dict):
        return [_DICT, *(_plain(each) for item in value.items() for each in item)]
    number = _NUMBERS[type(value)]
    return [_VALUE, number, *(_plain(getattr(value, name)) for name in _FIELDS[number])]


def _dtype(dtype: np.dtype[Any]) -> str:
    return "|b1" if dtype.kind == "b" else "<i8" if dtype.kind in "iu" else "<f8"


def _rich(value: Any, depth: int) -> Any:
    if not isinstance(value, list):
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise ValueError(f"a {type(value).__name__} without a tag")
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    tag, *rest = value
    if tag == _ARRAY:
        dtype, shape, data = rest
        if dtype not in _DTYPES:
            raise ValueError(f"an array of {dtype!r}")
        return np.frombuffer(data, dtype=dtype).reshape(shape)
    parts = [_rich(each, depth + 1) for each in (rest[1:] if tag == _VALUE else rest)]
    if tag == _TUPLE:
        return tuple(parts)
    if tag == _LIST:
        return parts
    if tag == _SET:
        return frozenset(parts)
    if tag == _DICT:
        return dict(zip(parts[::2], parts[1::2], strict=True))
    if tag == _ROPE:
        costs, weights = parts
        return Rope(None, (costs, weights), (), -1, len(costs))
    if tag == _VALUE and len(parts) == len(_FIELDS[rest[0]]):
        return TYPES[rest[0]](*parts)
    raise ValueError(f"the tag {tag!r}")
