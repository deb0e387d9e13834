"""One site of the grid overlay, without I/O: messages in, messages out.

A query is served here as far as its data is here and bandwidth is left; the rest goes to the neighbour closest to its
region (section 4.3), and back on its trail when a way ends, so that it never gets stuck on an irregular partition. When
bandwidth runs out, parts go to sites that hold replicas already, or a loaded region is replicated (section 4.4) and
its queries move there. When queries leave, a replica that takes more bandwidth than it saves goes back to its provider
(section 4.4.3, taken further: not only the last query).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headgate.grid.dzset import DzSet
from headgate.grid.serving import messages as m
from headgate.grid.serving.exchange import Exchange, Out, Placing
from headgate.grid.serving.motion import moved
from headgate.grid.serving.placing import choose, covered, eligible
from headgate.grid.space import Ints

# Of the loaded regions, so many are followed.
_AHEAD = 8
# A site that does not look ahead keeps a replica that serves nobody for so long.
_UNUSED_S = 5.0


class SiteCore(Exchange):
    """The protocol of one site for one stream; `limit` is the depth to which regions are replicated, 0 for never.

    `paper` ranks regions as the paper does (most freed first) instead of by what their stream costs.

    `number` gives fresh numbers for regions and tickets, unique over all sites of the stream.
    """

    def handle(self, message: m.ToSite) -> list[Out]:
        """Take one message; the messages that follow from it, each with its receiver (a site, or a query's client)."""
        self._take(message)
        while self._placing is None and self._waiting:
            self._start(self._waiting.popleft())
        self._announce()
        out, self._out = self._out, []
        return out

    def _take(self, message: m.ToSite) -> None:
        match message:
            case m.Query():
                self._waiting.append(message)
            case m.ServingOffer():
                self._answer(message)
            case m.ServingAnswer():
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
            case m.Capacity(cells):
                self._measured(cells)
            case m.GaveUp(ticket):
                self._without_answer(ticket)
            case m.Cancel(demand):
                self._cancel(demand)
            case m.Announce():
                self._hear(message)

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
                self._placing = Placing(replace(query, parts=parts.take(wanted)), weights[wanted])
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
            self._send(query.parts.demand.id, m.ServingRefused(query.parts))

    def _advance(self) -> None:
        """Place as much of the query at hand as possible; stays at hand only while an offer is out."""
        placing = self._placing
        assert placing is not None
        self._accept_what_fits(placing)
        self._forward(placing, with_room=True)
        if len(placing.query.parts) and self.limit:
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
                self._send(choice.site, m.ServingOffer(self.site, placing.ticket, choice.code, choice.length, wanted))
                return
        self._forward(placing, with_room=False)
        self._placing = None
        if len(placing.query.parts):
            self._route(placing.query)

    def _accept_what_fits(self, placing: Placing) -> None:
        if int(placing.weights.sum()) <= self.holdings.budget.free:
            fits = np.arange(len(placing.weights))
        else:
            order = np.argsort(placing.weights, kind="stable")
            fits = order[np.cumsum(placing.weights[order]) <= self.holdings.budget.free]
        if len(fits):
            self._leaving = False
            parts = placing.query.parts.take(fits)
            self.holdings.accept(parts, placing.weights[fits])
            self._send(parts.demand.id, m.ServedParts(self.site, parts))
            self._without(placing, fits)

    def _without(self, placing: Placing, which: Ints) -> None:
        left = np.ones(len(placing.weights), dtype=bool)
        left[which] = False
        placing.query = replace(placing.query, parts=placing.query.parts.take(np.flatnonzero(left)))
        placing.weights = placing.weights[left]

    def _forward(self, placing: Placing, *, with_room: bool) -> None:
        """Pass parts to sites that hold their data too: those fed from here, and the one that feeds this site."""
        tried = placing.query.tried | {self.site}
        peers = {s.peer for s in self.holdings.sinks.values()}
        for site in sorted(peers - tried, key=lambda name: (-self.known.get(name, 0), name)):
            if not len(placing.query.parts):
                return
            self._pass_on(placing, site, self._covered(placing, site), with_room)
        feeding: dict[str, list[m.ServedRegion]] = {}
        for source in self.holdings.sources.values():
            feeding.setdefault(source.peer, []).append(source.region)
        for site in sorted(set(feeding) - tried):
            if len(placing.query.parts):
                self._pass_on(placing, site, self._inside(placing, feeding[site]), with_room)

    def _covered(self, placing: Placing, site: str) -> Ints:
        parts = placing.query.parts
        sizes = np.int64(1) << (self.partition.space.digits - parts.lengths)
        held = covered(self.holdings.sent_to(site), parts.codes, parts.codes + sizes)
        return np.flatnonzero(held == sizes)

    def _inside(self, placing: Placing, regions: list[m.ServedRegion]) -> Ints:
        parts = placing.query.parts
        inside = np.zeros(len(parts), dtype=bool)
        for region in regions:
            inside |= (parts.lengths >= region.length) & (
                (parts.codes >= region.code) & (parts.codes < region.code + self.holdings.size(region.length))
            )
        return np.flatnonzero(inside)

    def _pass_on(self, placing: Placing, site: str, which: Ints, with_room: bool) -> None:
        if with_room:
            which = which[np.cumsum(placing.weights[which]) <= self.known.get(site, 0)]
        if not len(which):
            return
        query = placing.query
        self.known[site] = max(0, self.known.get(site, 0) - int(placing.weights[which].sum()))
        tried = query.tried | {self.site}
        self._send(site, replace(query, parts=query.parts.take(which), tried=tried, trail=(*query.trail, self.site)))
        self._without(placing, which)

    # Moving crowds

    def _look_ahead(self, now: float) -> None:
        """Ask for replicas where the crowd will be, and give back those that nobody uses."""
        self._now = now
        self._give_back_unused(now)
        if self._motion is None:
            return
        place = self._motion.predict(now, self.ahead_s)
        busy = self.holdings.budget.free * 2 < self.holdings.budget.capacity
        if place is None or not busy or not self.limit:
            return
        hot = self.holdings.clients.find(limit=self.limit, within=self.holdings.available)
        for code, length in list(zip(hot.codes.tolist(), hot.lengths.tolist(), strict=True))[:_AHEAD]:
            target = moved(self.partition.space, code, length, place)
            if target is not None:
                self._expect(m.Expect(*target))

    def _give_back_unused(self, now: float) -> None:
        """Give back every replica that has served nobody for a while, however its readers went.

        Most go back when a reader leaves. Readers also go without leaving: they are moved on when less bandwidth is
        measured, or never come where a crowd was expected.
        """
        holdings = self.holdings
        for identity, source in list(holdings.sources.items()):
            code, length = source.region.code, source.region.length
            if holdings.clients.weight(code, length) or holdings.outgoing.weight(code, length):
                self._unused.pop(identity, None)
            elif self._unused.setdefault(identity, now) < now - (2 * self.ahead_s or _UNUSED_S):
                self._retreat({identity})
        self._unused = {identity: since for identity, since in self._unused.items() if identity in holdings.sources}

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
            region = m.ServedRegion(self._number(), code, length, self._path(code, length))
            holdings.send(best, region)
            self._send(best, m.Replica(self.site, region, (), 0, offered=False))
