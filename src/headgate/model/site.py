"""Sites and the links between them: where bandwidth is limited and distance costs time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PRIVATE: Final = "private"
"""Stands for the address of a server that no other site can dial, such as one behind a NAT."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place that runs a relay. Bandwidths are bytes per second; None means unknown and is learned while running.

    `nats` is the address of the site's own NATS server, where it is a host of its own; without one its logs are at
    home, where the catalog is.
    """

    name: str
    upload_bytes_per_s: float | None = None
    download_bytes_per_s: float | None = None
    position: tuple[float, float] | None = None
    processing_delay_s: float = 0.0
    nats: str | None = None

    @property
    def is_host(self) -> bool:
        """Whether the site has a server of its own."""
        return self.nats is not None

    @property
    def is_private(self) -> bool:
        """Whether no other site can dial its server, so that it can send nothing to any."""
        return self.nats == PRIVATE

    @property
    def dialled_at(self) -> str | None:
        """Where other sites reach its server; None where they cannot, or it has none."""
        return None if self.is_private else self.nats


@dataclass(frozen=True, slots=True)
class LinkQueue:
    """How much of one stream may wait for a link, in rows, bytes and seconds. None is the relay's own limit."""

    max_rows: int | None = None
    max_bytes: float | None = None
    max_age_s: float | None = None

    def over(self, other: LinkQueue) -> LinkQueue:
        """These limits, and those of the other where there is none."""
        return LinkQueue(
            other.max_rows if self.max_rows is None else self.max_rows,
            other.max_bytes if self.max_bytes is None else self.max_bytes,
            other.max_age_s if self.max_age_s is None else self.max_age_s,
        )


NO_LIMITS = LinkQueue()


@dataclass(frozen=True, slots=True)
class Link:
    """What is known of the path between two sites, the same in both directions; `queue` bounds what waits for it.

    With `follow` the capacity is no more than a first guess: relays send what they measure that the path carries.
    """

    ends: frozenset[str]
    delay_s: float
    capacity_bytes_per_s: float | None = None
    queue: LinkQueue = NO_LIMITS
    follow: bool = False


@dataclass(frozen=True)
class Links:
    """Every pair of sites is linked; pairs that are not listed have the default delay and no capacity of their own.

    `queue` has the limits of links that have none of their own. With `only_listed`, other pairs cannot connect at all.
    """

    default_delay_s: float = 0.0
    pairs: Mapping[frozenset[str], Link] = field(default_factory=dict)
    queue: LinkQueue = NO_LIMITS
    only_listed: bool = False

    def connected(self, one: str, other: str) -> bool:
        """Whether two sites can connect."""
        return not self.only_listed or frozenset((one, other)) in self.pairs

    def between(self, one: str, other: str) -> Link:
        """The link between two sites."""
        ends = frozenset((one, other))
        return self.pairs.get(ends) or Link(ends, self.default_delay_s)

    def queue_between(self, one: str, other: str) -> LinkQueue:
        """The limits of what may wait for the link between two sites."""
        return self.between(one, other).queue.over(self.queue)
