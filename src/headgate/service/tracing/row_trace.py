"""One row's way to one subscription: the stages that it has passed, each from when to when."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from headgate.errors import HeadgateError
from headgate.service.why.answer import Fate


@dataclass(frozen=True, slots=True)
class TraceStage:
    """A part of a row's way: what it is, where it ends, and the times in milliseconds."""

    name: str
    site: str
    begins_ms: float
    ends_ms: float

    @property
    def seconds(self) -> float:
        """How long it took; 0 where the clocks of two hosts say that it took less than nothing."""
        return max(self.ends_ms - self.begins_ms, 0.0) / 1000


@dataclass(frozen=True, slots=True)
class RowTrace:
    """A row, a subscription, what became of it, and its stages in order."""

    stream: str
    seq: int
    subscription: str
    fate: str
    stages: tuple[TraceStage, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """JSON-ready."""
        stages = [
            {"stage": each.name, "site": each.site, "begins_ms": each.begins_ms, "ends_ms": each.ends_ms}
            for each in self.stages
        ]
        found = {"stream": self.stream, "seq": self.seq, "subscription": self.subscription, "fate": self.fate}
        return {**found, "stages": stages, **self.facts}

    def __str__(self) -> str:
        parts = [f"{each.name} {each.seconds:.3f} s" for each in self.stages]
        whole = (self.stages[-1].ends_ms - self.stages[0].begins_ms) / 1000 if self.stages else 0.0
        way = f": {', '.join(parts)}; {max(whole, 0.0):.3f} s in all" if parts else ""
        return f"{self.stream} row {self.seq} to {self.subscription} {self.fate}{way}"


def parse_share(text: str) -> Fraction:
    """A share of rows, written as `1/1000` or `0.001`.

    >>> parse_share("1/1000"), parse_share("0.5")
    (Fraction(1, 1000), Fraction(1, 2))
    """
    try:
        found = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise HeadgateError(f"{text!r} is no share of rows", hint="write 1/1000 or 0.001") from None
    if not 0 < found <= 1:
        raise HeadgateError(f"{text!r} is no share of rows", hint="a share is more than 0 and at most 1")
    return found


def is_sampled(stream: str, seq: int, share: Fraction) -> bool:
    """Whether a row is among those that are followed: the same rows for everybody who asks for the same share.

    >>> sum(is_sampled("fleet", seq, Fraction(1, 100)) for seq in range(100_000))
    1002
    """
    digest = hashlib.blake2b(f"{stream}:{seq}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") * share.denominator < share.numerator << 64


def trace_of(fate: Fate, committed_ms: int, event_time: str | None, acknowledged_ms: int | None) -> RowTrace:
    """The stages of a row by what became of it: from the event to the commit, each link, the inbox, the reader."""
    stages: list[TraceStage] = []
    last_ms = float(committed_ms)
    happened = None if event_time is None or fate.row is None else fate.row.get(event_time)
    if isinstance(happened, datetime):
        known = happened if happened.tzinfo else happened.replace(tzinfo=UTC)
        stages.append(TraceStage("read, match and commit", "root", known.timestamp() * 1000, last_ms))
    for place, stop in enumerate(fate.path):
        inbox = place == len(fate.path) - 1
        if stop.time_ms is None or stop.state != "has":
            continue
        name = f"inbox at {stop.site}" if inbox else f"link {stop.sender} to {stop.site}"
        stages.append(TraceStage(name, stop.site, last_ms, float(stop.time_ms)))
        last_ms = float(stop.time_ms)
    if fate.fate == "delivered" and acknowledged_ms is not None:
        stages.append(TraceStage("acknowledged", "reader", last_ms, float(acknowledged_ms)))
    facts = {key: fate.facts[key] for key in ("at", "for", "given_up") if key in fate.facts}
    return RowTrace(fate.stream, fate.seq or 0, fate.subscription, fate.fate, tuple(stages), facts)
