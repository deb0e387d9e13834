"""A whole system of cores in virtual time: start, join, leave, crash, run, and read the tree that came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.tuning.arrangement import Setting
from headgate.tuning.compile import Compiled
from headgate.tuning.evaluate import TreeView, evaluate
from headgate.tuning.language import ObjectiveError
from headgate.tuning.overlay import Overlay
from headgate.tuning.protocol.host import Station
from headgate.tuning.protocol.messages import Proposal
from headgate.tuning.protocol.neighbourhood import ROOT
from headgate.tuning.protocol.network import Action, Core, Network, TrafficCounts
from headgate.tuning.protocol.settings import TuningSettings
from headgate.tuning.protocol.site import SiteAgent
from headgate.tuning.shape import Shape
from headgate.tuning.unit import Facts


class LetterCarrier(Protocol):
    """What a simulation needs of a network: the whole of one, or the part of one tree."""

    counts: TrafficCounts

    @property
    def now(self) -> float:
        """Virtual time."""

    def place(self, site: int, core: Core) -> None:
        """A core begins to listen."""

    def remove(self, site: int) -> None:
        """A core has stopped."""

    def act(self, site: int, actions: list[Action]) -> None:
        """Carry out what a core decided."""

    def run(self, until: float) -> None:
        """Deliver everything that is due."""


def delay_of(overlay: Overlay) -> Callable[[int, int], float]:
    """The delay of messages between two sites."""
    latency = overlay.links.get("link_latency")
    return lambda sender, to: 0.01 if latency is None or sender == to else latency.between(sender, to)


def setting_of(overlay: Overlay) -> Setting:
    """What every site of an overlay knows."""
    return Setting(overlay.wanted.sizing, overlay.match_entry_s, overlay.match_byte_s)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Mean messages and bytes a site sends in one optimisation period, the root apart."""

    messages: float
    bytes: float
    root_messages: float
    root_bytes: float
    maintenance_bytes: float
    optimisation_bytes: float


class TuningSimulation:
    """Sites of an overlay on a virtual network. Link latencies are the delays of messages.

    One of several trees is given its part of their common network, and a `station` for each of its sites.
    """

    def __init__(
        self,
        overlay: Overlay,
        settings: TuningSettings,
        *,
        loss: float = 0.0,
        seed: int = 0,
        network: LetterCarrier | None = None,
        station: Callable[[int], Station] | None = None,
    ) -> None:
        for compiled in settings.costs:
            unknown = {name for name in compiled.metrics if name.startswith("link_")} - {*overlay.links, "link_hop"}
            if unknown:
                raise ObjectiveError(
                    f"{compiled.text!r} needs {', '.join(sorted(unknown))}, which these sites cannot measure",
                    hint="they measure " + ", ".join(sorted(overlay.links)),
                )
        self.overlay, self.settings, self.seed = overlay, settings, seed
        self.network: LetterCarrier = network or Network(delay_of(overlay), loss=loss, seed=seed)
        self.station = station
        self.sites: dict[int, SiteAgent] = {}
        self.root = 0

    def add(self, number: int, parent: int | None) -> None:
        """Start a site below any other, or as the root."""
        overlay = self.overlay
        facts = Facts(
            1,
            int(overlay.client_counts[number]),
            overlay.wanted.bits[number] if overlay.profiles is not None else None,
            {name: float(values[number]) for name, values in overlay.constants.items()},
        )
        weights = tuple(int(overlay.weights(compiled.over)[number]) for compiled in self.settings.costs)

        def measure(name: str, other: int) -> float:
            return overlay.links[name].between(number, other)

        station = None if self.station is None else self.station(number)
        site = self.sites[number] = SiteAgent(
            number, facts, weights, self.settings, measure, seed=self.seed, station=station
        )
        self.network.place(number, site)
        self.network.act(number, site.start(self.network.now, parent))

    def start(self, shape: Shape | Sequence[int]) -> None:
        """Start every site of a tree, each joining below its parent, and let the statistics settle."""
        shape = shape if isinstance(shape, Shape) else Shape(shape)
        self.root = shape.root
        for site in shape.order:
            self.add(site, None if shape.parents[site] < 0 else shape.parents[site])
            self.network.run(self.network.now + 0.5 * self.settings.maintenance_s / max(1, len(shape.parents)))

    def leave(self, number: int) -> None:
        """A site says goodbye and stops."""
        self.network.act(number, self.sites.pop(number).leave(self.network.now))
        self.network.remove(number)

    def crash(self, number: int) -> None:
        """A site stops without a word."""
        del self.sites[number]
        self.network.remove(number)

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.network.run(self.network.now + seconds)

    def parents(self) -> list[int]:
        """Parents as the sites themselves see them; -2 for sites that are not running."""
        found = [-2] * self.overlay.size
        for number, site in self.sites.items():
            found[number] = site.here.parent
        return found

    def shape(self) -> Shape:
        """The tree; fails when the sites do not form one."""
        return Shape(self.parents())

    def connected(self) -> bool:
        """Whether all running sites form one tree, and parents and children agree on it."""
        try:
            shape = self.shape()
        except ValueError:
            return False
        return all(set(self.sites[site].here.children) == set(shape.children[site]) for site in shape.order) and all(
            site.here.parent >= 0 or site.here.parent == ROOT for site in self.sites.values()
        )

    def cost(self, compiled: Compiled | None = None) -> float:
        """The cost of the tree, from outside of the protocol."""
        return evaluate(compiled or self.settings.objective, TreeView(self.overlay, self.shape()))

    def applied(self) -> list[tuple[float, Proposal]]:
        """Every transformation that the root decided on, with its time."""
        return list(self.sites[self.root].applied)

    def traffic(self, periods: int = 1) -> Traffic:
        """Run some optimisation periods and count what the sites send meanwhile."""
        self.network.counts = TrafficCounts()
        self.run(periods * self.settings.optimisation_s)
        counts = self.network.counts
        others = max(1, len(self.sites) - 1) * periods
        root = sum(counts.by_site[kind, self.root] for kind in ("maintenance", "optimisation"))
        per_kind = {
            kind: (counts.bytes[kind] - counts.by_site[kind, self.root]) / others
            for kind in ("maintenance", "optimisation")
        }
        return Traffic(
            (sum(counts.messages.values()) - counts.sent[self.root]) / others,
            sum(per_kind.values()),
            counts.sent[self.root] / periods,
            root / periods,
            per_kind["maintenance"],
            per_kind["optimisation"],
        )
