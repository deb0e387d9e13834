"""Telling a parent what its link delivers, so that it sends no more than that.

Only the receiver of a link knows when messages came. While they wait for the link, and for some time after that, it
says so to the parent twice a second, by the service that answers questions about ranges; on a link that is as it is
declared nothing is said. Links whose bandwidth is only measured (`follow`) are spoken of as long as anything comes.
Links between relays of one process are not real, and nothing is said of them.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Final

from headgate.protocol.port import FabricError
from headgate.protocol.records import RangeRequest
from headgate.relay.link_bound import EASY_S
from headgate.relay.meters import LinkMeter
from headgate.relay.state import SiteState

EVERY_S: Final = 0.5
_AFTER_S: Final = 60.0
"""For so long after messages have waited, a parent is told how the link is: so long its bound may have to rise."""
_CAME_S: Final = 1.5
_ANSWER_S: Final = 2.0


class Pacing:
    """What one relay says to its parents about their links."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self._until_s: dict[str, float] = {}
        self._asking: set[str] = set()

    async def run(self) -> None:
        """Speak until cancelled."""
        port = self._state.port
        while True:
            await port.sleep(EVERY_S)
            for parent, meter in self._state.meters.links.items():
                if self._to_say(parent, meter) and parent not in self._asking:
                    self._asking.add(parent)
                    port.machine.spawn(self._say(parent, meter), f"pace of {parent}")

    def _to_say(self, parent: str, meter: LinkMeter) -> bool:
        now = self._state.port.now
        if now - meter.last_s > _CAME_S or not self._state.is_real(parent):
            return False
        if meter.delivery.queue_s >= EASY_S:
            self._until_s[parent] = now + _AFTER_S
        return now < self._until_s.get(parent, 0.0) or self._follows(parent)

    def _follows(self, parent: str) -> bool:
        newest = self._state.newest
        return newest is not None and newest.deployment.links.between(parent, self._state.site).follow

    async def _say(self, parent: str, meter: LinkMeter) -> None:
        """Tell a parent. One that does not answer is told again later."""
        state, port = self._state, self._state.port
        stream = next((each for each in state.current), "")
        pace = astuple(meter.pace(port.now))
        request = RangeRequest(stream=stream, after=0, upto=0, child=state.site, beat=True, pace=pace)
        try:
            await port.request(port.logs.repair(parent), request.encode(), _ANSWER_S)
            state.vital.heard(parent, port.now)
        except FabricError:
            state.totals.failures += 1
        finally:
            self._asking.discard(parent)
