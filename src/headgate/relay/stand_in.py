"""Serving a site in place of its parent, hearing what a child has measured, and saying how far this site has come.

A site below that takes its parent for dead asks one of the sites above to serve it, again and again. That site then has
an output for it like for a child of its own, within its budgets and policies, from the next block on; what came before
is asked for as any missing range is. When it was not asked for `LEASE_S` it stops. Nothing of this is stored: after a
restart it is asked again.
"""

from __future__ import annotations

from typing import Final

from headgate.protocol.records import RangeRequest
from headgate.relay.gaps import Gaps
from headgate.relay.link_bound import LinkPace
from headgate.relay.state import SiteState

LEASE_S: Final = 4.0


class StandIn:
    """What one relay says of itself to others."""

    def __init__(self, state: SiteState, gaps: Gaps) -> None:
        self._state = state
        self._gaps = gaps

    def reached(self, request: RangeRequest) -> int:
        """How far this site has sent a range to a child; with `beat` how far it has come itself."""
        if not request.beat:
            return self._gaps.sent(request)
        state, stream = self._state, request.stream
        now = state.port.now
        state.stand_ins = {key: until_s for key, until_s in state.stand_ins.items() if until_s > now}
        if request.pace is not None and request.child and state.budgets is not None:
            state.budgets.heard(state.site, request.child, LinkPace(*request.pace), now)
        if request.serve:
            state.stand_ins[stream, request.child] = now + LEASE_S
        return state.core.coverage(stream) or 0
