"""Messages of the tuner as bytes; statistics in them are of many shapes (counts, tables of rows, profiles)."""

from __future__ import annotations

from typing import Any, Final

from headgate.protocol import tuning
from headgate.protocol.tagged import TaggedCodec
from headgate.tuning.overlay import PieceSizes
from headgate.tuning.protocol import messages
from headgate.tuning.protocol.rope import Rope
from headgate.tuning.protocol.superpose import TreeChange
from headgate.tuning.states.rows import Table
from headgate.tuning.unit import Facts, Frontier

TYPES: Final[tuple[type[Any], ...]] = (
    tuning.UnitLetter, tuning.AskHome, tuning.HomeWord, tuning.AskCommit, tuning.CommitWord, tuning.TellCost,
    tuning.TellMoved, tuning.TuningBrief, tuning.TreeBrief, PieceSizes, Facts, Frontier, Table, TreeChange,
    messages.SubtreeReport, messages.Surroundings, messages.Beat, messages.SubtreeTotals, messages.Attach,
    messages.Attached, messages.Detach, messages.Leaving, messages.UnitRequest, messages.ReportPart,
    messages.BranchReply, messages.ParentReply, messages.MeasureRequest, messages.MeasureReply, messages.Proposal,
    messages.Decision, messages.Move, messages.Moved,
)  # fmt: skip


class _TuningCodec(TaggedCodec):
    """With ropes, whose lists are long, as their two lists."""

    def plain_other(self, value: Any) -> list[Any] | None:
        return list(value.flat()) if isinstance(value, Rope) else None

    def rich_other(self, parts: list[Any]) -> Any:
        costs, weights = parts
        return Rope(None, (costs, weights), (), -1, len(costs))


_CODEC: Final = _TuningCodec(TYPES, "message of the tuner")


def encode_tuning(value: Any) -> bytes:
    """A message, a question to home or its answer as bytes.

    >>> decode_tuning(encode_tuning(messages.Move(3, 1, 0)))
    Move(period=3, parent=1, old=0)
    """
    return _CODEC.encode(value)


def decode_tuning(data: bytes, expected: type[Any] | tuple[type[Any], ...] = object) -> Any:
    """Read it again; what is no message of these types, or not of the expected ones, is a `WireError`."""
    return _CODEC.decode(data, expected)
