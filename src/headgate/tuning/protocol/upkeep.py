"""A site's upkeep: joining, leaving, reports up, surroundings down, and what to do when a neighbour falls silent.

Messages and timers in, messages and timers out. It touches no clock, no socket and no other site.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from headgate.tuning.overlay import Bits
from headgate.tuning.protocol.host import Station
from headgate.tuning.protocol.messages import (
    Attach,
    Attached,
    Beat,
    Detach,
    Leaving,
    Moved,
    SubtreeReport,
    SubtreeTotals,
    Surroundings,
    TuningMessage,
)
from headgate.tuning.protocol.neighbourhood import DETACHED, ROOT, KnownChild, Neighbourhood
from headgate.tuning.protocol.network import Action, Timer, TuningSend
from headgate.tuning.protocol.participation import period_of
from headgate.tuning.protocol.settings import TuningSettings
from headgate.tuning.unit import Facts


class SiteUpkeep:
    """A site's place in the tree. `measure` is its own probe: the value of a link metric from this site to another."""

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
        self.number, self.settings, self.station = number, settings, station
        self.probe = measure
        self.here = Neighbourhood(number, facts, weights, settings, self._known_link, station)
        self.generator = np.random.default_rng((seed, number) if station is None else (seed, number, station.stream))
        self.heard_parent, self.phase, self.beat, self.beat_at = 0.0, 0, 0, 0.0
        self.wish: int | None = None  # the parent that was asked and has not answered yet
        self.measured: dict[tuple[str, int], tuple[float, float]] = {}
        self.now = 0.0
        self.sent_profile: Bits | None = None
        self.for_owner: tuple[int, int] | None = None

    # -- starting, joining, leaving

    def start(self, now: float, parent: int | None) -> list[Action]:
        """Begin as the root (no parent) or by joining below any site."""
        self.now = self.heard_parent = self.beat_at = now
        settings = self.settings
        first = now + settings.maintenance_s * float(self.generator.random())
        next_period = (int(now / settings.optimisation_s) + 1) * settings.optimisation_s
        actions: list[Action] = [Timer(first, ("maintain",)), Timer(next_period, ("optimise",))]
        if parent is None:
            self.here.parent = ROOT
            self.here.changed()
            return actions
        return [*actions, *self._attach(parent)]

    def leave(self, now: float) -> list[Action]:
        """Say goodbye: the parent forgets this site, its children go to its parent."""
        self.now = now
        heir = self.here.parent
        return [TuningSend(heir, Detach()), *(TuningSend(child, Leaving(heir)) for child in self.here.children)]

    def follow(self, now: float, parent: int) -> list[Action]:
        """Hang below another site because the plan in force says so."""
        self.now = now
        return self._attach(parent)

    def _attach(self, parent: int) -> list[Action]:
        self.wish = parent
        was, self.here.parent = self.here.parent, parent  # the report describes the link that is to be
        self.here.changed()
        report = self.here.report(self.here.merged())
        self.here.parent = was
        self.here.changed()
        return [
            TuningSend(parent, Attach(self.here.facts, report)),
            Timer(self.now + self.settings.maintenance_s, ("attach", parent)),
        ]

    # -- timers

    def wake(self, now: float, note: tuple[Any, ...]) -> list[Action]:
        """React to a timer: a maintenance phase, or an attachment that nobody answered."""
        self.now = now
        if note[0] == "maintain":
            return self._maintain()
        if note[0] == "attach" and self.wish == note[1]:
            # No answer: try whoever should always be there.
            self.wish = None
            return self._attach(self._refuge(note[1]))
        return []

    def _refuge(self, failed: int) -> int:
        surroundings = self.here.surroundings
        if surroundings is None:
            return failed
        choices = [surroundings.grandparent, surroundings.root]
        return next((site for site in choices if site >= 0 and site != failed), surroundings.root)

    def _maintain(self) -> list[Action]:
        settings, here = self.settings, self.here
        again: list[Action] = [Timer(self.now + settings.maintenance_s, ("maintain",))]
        limit = settings.patience * settings.maintenance_s
        for site in [site for site, child in here.children.items() if self.now - child.heard > limit]:
            del here.children[site]
            here.changed()
        if here.parent == ROOT:
            self.beat += 1
        elif self.wish is None and here.parent != DETACHED:
            if self.now - self.heard_parent > limit:  # the parent is gone
                return [*again, *self._attach(self._refuge(here.parent))]
            if self.now - self.beat_at > 4 * limit:  # cut off from the root, perhaps in a circle
                assert here.surroundings is not None
                return [*again, *self._attach(here.surroundings.root)]
        self.phase += 1
        due = period_of(here, settings.approximate)
        if here.parent != ROOT and here.surroundings is None:
            return again
        if self.phase % due:
            return [*again, *self._beats()]
        return [*again, *self._statistics()]

    def _beats(self) -> list[Action]:
        parent = self.here.parent
        up: list[Action] = [TuningSend(parent, Beat(self.beat))] if parent >= 0 else []
        return [*up, *(TuningSend(child, Beat(self.beat)) for child in self.here.children)]

    def _statistics(self) -> list[Action]:
        here = self.here
        actions: list[Action] = []
        if here.parent >= 0:
            merged = here.merged()
            covered = merged is None or (self.sent_profile is not None and bool((merged == self.sent_profile).all()))
            actions.append(TuningSend(here.parent, here.report(None if covered else merged)))
            self.sent_profile = merged
        elif here.parent == ROOT and self.station is not None:
            totals = here.totals(self.station.stream)
            actions.extend(TuningSend(site, totals, stream) for stream, site in self.station.roots)
        total = here.sites() if here.parent == ROOT else self._total
        around = here.surround(total, self.beat, self._root, self._branch)
        actions.extend(TuningSend(site, surroundings) for site, surroundings in around.items())
        return actions

    @property
    def _total(self) -> int:
        return self.here.surroundings.total if self.here.surroundings else self.here.sites()

    @property
    def _root(self) -> int:
        return self.here.surroundings.root if self.here.surroundings else self.number

    @property
    def _branch(self) -> int:
        return self.here.surroundings.branch if self.here.surroundings else self.number

    # -- messages

    def receive(self, now: float, sender: int, message: TuningMessage) -> list[Action]:
        """React to a message."""
        self.now = now
        handler: Callable[[int, Any], list[Action]] = getattr(self, f"_on_{type(message).__name__.lower()}")
        return handler(sender, message)

    def _on_attach(self, sender: int, message: Attach) -> list[Action]:
        if sender == self.here.parent or self.here.parent == DETACHED:
            return []  # it hangs above this site, or this site hangs nowhere: let it look elsewhere
        self.here.children[sender] = self._child(message.facts, message.report, None)
        self.here.changed()
        around = self.here.surround(self._total, self.beat, self._root, self._branch)
        return [TuningSend(sender, Attached(around[sender]))]

    def _child(self, facts: Facts, report: SubtreeReport, before: KnownChild | None) -> KnownChild:
        merged = report.merged if report.merged is not None else (before.merged if before else None)
        rate = 0.0 if merged is None else self.settings.setting.sizing.size(merged)
        if facts.elsewhere != report.elsewhere:
            facts = replace(facts, elsewhere=report.elsewhere)
        return KnownChild(facts, report, merged, rate, self.now)

    def _on_attached(self, sender: int, message: Attached) -> list[Action]:
        if self.wish != sender:
            return [TuningSend(sender, Detach())] if sender != self.here.parent else []
        old, self.wish = self.here.parent, None
        self.here.parent = sender
        self.here.changed()
        self.heard_parent = self.beat_at = self.now
        self.sent_profile = self.here.merged()
        actions = self._on_surroundings(sender, message.surroundings)
        if old >= 0 and old != sender:
            actions.append(TuningSend(old, Detach()))
        if self.for_owner is not None:
            owner, period = self.for_owner
            self.for_owner = None
            actions.append(TuningSend(owner, Moved(period, True)))
        # News of a move goes both ways at once: it does not wait for the next phase.
        return [*actions, *self._statistics()]

    def _on_detach(self, sender: int, _: Detach) -> list[Action]:
        self.here.children.pop(sender, None)
        self.here.changed()
        return []

    def _on_leaving(self, sender: int, message: Leaving) -> list[Action]:
        return self._attach(message.heir) if sender == self.here.parent else []

    def _on_subtreereport(self, sender: int, message: SubtreeReport) -> list[Action]:
        child = self.here.children.get(sender)
        if child is None:
            return [TuningSend(sender, Leaving(self._root))] if sender != self.here.parent else []
        self.here.children[sender] = self._child(child.facts, message, child)
        self.here.changed()
        return []

    def _on_subtreetotals(self, _: int, message: SubtreeTotals) -> list[Action]:
        self.here.rest[message.stream] = message.results
        return []

    def _on_surroundings(self, sender: int, message: Surroundings) -> list[Action]:
        if sender != self.here.parent:
            return []
        self.heard_parent = self.now
        if message.beat > self.beat:
            self.beat, self.beat_at = message.beat, self.now
        self.here.surroundings = message
        return []

    def _on_beat(self, sender: int, message: Beat) -> list[Action]:
        if sender == self.here.parent:
            self.heard_parent = self.now
            if message.beat > self.beat:
                self.beat, self.beat_at = message.beat, self.now
        elif sender in self.here.children:
            self.here.children[sender].heard = self.now
        return []

    def _known_link(self, name: str, other: int) -> float:
        known = self.measured.get((name, other))
        if known is None:
            known = self.measured[name, other] = (self.probe(name, other), self.now)
        return known[0]
