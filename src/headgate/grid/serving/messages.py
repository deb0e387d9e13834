"""What sites say to each other and to clients while they serve a gridded stream, as plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headgate.grid.decompose import overlaps
from headgate.grid.space import DzSpace, Ints


@dataclass(frozen=True, slots=True)
class Demand:
    """A client's query: a box in finest cells, and what share of each cell's data it takes as `taken / out_of`.

    The share is 1 when every dimension of the query is indexed; an index without the resolutions carries them here.
    """

    id: int
    low: tuple[int, ...]
    high: tuple[int, ...]
    taken: int = 1
    out_of: int = 1

    @property
    def size(self) -> int:
        """Bandwidth of the whole query, in finest cells."""
        return math.prod(b - a for a, b in zip(self.low, self.high, strict=True)) * self.taken // self.out_of

    def weights(self, space: DzSpace, codes: Ints, lengths: Ints) -> Ints:
        """Bandwidth that each part of the query takes, in finest cells."""
        offsets = np.array([0, len(codes)], dtype=np.int64)
        return overlaps(space, offsets, codes, lengths, [self.low], [self.high]) * self.taken // self.out_of


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Parts of one query, as expressions."""

    demand: Demand
    codes: Ints
    lengths: Ints

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, which: Ints) -> Parts:
        """Some of the parts."""
        return Parts(self.demand, self.codes[which], self.lengths[which])


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """Parts that look for a site since `at`. `tried` were asked before; `trail` leads back when a way ends."""

    parts: Parts
    tried: frozenset[str] = frozenset()
    trail: tuple[str, ...] = ()
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ServedRegion:
    """A replicated region: one stream between two sites, with the sites it passes on its way from the owner."""

    id: int
    code: int
    length: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServingOffer:
    """Would you take this region and queries of this weight?"""

    sender: str
    ticket: int
    code: int
    length: int
    weight: int


@dataclass(frozen=True, slots=True)
class ServingAnswer:
    """How much weight the asked site takes; 0 declines. What it takes is held for the asker until it is used."""

    sender: str
    ticket: int
    room: int
    free: int


@dataclass(frozen=True, slots=True, eq=False)
class Replica:
    """The region now flows to you (None when you have it already); these queries are yours.

    `held` gives back what was held for the offer, `replaced` lists smaller regions that the new one includes. A region
    that is sent ahead of its queries was not offered.
    """

    sender: str
    region: ServedRegion | None
    moved: tuple[Parts, ...]
    held: int
    replaced: tuple[int, ...] = ()
    offered: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """I no longer need this region; take over what is left of it: queries, and streams to other sites."""

    sender: str
    region: int
    moved: tuple[Parts, ...] = ()
    onward: tuple[tuple[str, ServedRegion], ...] = ()


@dataclass(frozen=True, slots=True)
class Reparent:
    """Your region comes from somebody else now, under a new number."""

    sender: str
    old: int
    region: ServedRegion


@dataclass(frozen=True, slots=True)
class Revoke:
    """Your region has ended, and nobody feeds it; what you served of it looks for a site again."""

    region: int


@dataclass(frozen=True, slots=True)
class Tick:
    """The time, for a site that looks ahead."""

    now: float


@dataclass(frozen=True, slots=True)
class Expect:
    """A crowd is heading for this region: who has it should replicate it ahead of time."""

    code: int
    length: int
    tried: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Capacity:
    """What this site can carry, in finest cells, as it was last measured."""

    cells: int


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The asked site has not answered an offer in time: go on without it."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """The client no longer wants this query."""

    demand: int


@dataclass(frozen=True, slots=True)
class Announce:
    """A site's free bandwidth, passed on from neighbour to neighbour; a later number replaces an earlier one."""

    site: str
    number: int
    free: int


@dataclass(frozen=True, slots=True, eq=False)
class ServedParts:
    """To the client: this site serves these parts."""

    site: str
    parts: Parts


@dataclass(frozen=True, slots=True, eq=False)
class Left:
    """To the client: this site no longer serves these parts; another has them or says so soon."""

    site: str
    parts: Parts


@dataclass(frozen=True, slots=True, eq=False)
class ServingRefused:
    """To the client: no site can take these parts."""

    parts: Parts


ToSite = (
    Query
    | ServingOffer
    | ServingAnswer
    | Replica
    | Release
    | Reparent
    | Revoke
    | Tick
    | Expect
    | Capacity
    | GaveUp
    | Cancel
    | Announce
)
ToClient = ServedParts | Left | ServingRefused
