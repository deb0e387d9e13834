"""What a relay measures of itself and of its links, for the tuner: CPU per block, and the latency of links in use.

A link's latency is taken in two parts, each with one clock, so that clocks of sites need not agree: the sender times
its publication and takes half of the way there and back, the receiver times a message from the site log to its hands.
Both keep the least of the last second, which a queue in the way does not blur.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class Least:
    """The least value by name since the last report; what was not seen since then keeps its last one."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}
        self._seen: dict[str, float] = {}

    def note(self, name: str, value: float) -> None:
        """One measurement."""
        self._seen[name] = min(value, self._seen.get(name, value))

    def report(self) -> dict[str, float]:
        """What is known now; a new window begins."""
        self._known |= self._seen
        self._seen = {}
        return {name: round(value, 6) for name, value in self._known.items()}


@dataclass(slots=True)
class Meters:
    """One relay's measurements: blocks since the start, and the latency parts of links by neighbour, in seconds."""

    blocks: int = 0
    sent: Least = field(default_factory=Least)
    arrived: Least = field(default_factory=Least)
