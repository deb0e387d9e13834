"""One site's relay as a machine: what comes in, what goes out, what is missing, what is answered, what is kept up.

The walk of a row: `Intakes.follow_root` or `follow_site` gets a message (`Next`) and its version (`NeedTable`),
restores the outputs that it meets first (`Last`), and routes it (`RelayCore.receive`). `Sending.run` takes what is due
from the outputs and appends it (`Append`), fenced by what stands there. A range that is missing is asked for (`Ask`) by
`Gaps`; another site's question (`Asked`) is answered by `RepairService`. Once a second `Upkeep` records, purges
(`Purge`) and reports (`Append`).
"""

from __future__ import annotations

from functools import partial

from headgate.model import Deployment
from headgate.protocol.codec import Codec
from headgate.protocol.kernel import Machine
from headgate.protocol.port import MachinePort
from headgate.protocol.quarantine import Quarantine
from headgate.relay.budget import Budgets
from headgate.relay.gaps import Gaps
from headgate.relay.holds import HeldRanges
from headgate.relay.intake import Intakes
from headgate.relay.output import QueueLimits, limits_of
from headgate.relay.pacing import Pacing
from headgate.relay.repair import RepairService
from headgate.relay.sending import Sending
from headgate.relay.silent_sites import ParentWatch
from headgate.relay.stand_in import StandIn
from headgate.relay.state import SiteState
from headgate.relay.upkeep import Upkeep
from headgate.wire.logs import Logs


class RelayMachine(Machine):
    """The relay of one site. `state` is its own; others may look."""

    def __init__(
        self,
        site: str,
        logs: Logs,
        *,
        max_payload: int = 8 << 20,
        budgets: Budgets | None = None,
        limits: QueueLimits | None = None,
        codec: Codec | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        """`budgets` may be shared by the relays of one process; without them the deployment's bandwidths hold."""
        super().__init__(f"relay {site}")
        port = MachinePort(self, logs, max_payload, codec, quarantine)
        self.state = SiteState(self, port, site, limits)
        self.state.budgets, self.state.alone = budgets, budgets is None
        self.service = logs.repair(site)
        held = HeldRanges(port, site)
        self._gaps = Gaps(self.state, held)
        self._intakes = Intakes(self.state, self._gaps)
        self._sending = Sending(self.state)
        self._upkeep = Upkeep(self.state, held)
        self._watch = ParentWatch(self.state, self._gaps)
        self._pacing = Pacing(self.state)
        port.serve(self.service, RepairService(port, site, self.state.tables, StandIn(self.state, self._gaps)).answer)
        self._following: set[str] = set()
        self.spawn(self._begin(), "start")

    async def _begin(self) -> None:
        """Make the site's logs, learn what is in force, and start everything."""
        state = self.state
        logs = state.port.logs
        for log in (logs.site(state.site), logs.inbox(state.site)):
            await state.insist(partial(state.port.ensure, log))
        snapshot = await state.tables.newest()
        deployment = snapshot.deployment
        state.newest = snapshot
        state.take_incarnations(snapshot)
        state.budgets = state.budgets or Budgets(deployment)
        state.core.limits = limits_of(deployment, state.core.limits)
        await self._gaps.restore()
        self._take_roots(deployment)
        self.spawn(self._intakes.follow_site(), "site log")
        self.spawn(self._follow_head(state.budgets), "head")
        self.spawn(self._sending.run(), "sending")
        self.spawn(self._upkeep.run(), "upkeep")
        self.spawn(self._watch.run(), "watch")
        self.spawn(self._pacing.run(), "pacing")

    def _take_roots(self, deployment: Deployment) -> None:
        """Follow the streams that start here; one that is gone is followed on, as rows may be on their way."""
        state, streams = self.state, deployment.streams
        mine = [name for name, each in streams.items() if each.root == state.site]
        gone = [name for name in state.roots if name not in streams]
        state.roots = (*mine, *gone)
        for stream in state.roots:
            if stream not in self._following:
                self._following.add(stream)
                self.spawn(self._intakes.follow_root(stream), f"root of {stream}")

    async def _follow_head(self, budgets: Budgets) -> None:
        """Keep to bandwidths as they change, to the incarnations of streams, and to streams that begin here."""
        state, place = self.state, 0
        while True:
            place = (await state.port.next(state.port.logs.state, state.port.logs.head, place))[-1].sequence
            snapshot = state.newest = await state.tables.newest()
            state.take_incarnations(snapshot)
            budgets.update(snapshot.deployment)
            self._take_roots(snapshot.deployment)
