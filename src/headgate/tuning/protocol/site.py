"""A site's core: its upkeep, and its part in optimisation as an owner, as a member and, at the root, as the judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from headgate.tuning.protocol import optimiser
from headgate.tuning.protocol.decide import choose, joins
from headgate.tuning.protocol.host import Station
from headgate.tuning.protocol.messages import (
    BranchReply,
    Decision,
    MeasureReply,
    MeasureRequest,
    Move,
    Moved,
    ParentReply,
    Proposal,
    ReportPart,
    UnitRequest,
)
from headgate.tuning.protocol.neighbourhood import ROOT
from headgate.tuning.protocol.network import Action, Probe, PutInForce, Timer, TuningSend
from headgate.tuning.protocol.optimiser import Round
from headgate.tuning.protocol.settings import TuningSettings
from headgate.tuning.protocol.upkeep import SiteUpkeep
from headgate.tuning.states import Extreme
from headgate.tuning.steps import order_moves
from headgate.tuning.unit import Facts

TRIES = 4
REMEMBER_PERIODS = 10


class SiteAgent(SiteUpkeep):
    """One site in one tree. `proposals` and `applied` fill at the judge only: the root, or of several trees one's."""

    def __init__(
        self,
        number: int,
        facts: Facts,
        weights: tuple[int, ...],
        settings: TuningSettings,
        measure: Callable[[str, int], float],
        *,
        seed: int = 0,
        station: Station | None = None,
    ) -> None:
        super().__init__(number, facts, weights, settings, measure, seed=seed, station=station)
        self.round: Round | None = None
        self.asked: dict[tuple[int, int], tuple[int, set[int], list[ReportPart]]] = {}
        self.proposals: list[Proposal] = []
        self.applied: list[tuple[float, Proposal]] = []

    def wake(self, now: float, note: tuple[Any, ...]) -> list[Action]:
        """React to a timer: of a period, of an answer that is overdue, or of the upkeep."""
        self.now = now
        if note[0] == "optimise":
            return self._optimise()
        if note[0] == "decide":
            return self._decide()
        if note[0] == "ask":
            return self._ask_again(note[1])
        if note[0] == "move":
            return self._next_move(again=True)
        return super().wake(now, note)

    # -- optimisation: the owner

    def _optimise(self) -> list[Action]:
        settings, here = self.settings, self.here
        period = round(self.now / settings.optimisation_s)
        actions: list[Action] = [Timer((period + 1) * settings.optimisation_s, ("optimise",))]
        self.round, self.asked = None, {}
        if self.judges:
            self.proposals = []
            actions.append(Timer(self.now + settings.optimisation_s / 2, ("decide",)))
        elif here.surroundings is None and here.parent != ROOT:
            return actions
        if not here.children or self.wish is not None or not self._critical():
            return actions
        waiting = set(here.children)
        if here.parent >= 0:
            waiting.add(here.parent)
        self.round = Round(period, waiting)
        return [*actions, *self._ask(self.round)]

    @property
    def judges(self) -> bool:
        """Whether this core decides: at the root, and of several trees at the one that all agreed on."""
        if self.station is None:
            return self.here.parent == ROOT
        return self.station.judge == (self.station.stream, self.number)

    def _ask(self, state: Round) -> list[Action]:
        request = UnitRequest(state.period, self.settings.levels - 2)
        targets = optimiser.to_measure(state, self.here) if state.measuring else {}
        return [
            *(TuningSend(site, request) for site in sorted(state.waiting)),
            *(TuningSend(site, MeasureRequest(state.period, targets[site])) for site in sorted(state.measuring)),
            Timer(self.now + self.settings.maintenance_s / 2, ("ask", state.period)),
        ]

    def _ask_again(self, period: int) -> list[Action]:
        """Answers can be lost: ask those that are missing a few times, then let the period pass."""
        state = self.round
        if state is None or state.period != period or not (state.waiting or state.measuring):
            return []
        state.tries += 1
        return self._ask(state) if state.tries <= TRIES else []

    def _critical(self) -> bool:
        """Whether this unit can reach a site that sets the system cost; anything but a bottleneck always can."""
        here = self.here
        algebra, compiled = here.algebras[0], here.costs[0]
        by_path = all(term.kind == "path" for term in compiled.terms)
        if (
            not isinstance(algebra, Extreme)
            or not by_path
            or self.settings.mode != "bottleneck"
            or here.settings.limits
        ):
            return True
        local = here.local()
        prefix = here.prefix(local)
        own = here.own_result(0, prefix, here.fixed(local))
        inside = algebra.merge([own, algebra.settle(here.frontier(0).state, prefix[0])])
        outside = here.outside(0)
        return algebra.pick((inside, outside)) == inside or bool(np.isclose(inside, outside))

    def _on_unitrequest(self, sender: int, message: UnitRequest) -> list[Action]:
        here = self.here
        if sender in here.children:
            outsides = tuple(here.outside(index) for index in range(len(here.costs)))
            numbers = here.surroundings.numbers if here.surroundings else 0
            part = here.part(without=[sender])
            return [TuningSend(sender, ParentReply(message.period, part, here.parent, here.above(), outsides, numbers))]
        if sender != here.parent:
            return []
        if message.depth <= 0 or not here.children:
            return [TuningSend(sender, BranchReply(message.period, (here.part(),)))]
        mine = here.part(without=here.children)
        if message.depth == 1:
            below = tuple(here.child_part(site) for site in here.children)
            return [TuningSend(sender, BranchReply(message.period, (mine, *below)))]
        self.asked[sender, message.period] = (sender, set(here.children), [mine])
        return [TuningSend(child, UnitRequest(message.period, message.depth - 1)) for child in here.children]

    def _on_branchreply(self, sender: int, message: BranchReply) -> list[Action]:
        forwarded = self.asked.get((self.here.parent, message.period))
        if forwarded is not None and sender in forwarded[1]:
            asker, missing, parts = forwarded
            missing.discard(sender)
            parts.extend(message.parts)
            return [] if missing else [TuningSend(asker, BranchReply(message.period, tuple(parts)))]
        if self.round is None or self.round.period != message.period:
            return []
        if sender not in self.round.waiting:
            return []
        optimiser.take_branch(self.round, sender, message)
        return self._ready()

    def _on_parentreply(self, sender: int, message: ParentReply) -> list[Action]:
        if self.round is None or self.round.period != message.period:
            return []
        if sender not in self.round.waiting:
            return []
        optimiser.take_parent(self.round, sender, message)
        return self._ready()

    def _ready(self) -> list[Action]:
        state = self.round
        if state is None or state.waiting:
            return []
        optimiser.assemble(state, self.here)
        if not state.found:
            return []
        wanted = optimiser.to_measure(state, self.here)
        if not wanted:
            return self._propose()
        state.measuring = set(wanted)
        return [TuningSend(site, MeasureRequest(state.period, targets)) for site, targets in sorted(wanted.items())]

    def _on_measurerequest(self, sender: int, message: MeasureRequest) -> list[Action]:
        names = optimiser.link_metrics(self.here)
        actions: list[Action] = []
        horizon = self.now - REMEMBER_PERIODS * self.settings.optimisation_s
        for target in message.targets:
            known = self.measured.get((names[0], target))
            if known is None or known[1] < horizon:
                actions.append(Probe(target))
                for name in names:
                    self.measured[name, target] = (self.probe(name, target), self.now)
        values = {(name, target): self.measured[name, target][0] for target in message.targets for name in names}
        return [*actions, TuningSend(sender, MeasureReply(message.period, values))]

    def _on_measurereply(self, sender: int, message: MeasureReply) -> list[Action]:
        state = self.round
        if state is None or state.period != message.period:
            return []
        if sender not in state.measuring:
            return []
        optimiser.take_links(state, sender, message)
        return [] if state.measuring else self._propose()

    def _propose(self) -> list[Action]:
        assert self.round is not None
        offers = optimiser.propose(self.round, self.here, self.generator)
        if not offers:
            return []
        self.round.proposal = offers[0]
        if self.judges:
            self.proposals.extend(offers)
            return []
        if self.station is None:
            return [TuningSend(self._root, offer) for offer in offers]
        stream, judge = self.station.judge
        return [TuningSend(judge, replace(offer, stream=self.station.stream), stream) for offer in offers]

    # -- optimisation: the root, and carrying out

    def _on_proposal(self, _: int, message: Proposal) -> list[Action]:
        self.proposals.append(message)
        return []

    def _decide(self) -> list[Action]:
        settings = self.settings
        chosen = choose(
            settings.objective,
            self.proposals,
            self.number,
            concurrent=settings.concurrent,
            limits=settings.limits,
            total=None if joins(settings.objective) or not settings.concurrent else self.here.everything(0),
        )
        self.proposals = []
        self.applied.extend((self.now, offer) for offer in chosen)
        actions: list[Action] = []
        for offer in chosen:
            own = self.station is None or offer.stream == self.station.stream
            if own and offer.owner == self.number:
                actions.extend(self._on_decision(self.number, Decision(offer.period)))
            else:
                actions.append(TuningSend(offer.owner, Decision(offer.period), None if own else offer.stream))
        return actions

    def _on_decision(self, _: int, message: Decision) -> list[Action]:
        state = self.round
        if state is None or state.period != message.period or state.proposal is None:
            return []
        if state.moving:
            return []  # it was told before
        parents = state.units[0].parents
        state.moving, state.tries = order_moves(parents, state.proposal.moves), 0
        moves = tuple((site, parent, parents[site]) for site, parent in state.moving)
        return [PutInForce(state.proposal, moves)]

    def put_in_force(self, now: float, period: int, *, done: bool) -> list[Action]:
        """The change of a period is in force, so that its members may move; or it was refused."""
        self.now = now
        state = self.round
        if state is None or state.period != period:
            return []
        if not done:
            state.moving = []
        return self._next_move(again=False)

    def _next_move(self, *, again: bool) -> list[Action]:
        """Ask the next member to move; asked again when the answer is lost, given up after a few tries."""
        state = self.round
        if state is None or not state.moving or state.tries > TRIES:
            return []
        state.tries = state.tries + 1 if again else 0
        site, parent = state.moving[0]
        order = Move(state.period, parent, state.units[0].parents[site])
        wait: list[Action] = [Timer(self.now + self.settings.maintenance_s / 2, ("move",))]
        if site == self.number:
            return [*wait, *self._on_move(self.number, order)]
        return [*wait, TuningSend(site, order)]

    def _on_move(self, sender: int, message: Move) -> list[Action]:
        here = self.here
        if here.parent == message.parent:
            return self._tell(sender, Moved(message.period, True))
        if here.parent != message.old or message.parent in here.children:
            return self._tell(sender, Moved(message.period, False))
        self.for_owner = (sender, message.period)
        return self._attach(message.parent) if self.wish != message.parent else []

    def _tell(self, owner: int, message: Moved) -> list[Action]:
        return self._on_moved(self.number, message) if owner == self.number else [TuningSend(owner, message)]

    def _on_moved(self, sender: int, message: Moved) -> list[Action]:
        state = self.round
        if state is None or state.period != message.period or not state.moving or state.moving[0][0] != sender:
            return []
        if not message.done:
            state.moving = []
            return []
        state.moving.pop(0)
        return self._next_move(again=False)
