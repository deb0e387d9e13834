"""Several stream trees over the same sites in virtual time: one core a site and tree, one objective over all trees.

Units, reports and moves stay inside a tree. What ties the trees together is little: a site's cores share the site's
own record (`host`), so that bounds on its fanout, bandwidth and matching count all its trees; roots tell each other
what their trees add up to; and proposals of all trees go to one judge, the first tree's root, which picks one a
period. So no two changes can use the same slack of a site, and a bound that holds is not broken by a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headgate.tuning.compile import Compiled
from headgate.tuning.constraints import CompiledConstraint
from headgate.tuning.evaluate import SITE_WIDE, TreeView, evaluate, together
from headgate.tuning.language import ObjectiveError
from headgate.tuning.overlay import Overlay
from headgate.tuning.protocol.coupling import proportional, pulls
from headgate.tuning.protocol.host import Host, Station
from headgate.tuning.protocol.messages import Proposal, TuningMessage
from headgate.tuning.protocol.network import Action, Core, Network, Probe, TrafficCounts, TuningSend
from headgate.tuning.protocol.settings import TuningSettings
from headgate.tuning.protocol.simulation import TuningSimulation, delay_of, setting_of
from headgate.tuning.shape import Shape

IMPLICIT = ("upload_excess <= 0", "download_excess <= 0", "lateness <= 0")
"""What is always in force for a deployment, as sites can see to it themselves.

No site sends or receives more than its bandwidth over all trees. Then nothing is lost, and a granted quality is a bound
on the delay from the root.
"""
OF_THE_SITE = SITE_WIDE | {"upload_bandwidth", "download_bandwidth", "processing_delay", "relay_cpu", "loss_rate"}
"""Metrics that are the same in every tree of a site."""


class StreamSimulation:
    """Trees over the same sites; an overlay for each stream says who wants what of it."""

    def __init__(
        self, overlays: Sequence[Overlay], settings: TuningSettings, *, loss: float = 0.0, seed: int = 0
    ) -> None:
        """Refuses what the trees cannot work out together; `settings.setting` is replaced by each stream's own."""
        if len(overlays) > 1:
            check_trees(settings)
        self.settings, self.size = settings, overlays[0].size
        delay_s, size = delay_of(overlays[0]), self.size
        self.network = Network(lambda sender, to: delay_s(sender % size, to % size), loss=loss, seed=seed)
        self.hosts = [Host() for _ in range(size)]
        self.roots: list[int] = []
        self.trees = [
            TuningSimulation(
                overlay,
                replace(settings, setting=setting_of(overlay)),
                seed=seed,
                network=Lane(self.network, stream, size),
                station=lambda number, stream=stream: self._station(stream, number),  # type: ignore[misc]  # bound now
            )
            for stream, overlay in enumerate(overlays)
        ]

    def _station(self, stream: int, number: int) -> Station:
        others = tuple((other, root) for other, root in enumerate(self.roots) if other != stream)
        return Station(stream, self.hosts[number], (0, self.roots[0]), others)

    def start(self, shapes: Sequence[Shape]) -> None:
        """Start the cores of every tree, each joining below its parent."""
        self.roots = [shape.root for shape in shapes]
        for tree, shape in zip(self.trees, shapes, strict=True):
            tree.start(shape)

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.network.run(self.network.now + seconds)

    def crash(self, number: int) -> None:
        """A site stops without a word, in all its trees."""
        for stream, tree in enumerate(self.trees):
            if number in tree.sites:
                tree.crash(number)
                self.hosts[number].drop(stream)

    def shapes(self) -> list[Shape]:
        """The trees; fails when the sites do not form them."""
        return [tree.shape() for tree in self.trees]

    def connected(self) -> bool:
        """Whether every tree is one."""
        return all(tree.connected() for tree in self.trees)

    def views(self) -> list[TreeView]:
        """All trees from outside of the protocol, as `headgate tune` sees those of a plan."""
        return together([TreeView(tree.overlay, tree.shape()) for tree in self.trees])

    def cost(self, compiled: Compiled | None = None) -> float:
        """The cost over all trees, from outside of the protocol."""
        return evaluate(compiled or self.settings.objective, self.views())

    def missed(self) -> list[float]:
        """How far each limit is missed over all trees, from outside of the protocol."""
        views = self.views()
        return [limit.of(views) for limit in self.settings.limits]

    def known_cost(self) -> float:
        """The cost over all trees as the judge knows it, from messages alone."""
        return self.trees[0].sites[self.roots[0]].here.known_cost(0)

    def applied(self) -> list[tuple[float, Proposal]]:
        """Every transformation that the judge decided on, with its time; `stream` says of which tree."""
        return self.trees[0].applied()


@dataclass(slots=True)
class Lane:
    """One tree's part of a network that carries several; a core's address is its stream times `size` plus its site."""

    network: Network
    stream: int
    size: int

    @property
    def counts(self) -> TrafficCounts:
        """What all trees have sent, by address."""
        return self.network.counts

    @counts.setter
    def counts(self, counts: TrafficCounts) -> None:
        self.network.counts = counts

    @property
    def now(self) -> float:
        """Virtual time."""
        return self.network.now

    def run(self, until: float) -> None:
        """Deliver everything that is due, in all trees."""
        self.network.run(until)

    def place(self, site: int, core: Core) -> None:
        """A core of this tree begins to listen."""
        self.network.place(self._address(site), _Placed(core, self))

    def remove(self, site: int) -> None:
        """A core of this tree has stopped."""
        self.network.remove(self._address(site))

    def act(self, site: int, actions: list[Action]) -> None:
        """Carry out what a core of this tree decided."""
        self.network.act(self._address(site), self.addressed(actions))

    def addressed(self, actions: list[Action]) -> list[Action]:
        """The same with addresses in place of sites."""
        found: list[Action] = []
        for action in actions:
            if isinstance(action, TuningSend):
                found.append(TuningSend(self._address(action.to, action.stream), action.message))
            elif isinstance(action, Probe):
                found.append(Probe(self._address(action.to)))
            else:
                found.append(action)
        return found

    def _address(self, site: int, stream: int | None = None) -> int:
        return (self.stream if stream is None else stream) * self.size + site


@dataclass(frozen=True, slots=True)
class _Placed:
    """A core as the common network sees it: it knows sites, the network knows addresses."""

    core: Core
    lane: Lane

    def receive(self, now: float, sender: int, message: TuningMessage) -> list[Action]:
        return self.lane.addressed(self.core.receive(now, sender % self.lane.size, message))

    def wake(self, now: float, note: tuple[Any, ...]) -> list[Action]:
        return self.lane.addressed(self.core.wake(now, note))

    def put_in_force(self, now: float, period: int, *, done: bool) -> list[Action]:
        return self.lane.addressed(self.core.put_in_force(now, period, done=done))


def check_trees(settings: TuningSettings) -> None:
    """Refuse what one tree's unit cannot price, because it changes costs in other trees that the unit does not see."""
    if settings.concurrent:
        raise ObjectiveError(
            "changes of several trees cannot run side by side: two of them could use the same slack of a site",
            hint="leave `concurrent` out",
        )
    objective = settings.objective
    if pulls(objective) and not proportional(objective):
        wide = sorted(objective.metrics & SITE_WIDE)
        raise ObjectiveError(
            f"{', '.join(wide)} in {objective.text!r} change a site's cost in trees outside of a unit",
            text=objective.text,
            position=max(0, objective.text.find(wide[0])),
            hint="use a sum or an average of one local value, or of one sum over the path, that is proportional to"
            " fanout, outgoing_rate or matching_cpu; or tune the plan with `headgate tune`, which sees all trees",
        )
    for limit in settings.limits:
        if limit.compiled.metrics & SITE_WIDE and not _of_the_site(limit):
            raise ObjectiveError(
                f"{limit.text!r} mixes what a site does in all trees with what it does in one",
                text=limit.text,
                position=0,
                hint="bound fanout, outgoing_rate, upload_excess, download_excess or matching_cpu of every site",
            )


def _of_the_site(limit: CompiledConstraint) -> bool:
    compiled = limit.compiled
    return (
        limit.by_site
        and compiled.over == "brokers"
        and compiled.metrics <= OF_THE_SITE
        and all(term.kind == "local" for term in compiled.terms)
    )
