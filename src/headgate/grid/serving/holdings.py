"""What one site has of one stream: regions that come in, regions that go out, and the queries of its clients.

The three GBD-trees of section 4.5.1, with the bookkeeping that keeps them consistent. A site's bandwidth is one
`Budget`, shared by all streams that it serves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headgate.grid.dzset import DzSet
from headgate.grid.serving.messages import Demand, Parts, ServedRegion
from headgate.grid.serving.partition import Partition
from headgate.grid.space import Ints
from headgate.grid.tree import GbdTree

OWN = -1


@dataclass(slots=True)
class Budget:
    """Bandwidth of a site in finest cells: what there is, what is used, and what is held for answers given."""

    capacity: int
    used: int = 0
    held: int = 0

    @property
    def free(self) -> int:
        """What can still be promised."""
        return self.capacity - self.used - self.held


@dataclass(slots=True)
class _Stream:
    peer: str
    region: ServedRegion
    slot: int


def fitting(weights: Ints, most: int) -> npt.NDArray[np.bool_]:
    """Which of the weights, given largest first, fit into a room: each in turn that fits into what is left.

    >>> fitting(np.array([9, 5, 4, 3, 1]), 8).tolist()
    [False, True, False, True, False]
    """
    found = np.zeros(len(weights), dtype=bool)
    place, room = 0, most
    while place < len(weights):
        place += int(np.searchsorted(-weights[place:], -room))
        sums = np.cumsum(weights[place:])
        count = int(np.searchsorted(sums, room, side="right"))
        found[place : place + count] = True
        room -= int(sums[count - 1]) if count else 0
        place += count
    return found


@dataclass(slots=True)
class Holdings:
    """The state of one site for one stream."""

    site: str
    partition: Partition
    budget: Budget
    incoming: GbdTree = field(init=False)
    outgoing: GbdTree = field(init=False)
    clients: GbdTree = field(init=False)
    sources: dict[int, _Stream] = field(default_factory=dict)
    sinks: dict[int, _Stream] = field(default_factory=dict)
    demands: dict[int, Demand] = field(default_factory=dict)
    slots: dict[int, set[int]] = field(default_factory=dict)
    _available: DzSet | None = None
    _sent: dict[str, DzSet] = field(default_factory=dict)

    def __post_init__(self) -> None:
        space = self.partition.space
        self.incoming, self.outgoing, self.clients = GbdTree(space), GbdTree(space), GbdTree(space)
        codes, lengths = self.partition.cells(self.site).expressions()
        self.incoming.insert(codes, lengths, keys=np.full(len(codes), OWN))

    def size(self, length: int) -> int:
        """Finest cells of an expression of that length: the bandwidth of its stream."""
        return 1 << (self.partition.space.digits - length)

    @property
    def available(self) -> DzSet:
        """Cells that the site can serve: its own and those replicated to it."""
        if self._available is None:
            self._available = self.incoming.regions()
        return self._available

    def sent_to(self, site: str) -> DzSet:
        """Cells that go to another site already."""
        if site not in self._sent:
            regions = [s.region for s in self.sinks.values() if s.peer == site]
            codes, lengths = [r.code for r in regions], [r.length for r in regions]
            self._sent[site] = DzSet.from_expressions(self.partition.space, codes, lengths)
        return self._sent[site]

    def receive(self, peer: str, region: ServedRegion) -> None:
        """A region comes in from another site."""
        slot = self.incoming.insert([region.code], [region.length], keys=[region.id])
        self.sources[region.id] = _Stream(peer, region, int(slot[0]))
        self._available = None

    def stop_receiving(self, identity: int) -> None:
        """A region no longer comes in."""
        self.incoming.remove([self.sources.pop(identity).slot])
        self._available = None

    def send(self, peer: str, region: ServedRegion) -> None:
        """A region goes out to another site."""
        slot = self.outgoing.insert([region.code], [region.length], keys=[region.id])
        self.sinks[region.id] = _Stream(peer, region, int(slot[0]))
        self._sent.pop(peer, None)
        self.budget.used += self.size(region.length)

    def stop_sending(self, identity: int) -> _Stream:
        """A region no longer goes out."""
        stream = self.sinks.pop(identity)
        self.outgoing.remove([stream.slot])
        self._sent.pop(stream.peer, None)
        self.budget.used -= self.size(stream.region.length)
        return stream

    def sinks_inside(self, code: int, length: int) -> list[int]:
        """Numbers of the streams that go out inside a region."""
        slots = self.outgoing.inside(code, length)
        return [int(key) for key in self.outgoing.parts(slots)[3]] if len(slots) else []

    def accept(self, parts: Parts, weights: Ints) -> None:
        """Serve parts of a query."""
        slots = self.clients.insert(parts.codes, parts.lengths, weights, np.full(len(parts), parts.demand.id))
        self.demands[parts.demand.id] = parts.demand
        self.slots.setdefault(parts.demand.id, set()).update(slots.tolist())
        self.budget.used += int(weights.sum())

    def drop(self, demand: int) -> Parts | None:
        """Stop serving a query; what was served of it, if anything."""
        slots = self.slots.pop(demand, None)
        if not slots:
            return None
        return self._take(np.array(sorted(slots), dtype=np.int64))[0]

    def take_inside(self, code: int, length: int, most: int, *, cut: bool = False) -> tuple[tuple[Parts, ...], int]:
        """Stop serving parts inside a region, up to a weight; the parts by query, and their weight.

        With `cut`, parts that are larger than the region are cut, and what lies inside is taken of them too.
        """
        slots = self.clients.inside(code, length)
        weights = self.clients.parts(slots)[2] if len(slots) else np.empty(0, dtype=np.int64)
        order = np.argsort(-weights, kind="stable")
        fits = fitting(weights[order], most)
        chosen = slots[order[fits]]
        total = int(weights[order[fits]].sum())
        taken: list[Parts] = []
        if len(chosen):
            self._forget(chosen)
            taken = self._take(chosen)
        if cut:
            more, weight = self._cut(code, length, most - total)
            taken, total = taken + more, total + weight
        return tuple(taken), total

    def _forget(self, slots: Ints) -> None:
        for slot, demand in zip(slots.tolist(), self.clients.parts(slots)[3].tolist(), strict=True):
            kept = self.slots[demand]
            kept.discard(slot)
            if not kept:
                del self.slots[demand]

    def _cut(self, code: int, length: int, most: int) -> tuple[list[Parts], int]:
        """Take a region out of the parts that contain it, up to a weight; the rest of each part stays."""
        space = self.partition.space
        here = np.array([code]), np.array([length])
        taken, total = [], 0
        for slot in self.clients.above(code, length).tolist():
            single = np.array([slot])
            codes, lengths, _, keys = self.clients.parts(single)
            demand = self.demands[int(keys[0])]
            weight = int(demand.weights(space, *here)[0])
            if not 0 < weight <= most - total:
                continue
            rest = DzSet.from_expressions(space, codes, lengths) - DzSet.from_expressions(space, *here)
            self._forget(single)
            self._take(single)
            left = Parts(demand, *rest.expressions())
            weights = demand.weights(space, left.codes, left.lengths)
            wanted = np.flatnonzero(weights)
            if len(wanted):
                self.accept(left.take(wanted), weights[wanted])
            taken.append(Parts(demand, *here))
            total += weight
        return taken, total

    def _take(self, slots: Ints) -> list[Parts]:
        codes, lengths, weights, keys = self.clients.parts(slots)
        self.clients.remove(slots)
        self.budget.used -= int(weights.sum())
        found = []
        for demand in dict.fromkeys(keys.tolist()):
            which = keys == demand
            found.append(Parts(self.demands[demand], codes[which], lengths[which]))
            if demand not in self.slots:
                del self.demands[demand]
        return found

    def sources_of(self, code: int, length: int) -> list[_Stream]:
        """The streams that bring anything of a region."""
        start, end = code, code + self.size(length)
        return [
            s
            for s in self.sources.values()
            if s.region.code < end and s.region.code + self.size(s.region.length) > start
        ]
