"""What a controller believes that work costs: set by the administrator, or learned while running.

Believed and true costs are kept apart (the paper's printed constants do not reproduce its own figures): methods only
ever see what is believed, the engine takes what it takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds for a message and an update, alone and in a batch. The paper's: 1850 and 80 microseconds, alone."""

    message_s: float
    update_s: float
    batched_message_s: float
    batched_update_s: float

    @classmethod
    def alone(cls, message_s: float, update_s: float, speed_up: float = 1.0) -> Costs:
        """Costs of an engine that is so many times faster on batches."""
        return cls(message_s, update_s, message_s / speed_up, update_s / speed_up)

    def work(self, messages: int, updates: int, *, batched: bool = False) -> float:
        """Seconds for so many of both.

        >>> Costs.alone(0.002, 0.0001, speed_up=10).work(10, 100)
        0.03
        """
        if batched:
            return messages * self.batched_message_s + updates * self.batched_update_s
        return messages * self.message_s + updates * self.update_s


@dataclass(slots=True)
class _Sums:
    """Seconds and counts, both forgotten at the same pace: large pieces of work weigh as much as they are."""

    seconds: float
    count: float

    def see(self, seconds: float, count: int, weight: float) -> None:
        self.seconds += seconds - weight * self.seconds
        self.count += count - weight * self.count


@dataclass(slots=True)
class LearnedCosts:
    """Beliefs that follow what was measured. `headroom` keeps them a close upper bound."""

    start: Costs
    weight: float = 0.02
    headroom: float = 1.1
    _seen: dict[tuple[str, bool], _Sums] = field(default_factory=dict)

    def see(self, kind: str, count: int, seconds: float, *, batched: bool) -> None:
        """Take in that so many messages or updates took so long."""
        if count <= 0:
            return
        known = self._seen.get((kind, batched))
        if known is None:
            self._seen[kind, batched] = _Sums(seconds, count)
        else:
            known.see(seconds, count, self.weight)

    def _belief(self, kind: str, batched: bool, otherwise: float) -> float:
        known = self._seen.get((kind, batched))
        return otherwise if known is None else self.headroom * known.seconds / known.count

    @property
    def current(self) -> Costs:
        """What is believed now; what was never measured is as it was set."""
        start = self.start
        return Costs(
            self._belief("message", False, start.message_s),
            self._belief("update", False, start.update_s),
            self._belief("message", True, start.batched_message_s),
            self._belief("update", True, start.batched_update_s),
        )


def believed(costs: Costs | LearnedCosts) -> Costs:
    """The costs to plan with."""
    return costs.current if isinstance(costs, LearnedCosts) else costs
