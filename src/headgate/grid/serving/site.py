"""One site of the grid overlay, without I/O: messages in, messages out.

A query is served here as far as its data is here and bandwidth is left; the rest goes to the neighbour closest to its
region (section 4.3), and back on its trail when a way ends, so that it never gets stuck on an irregular partition. When
bandwidth runs out, parts go to sites that hold replicas already, or a loaded region is replicated (section 4.4) and
its queries move there. When queries leave, a replica that takes more bandwidth than it saves goes back to its provider
(section 4.4.3, taken further: not only the last query).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from headgate.grid.dzset import DzSet
from headgate.grid.serving import messages as m
from headgate.grid.serving.holdings import Budget, Holdings
from headgate.grid.serving.motion import Motion, moved
from headgate.grid.serving.partition import Partition
from headgate.grid.serving.placing import Choice, choose, covered, eligible
from headgate.grid.space import Ints

# Of the loaded regions, so many are followed.
_AHEAD = 8

Out = tuple[str | int, m.ToSite | m.ToClient]


@dataclass(slots=True)
class _Placing:
    """A query that waits here for the answer to an offer."""

    query: m.Query
    weights: Ints
    failed: set[tuple[int, int, str]] = field(default_factory=set)
    ticket: int = -1
    choice: Choice | None = None


class SiteCore:
    """The protocol of one site for one stream; `limit` is the depth to which regions are replicated.

    `paper` ranks regions as the paper does (most freed first) instead of by what their stream costs.

    `number` gives fresh numbers for regions and tickets, unique over all sites of the stream.
    """

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
        self._placing: _Placing | None = None
        self._leaving = False
        self._motion = Motion(2 * ahead_s) if ahead_s > 0 else None
        self._unused: dict[int, float] = {}
        self._now = 0.0
        self._promised: Counter[str] = Counter()
        self._out: list[Out] = []

    def handle(self, message: m.ToSite) -> list[Out]:
        """Take one message; the messages that follow from it, each with its receiver (a site, or a query's client)."""
        match message:
            case m.Query():
                self._waiting.append(message)
            case m.Offer():
                self._answer(message)
            case m.Answer():
                self._answered(message)
            case m.Replica():
                self._replica(message)
            case m.Release():
                self._released(message)
            case m.Reparent():
                self._reparented(message)
            case m.Revoke(identity):
                self._revoked(identity)
            case m.Tick(now):
                self._look_ahead(now)
            case m.Expect():
                self._expect(message)
            case m.Cancel(demand):
                self._cancel(demand)
            case m.Announce():
                self._hear(message)
        while self._placing is None and self._waiting:
            self._start(self._waiting.popleft())
        self._announce()
        out, self._out = self._out, []
        return out

    # Queries

    def _start(self, query: m.Query) -> None:
        """Serve what is here (Algorithm 1) and route what is not (Algorithm 2)."""
        served = self.holdings.incoming.serve(query.parts.codes, query.parts.lengths)
        demand = query.parts.demand
        if len(served.miss_codes):
            missing = m.Parts(demand, served.miss_codes, served.miss_lengths)
            weights = demand.weights(self.partition.space, missing.codes, missing.lengths)
            self._route(replace(query, parts=missing.take(np.flatnonzero(weights))))
        if len(served.have_codes):
            parts = m.Parts(demand, served.have_codes, served.have_lengths)
            weights = demand.weights(self.partition.space, parts.codes, parts.lengths)
            wanted = np.flatnonzero(weights)
            if len(wanted) and self._motion is not None:
                self._motion.add(query.at, self.partition.middle(demand.low, demand.high))
            if len(wanted):
                self._placing = _Placing(replace(query, parts=parts.take(wanted)), weights[wanted])
                self._advance()

    def _route(self, query: m.Query) -> None:
        tried = query.tried | {self.site}
        ways = [site for site in self.partition.neighbours[self.site] if site not in tried]
        if not ways:
            self._back(query)
            return
        squares = self.partition.squares_of(query.parts.codes, query.parts.lengths)
        rows = [self.partition.sites.index(site) for site in ways]
        nearest = self.partition.distances[rows][:, squares].argmin(axis=0)
        for i, site in enumerate(ways):
            which = np.flatnonzero(nearest == i)
            if len(which):
                self._send(
                    site, replace(query, parts=query.parts.take(which), tried=tried, trail=(*query.trail, self.site))
                )

    def _back(self, query: m.Query) -> None:
        """This way has ended: return to the site before, or give up when there is none."""
        if not len(query.parts):
            return
        if query.trail:
            before = replace(query, tried=query.tried | {self.site}, trail=query.trail[:-1])
            self._send(query.trail[-1], before)
        else:
            self._send(query.parts.demand.id, m.Refused(query.parts))

    def _advance(self) -> None:
        """Place as much of the query at hand as possible; stays at hand only while an offer is out."""
        placing = self._placing
        assert placing is not None
        self._accept_what_fits(placing)
        self._forward(placing, with_room=True)
        if len(placing.query.parts):
            need = int(placing.weights.sum()) - self.holdings.budget.free
            choice = choose(
                self.holdings,
                self.known,
                need=need,
                limit=self.limit,
                failed=frozenset(placing.failed),
                paper=self.paper,
            )
            if choice is not None:
                placing.ticket, placing.choice = self._number(), choice
                wanted = min(choice.weight, need + choice.cost + self._slack)
                self._send(choice.site, m.Offer(self.site, placing.ticket, choice.code, choice.length, wanted))
                return
        self._forward(placing, with_room=False)
        self._placing = None
        if len(placing.query.parts):
            self._route(placing.query)

    @property
    def _slack(self) -> int:
        return self.holdings.budget.capacity // 100

    def _accept_what_fits(self, placing: _Placing) -> None:
        order = np.argsort(placing.weights, kind="stable")
        fits = order[np.cumsum(placing.weights[order]) <= self.holdings.budget.free]
        if len(fits):
            self._leaving = False
            parts = placing.query.parts.take(fits)
            self.holdings.accept(parts, placing.weights[fits])
            self._send(parts.demand.id, m.Placed(self.site, parts))
            self._keep(placing, np.setdiff1d(np.arange(len(placing.weights)), fits))

    def _keep(self, placing: _Placing, which: Ints) -> None:
        placing.query = replace(placing.query, parts=placing.query.parts.take(which))
        placing.weights = placing.weights[which]

    def _forward(self, placing: _Placing, *, with_room: bool) -> None:
        """Pass parts to sites that hold their data too: those fed from here, and the one that feeds this site."""
        tried = placing.query.tried | {self.site}
        peers = {s.peer for s in self.holdings.sinks.values()}
        for site in sorted(peers - tried, key=lambda name: (-self.known.get(name, 0), name)):
            if not len(placing.query.parts):
                return
            self._pass_on(placing, site, self._covered(placing, site), with_room)
        feeding: dict[str, list[m.Region]] = {}
        for source in self.holdings.sources.values():
            feeding.setdefault(source.peer, []).append(source.region)
        for site in sorted(set(feeding) - tried):
            if len(placing.query.parts):
                self._pass_on(placing, site, self._inside(placing, feeding[site]), with_room)

    def _covered(self, placing: _Placing, site: str) -> Ints:
        parts = placing.query.parts
        sizes = np.int64(1) << (self.partition.space.digits - parts.lengths)
        held = covered(self.holdings.sent_to(site), parts.codes, parts.codes + sizes)
        return np.flatnonzero(held == sizes)

    def _inside(self, placing: _Placing, regions: list[m.Region]) -> Ints:
        parts = placing.query.parts
        inside = np.zeros(len(parts), dtype=bool)
        for region in regions:
            inside |= (parts.lengths >= region.length) & (
                (parts.codes >= region.code) & (parts.codes < region.code + self.holdings.size(region.length))
            )
        return np.flatnonzero(inside)

    def _pass_on(self, placing: _Placing, site: str, which: Ints, with_room: bool) -> None:
        if with_room:
            which = which[np.cumsum(placing.weights[which]) <= self.known.get(site, 0)]
        if not len(which):
            return
        query = placing.query
        self.known[site] = max(0, self.known.get(site, 0) - int(placing.weights[which].sum()))
        tried = query.tried | {self.site}
        self._send(site, replace(query, parts=query.parts.take(which), tried=tried, trail=(*query.trail, self.site)))
        self._keep(placing, np.setdiff1d(np.arange(len(placing.weights)), which))

    # Replication

    def _answer(self, offer: m.Offer) -> None:
        budget = self.holdings.budget
        room = max(0, min(offer.weight, budget.free))
        budget.held += room
        self._promised[offer.sender] += 1
        self._send(offer.sender, m.Answer(self.site, offer.ticket, room, budget.free))

    def _answered(self, answer: m.Answer) -> None:
        self.known[answer.sender] = answer.free
        placing = self._placing
        if placing is None or placing.ticket != answer.ticket or placing.choice is None:
            raise AssertionError("an answer without an offer")
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
            gone, weight = self.holdings.take_inside(choice.code, choice.length, answer.room)
        if weight <= cost:
            self._restore(gone)
            placing.failed.add((choice.code, choice.length, choice.site))
            self._send(choice.site, m.Replica(self.site, None, (), answer.room))
        else:
            self._replicate(choice, cost, gone, answer.room)
        self._advance()

    def _restore(self, taken: tuple[m.Parts, ...]) -> None:
        for parts in taken:
            weights = parts.demand.weights(self.partition.space, parts.codes, parts.lengths)
            self.holdings.accept(parts, weights)

    def _replicate(self, choice: Choice, cost: int, moved: tuple[m.Parts, ...], held: int) -> None:
        region: m.Region | None = None
        replaced: tuple[int, ...] = ()
        if cost:
            inside = self.holdings.sinks_inside(choice.code, choice.length)
            replaced = tuple(key for key in inside if self.holdings.sinks[key].peer == choice.site)
            for identity in replaced:
                self.holdings.stop_sending(identity)
            region = m.Region(self._number(), choice.code, choice.length, self._path(choice.code, choice.length))
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
            self._send(here.demand.id, m.Placed(self.site, here))

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
                moved = m.Region(self._number(), onward.code, onward.length, self._path(onward.code, onward.length))
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

    # Moving crowds

    def _look_ahead(self, now: float) -> None:
        """Ask for replicas where the crowd will be, and give back those that nobody came for."""
        self._now = now
        for identity, since in list(self._unused.items()):
            source = self.holdings.sources.get(identity)
            used = source is not None and self.holdings.clients.weight(source.region.code, source.region.length)
            if source is None or used:
                del self._unused[identity]
            elif since < now - 2 * self.ahead_s:
                del self._unused[identity]
                self._retreat({identity})
        if self._motion is None:
            return
        place = self._motion.predict(now, self.ahead_s)
        busy = self.holdings.budget.free * 2 < self.holdings.budget.capacity
        if place is None or not busy:
            return
        hot = self.holdings.clients.find(limit=self.limit, within=self.holdings.available)
        for code, length in list(zip(hot.codes.tolist(), hot.lengths.tolist(), strict=True))[:_AHEAD]:
            target = moved(self.partition.space, code, length, place)
            if target is not None:
                self._expect(m.Expect(*target))

    def _expect(self, message: m.Expect) -> None:
        """Replicate a region before its crowd comes, if it is here and nobody has it yet; else pass the word on."""
        holdings = self.holdings
        code, length = message.code, message.length
        size = holdings.size(length)
        if not DzSet.from_expressions(self.partition.space, [code], [length]) <= holdings.available:
            tried = message.tried | {self.site}
            ways = [site for site in self.partition.neighbours[self.site] if site not in tried]
            if ways:
                square = self.partition.squares_of(np.array([code]), np.array([length]))[0]
                rows = [self.partition.sites.index(site) for site in ways]
                nearest = ways[int(self.partition.distances[rows, square].argmin())]
                self._send(nearest, m.Expect(code, length, tried))
            return
        start, end = np.array([code]), np.array([code + size])
        if size * 10 > holdings.budget.free or int(covered(holdings.outgoing.regions(), start, end)[0]):
            return
        ways = [
            site for site in self.partition.neighbours[self.site] if eligible(holdings, code, length, site, strict=True)
        ]
        if ways:
            best = max(ways, key=lambda site: (self.known.get(site, 0), site))
            region = m.Region(self._number(), code, length, self._path(code, length))
            holdings.send(best, region)
            self._send(best, m.Replica(self.site, region, (), 0, offered=False))

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
