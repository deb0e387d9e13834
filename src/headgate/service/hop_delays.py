"""Delays between sites for the live join: as measured where rows flow, else as declared and a little more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headgate.model import Links

Pair = tuple[str, str]
"""Who sends and who receives."""


@dataclass(frozen=True, slots=True)
class Hops:
    """One hop between any two sites, in seconds.

    A link in use has what its two ends measured. One that nobody uses has its declared delay and what links in use have
    above theirs in the mean (publishing, the receiver's log), so that both can be compared.

    >>> hops = Hops(Links(0.02), {("a", "b"): 0.025})
    >>> hops.between("a", "b"), hops.between("b", "a"), round(hops.between("a", "c"), 6)
    (0.025, 0.025, 0.025)
    """

    links: Links = field(default_factory=Links)
    measured: Mapping[Pair, float] = field(default_factory=dict)

    @property
    def above_s(self) -> float:
        """What links in use have above their declared delays, in the mean; never below 0."""
        above = [seen - self.links.between(*pair).delay_s for pair, seen in self.measured.items()]
        return max(sum(above) / len(above), 0.0) if above else 0.0

    def between(self, one: str, other: str) -> float:
        """From one site to another; the way back counts where only that was measured."""
        for pair in ((one, other), (other, one)):
            if pair in self.measured:
                return self.measured[pair]
        return self.links.between(one, other).delay_s + self.above_s

    def mean(self, sites: Sequence[str]) -> float:
        """The mean over all pairs of sites."""
        found = [self.between(one, other) for at, one in enumerate(sites) for other in sites[:at]]
        return sum(found) / len(found) if found else 0.0
