"""What the kernel knows of a site's links, and questions on links that nobody uses.

A link is a connection from the receiver to the server of the sender. Its receiver reports where that connection is and
its round trip; its sender reports, by the address of the other end, what its server's connections sent again in the
last minute. `headgate status` puts the two together. While rows flow, nothing is sent for this. A link that carried
nothing for ten seconds is asked for an answer of a few bytes (NATS' PING), once in ten seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from headgate.diagnostics import noted, site_log
from headgate.fabric import Fabric, FabricError
from headgate.fabric.placed import HostFabric
from headgate.fabric.tcp_figures import ConnectionFigures, connections_at
from headgate.protocol.reports import LinksReport, LinkUp, PeerFigures
from headgate.relay.courier import HOME, Couriers

EVERY_S: Final = 5.0
IDLE_S: Final = 10.0
"""A link that carried nothing for so long is asked for an answer, as often."""
_ANSWER_S: Final = 3.0
_WINDOW: Final = 12  # looks: a minute
_MOST: Final = 256


@dataclass(slots=True)
class ProbedLink:
    """One link of a receiver while nobody uses it: when it is to be asked, and what came of it."""

    probes: int = 0
    unanswered: int = 0
    round_trip_s: float | None = None
    carried: int = 0
    carried_s: float = 0.0
    asked_s: float = 0.0

    def due(self, carried: int, now: float) -> bool:
        """Whether to ask, given how many messages the link has carried by now."""
        if carried != self.carried or not self.carried_s:
            self.carried, self.carried_s = carried, now
        return now - max(self.carried_s, self.asked_s) >= IDLE_S

    def answered(self, took_s: float | None, now: float) -> None:
        """A question was answered after so long, or not at all."""
        self.probes += 1
        self.asked_s = now
        self.unanswered += took_s is None
        self.round_trip_s = self.round_trip_s if took_s is None else took_s


@dataclass(slots=True)
class ResentShare:
    """Of each connection of a sender, the share of bytes that it sent again in the last minute; at first, ever.

    >>> share = ResentShare()
    >>> one, later = ConnectionFigures(0.1, 0.1, 1000, 50), ConnectionFigures(0.1, 0.1, 3000, 70)
    >>> [share.note({"a": each})["a"].resent for each in (one, later)]
    [0.05, 0.01]
    """

    looks: deque[dict[str, ConnectionFigures]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def note(self, now: dict[str, ConnectionFigures]) -> dict[str, PeerFigures]:
        """Take in the figures of all connections; what is reported of them."""
        self.looks.append(now)
        most = sorted(now, key=lambda each: -now[each].sent_bytes)[:_MOST]
        return {address: self._of(address, now[address]) for address in most}

    def _of(self, address: str, now: ConnectionFigures) -> PeerFigures:
        known = [each[address] for each in self.looks if address in each]
        before = known[0] if len(known) > 1 else ConnectionFigures(0.0, 0.0, 0, 0)
        sent = now.sent_bytes - before.sent_bytes
        resent = round((now.resent_bytes - before.resent_bytes) / sent, 6) if sent > 0 else None
        return PeerFigures(
            round_trip_s=now.round_trip_s,
            least_round_trip_s=now.least_round_trip_s,
            resent=resent,
            bytes=now.sent_bytes,
        )


class ConnectionWatch:
    """Reports on the links into and out of one site. `run` works until cancelled."""

    def __init__(self, fabric: Fabric, site: str, couriers: Couriers) -> None:
        self._fabric, self._site, self._couriers = fabric, site, couriers
        self._probed: dict[str, ProbedLink] = {}
        self._resent = ResentShare()

    async def run(self) -> None:
        """Look every five seconds, where any link leads from one server to another."""
        home = self._fabric.home if isinstance(self._fabric, HostFabric) else self._fabric
        while True:
            await asyncio.sleep(EVERY_S)
            with noted(site_log(self._site), "what is known of links is reported later", FabricError):
                snapshot = await self._couriers.tables.newest()
                if any(each.is_host for each in snapshot.deployment.sites.values()):
                    report = await self._look()
                    await home.publish(home.logs.stats("links", self._site), report.encode())

    async def _look(self) -> LinksReport:
        above = {place or HOME: await self._above(place, source) for place, source in self._couriers.servers.items()}
        server = self._fabric.own if isinstance(self._fabric, HostFabric) else self._fabric
        below = self._resent.note(connections_at(server.port))
        return LinksReport(site=self._site, time_ms=int(time.time() * 1000), above=above, below=below)

    async def _above(self, place: str, source: Fabric) -> LinkUp:
        """A link into this site; one that is idle is asked."""
        link = self._probed.setdefault(place, ProbedLink())
        if link.due(self._couriers.carried.get(place, 0), time.monotonic()):
            took_s = await source.ping(_ANSWER_S)
            link.answered(took_s, time.monotonic())
        known = source.figures
        return LinkUp(
            address=source.local_address,
            round_trip_s=link.round_trip_s if known is None else known.round_trip_s,
            least_round_trip_s=None if known is None else known.least_round_trip_s,
            idle_s=round(time.monotonic() - link.carried_s, 1),
            probes=link.probes,
            unanswered=link.unanswered,
        )
