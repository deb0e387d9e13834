"""One site's part of the tuner as a machine: the cores of its trees (`headgate.tuning.protocol`) on a port.

Letters to other sites are requests that are answered at once, so that one that nobody takes counts as lost, as the
protocol allows. Nothing is moved before home has put it in force: the plan of the catalog says where rows travel, and a
core whose parent is another one than the plan's for longer than a maintenance period follows the plan.
"""

from __future__ import annotations

import heapq
from typing import Any, Final

from headgate.protocol.codec import Codec
from headgate.protocol.kernel import Machine, Signal, Task
from headgate.protocol.port import FabricError, MachinePort
from headgate.protocol.quarantine import Quarantine
from headgate.protocol.tuning import (
    AskCommit,
    AskHome,
    CommitWord,
    HomeQuestion,
    HomeWord,
    LetterCounts,
    TellCost,
    TellMoved,
    TuningBrief,
    UnitLetter,
)
from headgate.protocol.tuning_codec import decode_tuning, encode_tuning
from headgate.relay.link_figures import LinkFigures
from headgate.relay.unit_cores import cores_of
from headgate.tuning.protocol.messages import MeasureRequest, Move, TuningMessage
from headgate.tuning.protocol.network import Action, PutInForce, Timer, TuningSend
from headgate.tuning.protocol.site import SiteAgent
from headgate.wire.frame import WireError
from headgate.wire.logs import Logs

_IDLE_S: Final = 2.0
_HOME_S: Final = 10.0
_LETTER_S: Final = 2.0


class UnitMachine(Machine):
    """The cores of one site. They begin when home gives a brief, and anew when the run becomes another one."""

    def __init__(
        self,
        site: str,
        logs: Logs,
        *,
        max_payload: int = 8 << 20,
        codec: Codec | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        super().__init__(f"unit {site}")
        self.port = MachinePort(self, logs, max_payload, codec, quarantine)
        self.site = site
        self.service = logs.tune(site)
        self.port.serve(self.service, self._letter)
        self.brief: TuningBrief | None = None
        self.cores: dict[int, SiteAgent] = {}
        self.counts = LetterCounts()
        self.figures = LinkFigures()
        self._numbers_of: dict[str, int] = {}
        self._zero_s = 0.0
        self._timers_due: list[tuple[float, int, int, tuple[Any, ...]]] = []
        self._serial = 0
        self._timed = Signal(self)
        self._apart: dict[int, int] = {}
        self._carried: dict[int, int] = {}
        self._measuring: dict[int, Task[None]] = {}
        self.spawn(self._follow_home(), "home")
        self.spawn(self._run_timers(), "timers")

    @property
    def now_s(self) -> float:
        """Seconds since the run began, by a clock that never goes back."""
        return self.port.now - self._zero_s

    @property
    def run(self) -> int:
        """The run that this site is in, 0 for none."""
        return 0 if self.brief is None else self.brief.run

    # -- home

    async def _follow_home(self) -> None:
        """Ask home every maintenance period what holds, and keep to it."""
        while True:
            word = await self._ask(AskHome(self.run), HomeWord)
            if word is not None:
                if word.brief is not None or word.run != self.run:
                    await self._begin(word)
                else:
                    await self._keep_to(word.parents)
            await self.port.sleep(_IDLE_S if self.brief is None else self.brief.maintenance_s)

    async def _ask(self, question: HomeQuestion, expected: type[Any]) -> Any:
        try:
            answer = await self.port.request(self.port.logs.tuner(self.site), encode_tuning(question), _HOME_S)
            return decode_tuning(answer, expected) if answer else None
        except (FabricError, WireError):
            self.counts.lost += 1
            return None

    async def _begin(self, word: HomeWord) -> None:
        """Start the cores of a run; without one there are none."""
        brief = self.brief = word.brief
        self.cores, self._timers_due, self._apart, self._carried = {}, [], {}, {}
        if brief is None:
            return
        self._zero_s = self.port.now - (self.port.wall_s - brief.began_s)
        self._numbers_of = {name: number for number, name in enumerate(brief.sites)}
        self.figures.begin(brief)
        self.cores = cores_of(brief, self.figures.between)
        for tree, core in self.cores.items():
            parent = word.parents[tree]
            if parent >= 0:
                await self._measure((parent,))
            if self.brief is brief:
                self._act(tree, core.start(self.now_s, None if parent < 0 else parent))

    async def _keep_to(self, parents: tuple[int, ...]) -> None:
        """Measure the links in use again, and follow the plan where a core has hung elsewhere for a whole period."""
        brief = self.brief
        for tree, core in list(self.cores.items()):
            above, wanted = core.here.parent, parents[tree]
            if above >= 0:
                await self._measure((above,), in_use=True)
            if self.brief is not brief:
                return
            if wanted < 0 or wanted == core.here.parent:
                self._apart.pop(tree, None)
            elif self._apart.get(tree) != wanted:
                self._apart[tree] = wanted
            elif core.wish is None:
                del self._apart[tree]
                await self._measure((wanted,))
                self._act(tree, core.follow(self.now_s, wanted))

    # -- letters

    async def _letter(self, data: bytes) -> bytes:
        """Take a letter of another site; the answer says only that it came."""
        try:
            letter = decode_tuning(data, UnitLetter)
        except WireError:
            self.counts.unreadable += 1
            return b""
        sender = self._numbers_of.get(letter.sender)
        if letter.run == self.run and isinstance(letter.message, TuningMessage) and sender is not None:
            self.spawn(self._give(letter.tree, sender, letter.message), "letter")
        return b""

    async def _give(self, tree: int, sender: int, message: TuningMessage) -> None:
        """Give a core a message; links that it will be asked about are measured before."""
        brief = self.brief
        if isinstance(message, MeasureRequest):
            await self._measure(message.targets)
        elif isinstance(message, Move):
            await self._measure((message.parent,))
        core = self.cores.get(tree)
        if core is None or self.brief is not brief:
            return
        try:
            actions = core.receive(self.now_s, sender, message)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            self.counts.unreadable += 1  # what it says fits nothing that this site knows: as if it had been lost
            return
        self._act(tree, actions)
        self._tell_moved(tree, core)

    async def _send(self, to: int, tree: int, message: TuningMessage | None) -> bool:
        brief = self.brief
        if brief is None or not 0 <= to < len(brief.sites):
            return False
        if to == brief.number and message is not None:
            await self._give(tree, to, message)
            return True
        data = encode_tuning(UnitLetter(brief.run, self.site, tree, message))
        kind = "Ping" if message is None else type(message).__name__
        self.counts.sent += 1
        self.counts.bytes += len(data)
        self.counts.by_type[kind] = self.counts.by_type.get(kind, 0) + 1
        try:
            await self.port.request(self.port.logs.tune(brief.sites[to]), data, max(brief.maintenance_s, _LETTER_S))
        except FabricError:
            self.counts.lost += 1
            return False
        return True

    # -- what cores decide

    def _act(self, tree: int, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, TuningSend):
                other = tree if action.stream is None else action.stream
                self.spawn(self._send(action.to, other, action.message), "send")
            elif isinstance(action, Timer):
                self._serial += 1
                heapq.heappush(self._timers_due, (action.at, self._serial, tree, action.note))
                self._timed.set()
            elif isinstance(action, PutInForce):
                self.spawn(self._put_in_force(tree, action), "commit")

    async def _put_in_force(self, tree: int, action: PutInForce) -> None:
        """Ask home for a change. Where its answer is lost nobody moves, and cores follow the plan if it was changed."""
        brief, offer = self.brief, action.proposal
        asked = AskCommit(
            self.run,
            tree,
            offer.period,
            offer.name,
            action.moves,
            offer.benefit,
            offer.relief,
            offer.after,
            offer.at_random,
        )
        word = await self._ask(asked, CommitWord)
        core = self.cores.get(tree)
        if core is None or self.brief is not brief:
            return
        done = word is not None and word.done
        if done:
            self._carried[tree] = offer.period
        self._act(tree, core.put_in_force(self.now_s, offer.period, done=done))
        self._tell_moved(tree, core)

    def _tell_moved(self, tree: int, core: SiteAgent) -> None:
        """Tell home once when all members of a change have moved."""
        period = self._carried.get(tree)
        if period is not None and (core.round is None or core.round.period != period or not core.round.moving):
            del self._carried[tree]
            self.spawn(self._ask(TellMoved(self.run, tree, period), HomeWord), "moved")

    async def _run_timers(self) -> None:
        while True:
            self._timed.clear()
            due = self._timers_due
            wait_s = due[0][0] - self.now_s if due else None
            if wait_s is None or wait_s > 0:
                await self._timed.wait(wait_s)
                continue
            _, _, tree, note = heapq.heappop(due)
            core = self.cores[tree]
            if core.judges and note[0] in ("optimise", "decide"):
                self.spawn(self._ask(self._cost(core, deciding=note[0] == "decide"), HomeWord), "cost")
            self._act(tree, core.wake(self.now_s, note))

    def _cost(self, core: SiteAgent, *, deciding: bool) -> TellCost:
        here, settings = core.here, core.settings
        missed = [limit.violation(here.known_cost(place + 1)) for place, limit in enumerate(settings.limits)]
        period = int(self.now_s / settings.optimisation_s)
        return TellCost(
            self.run,
            period,
            deciding,
            self.now_s,
            here.known_cost(0),
            tuple(missed),
            here.sites(),
            self.counts.lost,
        )

    # -- measuring

    async def _measure(self, targets: tuple[int, ...], *, in_use: bool = False) -> None:
        """Measure links to some sites, as far as that is due."""
        for each in targets:
            if each not in self._measuring and self.figures.due(each, self.now_s, in_use=in_use):
                self._measuring[each] = self.spawn(self._measure_one(each), "measure", watched=True)
        for task in [self._measuring[each] for each in targets if each in self._measuring]:
            await task  # also one that somebody else began

    async def _measure_one(self, target: int) -> None:
        """Time a few letters there and back; cores hear of a figure that has become another one."""
        waits_s: list[float] = []
        for _ in range(LinkFigures.PINGS):
            began_s = self.port.now
            if await self._send(target, 0, None):
                waits_s.append(self.port.now - began_s)
        self.counts.pings += len(waits_s)
        del self._measuring[target]
        if waits_s and self.figures.note(target, min(waits_s) / 2, self.now_s):
            for core in self.cores.values():
                core.measured[LinkFigures.METRIC, target] = (
                    self.figures.between(LinkFigures.METRIC, target),
                    self.now_s,
                )
                if core.here.parent == target:
                    core.here.changed()
