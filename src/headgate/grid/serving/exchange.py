"""The state of a site and what it exchanges with others: offers, replicas, regions given back, free bandwidth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from headgate.grid.dzset import DzSet
from headgate.grid.serving import messages as m
from headgate.grid.serving.holdings import Budget, Holdings
from headgate.grid.serving.motion import Motion
from headgate.grid.serving.partition import Partition
from headgate.grid.serving.placing import Choice, covered, eligible
from headgate.grid.space import Ints

Out = tuple[str | int, m.ToSite | m.ToClient]


@dataclass(slots=True)
class Placing:
    """A query that waits here for the answer to an offer."""

    query: m.Query
    weights: Ints
    failed: set[tuple[int, int, str]] = field(default_factory=set)
    ticket: int = -1
    choice: Choice | None = None


class Exchange(ABC):
    """One site's side of every exchange; what to do with queries is the subclass's."""

    def __init__(
        self,
        site: str,
        partition: Partition,
        budget: Budget,
        number: Callable[[], int],
        *,
        limit: int,
        paper: bool = False,
        ahead_s: float = 0.0,
    ) -> None:
        self.site = site
        self.partition = partition
        self.limit = limit
        self.paper = paper
        self.ahead_s = ahead_s
        self.holdings = Holdings(site, partition, budget)
        self.known: dict[str, int] = {name: budget.capacity for name in partition.sites if name != site}
        self._heard: dict[str, int] = {}
        self._number = number
        self._announced = (0, budget.free)
        self._waiting: deque[m.Query] = deque()
        self._placing: Placing | None = None
        self._leaving = False
        self._motion = Motion(2 * ahead_s) if ahead_s > 0 else None
        self._unused: dict[int, float] = {}
        self._now = 0.0
        self._promised: Counter[str] = Counter()
        self._out: list[Out] = []

    @property
    def offered(self) -> int | None:
        """The ticket of the offer that is out; None where the site waits for no answer."""
        placing = self._placing
        return None if placing is None or placing.choice is None else placing.ticket

    @property
    def _slack(self) -> int:
        return self.holdings.budget.capacity // 100

    @abstractmethod
    def _advance(self) -> None:
        """Go on with the query at hand."""

    # Replication

    def _answer(self, offer: m.ServingOffer) -> None:
        budget = self.holdings.budget
        room = max(0, min(offer.weight, budget.free))
        budget.held += room
        self._promised[offer.sender] += 1
        self._send(offer.sender, m.ServingAnswer(self.site, offer.ticket, room, budget.free))

    def _answered(self, answer: m.ServingAnswer) -> None:
        self.known[answer.sender] = answer.free
        placing = self._placing
        if placing is None or placing.ticket != answer.ticket or placing.choice is None:
            # It came after this site gave the offer up: what is held for it is given back.
            self._send(answer.sender, m.Replica(self.site, None, (), answer.room))
            return
        choice, placing.choice = placing.choice, None
        sent = self.holdings.sent_to(choice.site)
        size = self.holdings.size(choice.length)
        cost = size - int(covered(sent, np.array([choice.code]), np.array([choice.code + size]))[0])
        gone: tuple[m.Parts, ...] = ()
        weight = 0
        region = DzSet.from_expressions(self.partition.space, [choice.code], [choice.length])
        still = region <= self.holdings.available
        if (
            still
            and answer.room > cost
            and eligible(self.holdings, choice.code, choice.length, choice.site, strict=False)
        ):
            gone, weight = self.holdings.take_inside(choice.code, choice.length, answer.room, cut=not self.paper)
        if weight <= cost:
            self._restore(gone)
            placing.failed.add((choice.code, choice.length, choice.site))
            self._send(choice.site, m.Replica(self.site, None, (), answer.room))
        else:
            self._replicate(choice, cost, gone, answer.room)
        self._advance()

    def _without_answer(self, ticket: int) -> None:
        """Take an offer for declined that nobody has answered."""
        placing = self._placing
        if placing is None or placing.ticket != ticket or placing.choice is None:
            return
        choice, placing.choice = placing.choice, None
        self.known[choice.site] = 0
        placing.failed.add((choice.code, choice.length, choice.site))
        self._advance()

    def _restore(self, taken: tuple[m.Parts, ...]) -> None:
        for parts in taken:
            weights = parts.demand.weights(self.partition.space, parts.codes, parts.lengths)
            self.holdings.accept(parts, weights)

    def _replicate(self, choice: Choice, cost: int, moved: tuple[m.Parts, ...], held: int) -> None:
        region: m.ServedRegion | None = None
        replaced: tuple[int, ...] = ()
        if cost:
            inside = self.holdings.sinks_inside(choice.code, choice.length)
            replaced = tuple(key for key in inside if self.holdings.sinks[key].peer == choice.site)
            for identity in replaced:
                self.holdings.stop_sending(identity)
            region = m.ServedRegion(self._number(), choice.code, choice.length, self._path(choice.code, choice.length))
            self.holdings.send(choice.site, region)
        for parts in moved:
            self._send(parts.demand.id, m.Left(self.site, parts))
        self._send(choice.site, m.Replica(self.site, region, moved, held, replaced))

    def _path(self, code: int, length: int) -> tuple[str, ...]:
        """Every site that the region passes on its way through here."""
        passed = dict.fromkeys(s for source in self.holdings.sources_of(code, length) for s in source.region.path)
        return (*passed, self.site)

    def _replica(self, message: m.Replica) -> None:
        holdings = self.holdings
        holdings.budget.held -= message.held
        self._promised[message.sender] -= message.offered
        if message.region is not None:
            holdings.receive(message.sender, message.region)
            if not message.offered:
                self._unused[message.region.id] = self._now
        for identity in message.replaced:
            if identity in holdings.sources:
                holdings.stop_receiving(identity)
        for parts in message.moved:
            self._adopt(parts)
        if self._leaving:
            self._retreat({s.region.id for s in holdings.sources.values() if s.peer == message.sender})

    def _adopt(self, parts: m.Parts) -> None:
        """Serve parts that were moved here; any whose data has gone meanwhile looks for a site again."""
        served = self.holdings.incoming.serve(parts.codes, parts.lengths)
        if len(served.miss_codes):
            self._waiting.append(m.Query(m.Parts(parts.demand, served.miss_codes, served.miss_lengths)))
        here = m.Parts(parts.demand, served.have_codes, served.have_lengths)
        weights = parts.demand.weights(self.partition.space, here.codes, here.lengths)
        if int(weights.sum()) > self.holdings.budget.free:
            self._waiting.append(m.Query(here))
        elif len(here):
            self.holdings.accept(here, weights)
            self._send(here.demand.id, m.ServedParts(self.site, here))

    # Measured bandwidth

    def _measured(self, cells: int) -> None:
        """Keep to what the site can carry now: queries beyond it look for a site again, the latest first."""
        budget = self.holdings.budget
        budget.capacity = cells
        for demand in sorted(self.holdings.slots, reverse=True):
            if budget.free >= 0:
                return
            parts = self.holdings.drop(demand)
            if parts is not None:
                self._send(demand, m.Left(self.site, parts))
                self._waiting.append(m.Query(parts, at=self._now))

    # Removal

    def _cancel(self, demand: int) -> None:
        self._waiting = deque(query for query in self._waiting if query.parts.demand.id != demand)
        parts = self.holdings.drop(demand)
        self._leaving = True
        if parts is not None:
            self._tidy(zip(parts.codes.tolist(), parts.lengths.tolist(), strict=True))

    def _tidy(self, regions: Iterator[tuple[int, int]]) -> None:
        """Give back what a change made needless among the replicas that it touches."""
        touched = {s.region.id for code, length in regions for s in self.holdings.sources_of(code, length)}
        self._retreat(touched)

    def _retreat(self, identities: set[int]) -> None:
        """Give back replicas that take more bandwidth than they save, or whose provider has become mostly idle.

        The second is the retreat when a crowd leaves. What goes back adds at most a quarter of the provider's free
        bandwidth, so that giving back never overloads it and replicas do not swing to and fro.
        """
        for identity in sorted(identities):
            if identity not in self.holdings.sources:
                continue
            source = self.holdings.sources[identity]
            if self._promised[source.peer]:
                continue  # its replica may replace this region, so wait for it
            region = source.region
            load = self.holdings.clients.weight(region.code, region.length)
            load += self.holdings.outgoing.weight(region.code, region.length)
            idle = self.known.get(source.peer, 0)
            spare = idle // 4 if idle * 2 > self.holdings.budget.capacity else 0
            if load <= self.holdings.size(region.length) + spare:
                self.known[source.peer] = idle - max(0, load - self.holdings.size(region.length))
                self._give_back(identity)

    def _give_back(self, identity: int) -> None:
        holdings = self.holdings
        source = holdings.sources[identity]
        code, length = source.region.code, source.region.length
        moved, _ = holdings.take_inside(code, length, holdings.budget.capacity)
        ended = [holdings.stop_sending(key) for key in holdings.sinks_inside(code, length)]
        onward = tuple((stream.peer, stream.region) for stream in ended)
        holdings.stop_receiving(identity)
        for parts in moved:
            self._send(parts.demand.id, m.Left(self.site, parts))
        self._send(source.peer, m.Release(self.site, identity, moved, onward))

    def _released(self, message: m.Release) -> None:
        """Take back a region with what is left of it; it needs no more bandwidth than its stream did.

        A region that is not known here any more (two neighbours gave back at once) leaves its queries to be placed
        like new ones, and its onward streams to be revoked where they cannot be fed.
        """
        holdings = self.holdings
        if message.region in holdings.sinks:
            region = holdings.stop_sending(message.region).region
            touched = [(region.code, region.length)]
        else:
            touched = []
        for site, onward in message.onward:
            cells = DzSet.from_expressions(self.partition.space, [onward.code], [onward.length])
            size = holdings.size(onward.length)
            fits = site != self.site and size <= holdings.budget.free and cells <= holdings.available
            if fits and eligible(holdings, onward.code, onward.length, site, strict=False):
                moved = m.ServedRegion(
                    self._number(), onward.code, onward.length, self._path(onward.code, onward.length)
                )
                holdings.send(site, moved)
                self._send(site, m.Reparent(self.site, onward.id, moved))
            else:
                self._send(site, m.Revoke(onward.id))
        for parts in message.moved:
            self._adopt(parts)
        self._tidy(iter(touched))

    def _reparented(self, message: m.Reparent) -> None:
        if message.old in self.holdings.sources:
            self.holdings.stop_receiving(message.old)
            self.holdings.receive(message.sender, message.region)
        else:
            self._send(message.sender, m.Release(self.site, message.region.id))

    def _revoked(self, identity: int) -> None:
        """Do without a region: parts without data look for a site again, streams without data are revoked in turn."""
        holdings = self.holdings
        if identity not in holdings.sources:
            return
        region = holdings.sources[identity].region
        holdings.stop_receiving(identity)
        moved, _ = holdings.take_inside(region.code, region.length, holdings.budget.capacity)
        for parts in moved:
            self._send(parts.demand.id, m.Left(self.site, parts))
            self._adopt(parts)
        for key in holdings.sinks_inside(region.code, region.length):
            sink = holdings.sinks[key].region
            if not DzSet.from_expressions(self.partition.space, [sink.code], [sink.length]) <= holdings.available:
                self._send(holdings.stop_sending(key).peer, m.Revoke(key))

    # Free bandwidth

    def _hear(self, news: m.Announce) -> None:
        if news.site == self.site or self._heard.get(news.site, -1) >= news.number:
            return
        self._heard[news.site] = news.number
        self.known[news.site] = news.free
        self._tell(news)
        if self._leaving:
            self._retreat({s.region.id for s in self.holdings.sources.values() if s.peer == news.site})

    def _announce(self) -> None:
        number, last = self._announced
        free = self.holdings.budget.free
        if abs(free - last) > max(self.holdings.budget.capacity // 50, last // 4):
            self._announced = (number + 1, free)
            self._tell(m.Announce(self.site, number + 1, free))

    def _tell(self, news: m.Announce) -> None:
        for neighbour in self.partition.neighbours[self.site]:
            self._send(neighbour, news)

    def _send(self, to: str | int, message: m.ToSite | m.ToClient) -> None:
        self._out.append((to, message))
