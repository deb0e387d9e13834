"""Sites and the links between them: where bandwidth is limited and distance costs time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Site:
    """A place that runs a relay. Bandwidths are bytes per second; None means unknown and is learned while running."""

    name: str
    upload_bytes_per_s: float | None = None
    download_bytes_per_s: float | None = None
    position: tuple[float, float] | None = None
    processing_delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """What is known of the path between two sites, the same in both directions."""

    ends: frozenset[str]
    delay_s: float
    capacity_bytes_per_s: float | None = None


@dataclass(frozen=True)
class Links:
    """Every pair of sites is linked; pairs that are not listed have the default delay and no capacity of their own."""

    default_delay_s: float = 0.0
    pairs: Mapping[frozenset[str], Link] = field(default_factory=dict)

    def between(self, one: str, other: str) -> Link:
        """The link between two sites."""
        ends = frozenset((one, other))
        return self.pairs.get(ends) or Link(ends, self.default_delay_s)
