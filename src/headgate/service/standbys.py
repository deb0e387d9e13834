"""The standbys of the plan in force: chosen when the plan changes, by what was measured until then."""

from __future__ import annotations

from dataclasses import replace

from headgate.diagnostics import SERVICE, noted
from headgate.model import Plan
from headgate.planning import ProblemError
from headgate.planning.measured import Figures, with_relays_of
from headgate.planning.standby import with_standbys
from headgate.wire.snapshot import Snapshot


class Standbys:
    """Names the standbys in every revision that is published; they are chosen anew with every plan."""

    def __init__(self) -> None:
        self._plan: Plan | None = None

    def named(self, snapshot: Snapshot, figures: Figures) -> Snapshot:
        """The revision with the standbys of its plan."""
        if snapshot.plan is None:
            return snapshot
        if self._plan is None or self._plan != snapshot.plan:
            self._plan = snapshot.plan
            with noted(SERVICE, "no standby is chosen, the nearest sites above a dead parent serve", ProblemError):
                problem = figures.problem(snapshot.deployment, snapshot.class_ids, None)
                self._plan = with_standbys(with_relays_of(problem, snapshot.plan), snapshot.plan)
        return replace(snapshot, plan=self._plan, deployment=replace(snapshot.deployment, plan=self._plan))
