"""Fair draining of several outputs over one budget: deficit round robin in bytes, inside strict priorities."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Account:
    weight: float
    priority: int
    credit: float = 0.0


@dataclass(slots=True)
class FairDrain:
    """Says which output sends next. Outputs that always have something to send get bytes by their weights.

    Each round adds `quantum` times the weight to an output's credit, and a message is paid from it; an output with
    nothing to send loses its credit, so nobody saves up. Over any interval two busy outputs of equal weight differ by
    at most one message and one quantum. A higher priority goes first, always.
    """

    quantum: float = 1500.0
    _accounts: dict[str, _Account] = field(default_factory=dict)
    _ring: list[str] = field(default_factory=list)
    _at: int = 0
    _granted: bool = False

    def add(self, name: str, weight: float = 1.0, priority: int = 0) -> None:
        """Let an output take part; one that does gets another weight and priority and keeps its credit."""
        if weight <= 0:
            raise ValueError(f"the weight of {name!r} must be more than 0")
        known = self._accounts.get(name)
        if known is None:
            self._ring.append(name)
            self._accounts[name] = _Account(weight, priority)
        else:
            known.weight, known.priority = weight, priority

    def remove(self, name: str) -> None:
        """Forget an output."""
        del self._accounts[name]
        index = self._ring.index(name)
        self._ring.remove(name)
        if index == self._at:
            self._granted = False
        elif index < self._at:
            self._at -= 1
        self._at %= max(1, len(self._ring))

    def charge(self, name: str, size: float) -> None:
        """Take more from an output's credit: what a message was larger than said. Less than 0 gives it back."""
        if name in self._accounts:
            self._accounts[name].credit -= size

    def next(self, waiting: Mapping[str, float], held: Collection[str] = ()) -> str | None:
        """The output that sends next, given the size of the next message of each output that has one; it is charged.

        `held` are outputs that have something to send and may not do so now: they keep their credit.

        >>> drain = FairDrain(quantum=100)
        >>> drain.add("a"), drain.add("b")
        (None, None)
        >>> [drain.next({"a": 100, "b": 50}) for _ in range(6)]
        ['a', 'b', 'b', 'a', 'b', 'b']
        """
        for name, account in self._accounts.items():
            if name not in waiting and name not in held:
                account.credit = min(account.credit, 0.0)
        if not waiting:
            return None
        top = max(self._accounts[name].priority for name in waiting)
        busy = {name for name in waiting if self._accounts[name].priority == top}
        found = self._round(busy, waiting)
        while found is None:
            rounds = min(self._rounds(name, waiting[name]) for name in busy) - 1
            for name in busy:
                self._accounts[name].credit += max(0, rounds) * self.quantum * self._accounts[name].weight
            found = self._round(busy, waiting)
        self._accounts[found].credit -= waiting[found]
        return found

    def _round(self, busy: set[str], waiting: Mapping[str, float]) -> str | None:
        """One turn of the ring from where it stands: the first output whose credit pays for its message."""
        for _ in range(len(self._ring) + 1):
            name = self._ring[self._at]
            if name in busy:
                account = self._accounts[name]
                if not self._granted:
                    account.credit += self.quantum * account.weight
                    self._granted = True
                if account.credit >= waiting[name]:
                    return name
            self._at = (self._at + 1) % len(self._ring)
            self._granted = False
        return None

    def _rounds(self, name: str, size: float) -> int:
        account = self._accounts[name]
        return math.ceil((size - account.credit) / (self.quantum * account.weight))
