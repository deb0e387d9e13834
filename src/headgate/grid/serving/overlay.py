"""The overlay in virtual time: every site's core, the messages between them, and the clients' view.

Nothing here is wall clock. A message takes `delay_s` of virtual time from site to site; the order of messages with the
same time is the order they were sent in, so a run is a function of its input.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter

from headgate.grid.serving import messages as m
from headgate.grid.serving.exchange import Out
from headgate.grid.serving.holdings import Budget
from headgate.grid.serving.partition import Partition
from headgate.grid.serving.placement import Placement
from headgate.grid.serving.site import SiteCore


class ServingOverlay:
    """Sites of one stream that exchange messages in virtual time."""

    def __init__(
        self,
        partition: Partition,
        capacity: int | dict[str, int] | dict[str, Budget],
        *,
        limit: int,
        paper: bool = False,
        ahead_s: float = 0.0,
        delay_s: float = 0.02,
    ) -> None:
        self.partition = partition
        self.now = 0.0
        self.delay_s = delay_s
        self.messages: Counter[str] = Counter()
        self.clients: dict[int, Placement] = {}
        numbers = itertools.count()
        self.sites: dict[str, SiteCore] = {}
        for site in partition.sites:
            room = capacity[site] if isinstance(capacity, dict) else capacity
            budget = room if isinstance(room, Budget) else Budget(room)
            self.sites[site] = SiteCore(
                site, partition, budget, lambda: next(numbers), limit=limit, paper=paper, ahead_s=ahead_s
            )
        self._queue: list[tuple[float, int, str | int, m.ToSite | m.ToClient]] = []
        self._order = itertools.count()

    def ask(self, site: str, parts: m.Parts) -> None:
        """A client poses a query, cut into parts, at a site."""
        self.clients[parts.demand.id] = Placement(parts.demand, self.now, parts.demand.size)
        self._post(site, m.Query(parts, at=self.now))

    def cancel(self, demand: int) -> None:
        """A client leaves: it tells the sites that serve it, and the one it asked if nobody does yet."""
        placement = self.clients.pop(demand)
        for site in placement.parts:
            self._post(site, m.Cancel(demand))

    def tick(self) -> None:
        """Tell every site the time, so that those that look ahead can."""
        for site in self.sites:
            self._post(site, m.Tick(self.now))

    def measure(self, site: str, cells: int) -> None:
        """Tell a site what bandwidth it was found to have."""
        self._post(site, m.Capacity(cells))

    def run(self, until: float | None = None) -> None:
        """Deliver messages until none is left, or until a virtual time."""
        while self._queue and (until is None or self._queue[0][0] <= until):
            self.now, _, to, message = heapq.heappop(self._queue)
            if isinstance(to, int):
                self._client(to, message)
                continue
            self.messages[type(message).__name__] += 1
            self._spread(self.sites[to].handle(message))  # type: ignore[arg-type]  # sites get ToSite only
        if until is not None:
            self.now = max(self.now, until)

    def _spread(self, out: list[Out]) -> None:
        for to, message in out:
            if isinstance(to, int):
                self._client(to, message)
            else:
                self._post(to, message)

    def _post(self, to: str | int, message: m.ToSite | m.ToClient) -> None:
        heapq.heappush(self._queue, (self.now + self.delay_s, next(self._order), to, message))

    def _client(self, demand: int, message: m.ToSite | m.ToClient) -> None:
        placement = self.clients.get(demand)
        if placement is not None:
            placement.hear(self.partition.space, message, self.now)
        elif isinstance(message, m.ServedParts):
            self._post(message.site, m.Cancel(demand))

    @property
    def client_load(self) -> int:
        """Bandwidth that goes to clients, over all sites."""
        return sum(core.holdings.clients.total for core in self.sites.values())

    @property
    def replication(self) -> int:
        """Bandwidth that goes from site to site."""
        return sum(core.holdings.outgoing.total for core in self.sites.values())

    @property
    def connections(self) -> int:
        """Streams between sites."""
        return sum(len(core.holdings.sinks) for core in self.sites.values())

    @property
    def capacity(self) -> int:
        """Bandwidth of all sites together."""
        return sum(core.holdings.budget.capacity for core in self.sites.values())

    @property
    def control_messages(self) -> int:
        """Messages that make, change and end connections and place queries; announcements of free bandwidth apart."""
        return sum(count for name, count in self.messages.items() if name not in ("Announce", "Tick"))
