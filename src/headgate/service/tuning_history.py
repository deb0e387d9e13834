"""What a run of the live tuner has done: its cost over time, and what each transformation was to bring and has brought.

The judge tells the cost as it knows it from messages, before it decides. So what one period's transformations have
brought is the difference of what it tells when it decides the next time and what it told before; where several ran side
by side, that is what they have brought together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from headgate.protocol.reports import CostPoint, TunedStep, TuningReport
from headgate.protocol.tuning import AskCommit, TellCost
from headgate.service.tuning_run import TuningRun
from headgate.tuning.compile import compile_objective
from headgate.tuning.language.vocabulary import Vocabulary

MOST_POINTS = 500
MOST_STEPS = 200
QUIET_PERIODS = 3


class TuningHistory:
    """The history of a run, and of those before it with the same objective, which began anew as figures changed."""

    def __init__(self, run: TuningRun, before: TuningHistory | None = None) -> None:
        self.run = run
        self._better = compile_objective(run.wishes.objective, Vocabulary.installed()).better
        known = before if before is not None and before.run.wishes.objective == run.wishes.objective else None
        self.points: list[CostPoint] = [] if known is None else known.points
        self.steps: list[TunedStep] = [] if known is None else known.steps
        self.origin_s: float = run.began_s if known is None else known.origin_s
        self._known_since: int | None = None
        self._last_period = 0
        self._moved_in = 0
        self._decided: tuple[int, float | None] = (0, None)

    def cost(self, told: TellCost, time_ms: int) -> None:
        """The judge has told the cost; what was not measured of transformations of earlier periods is measured now."""
        missed = {text: by for text, by in zip(self.run.constraints, told.missed, strict=False) if by > 0}
        self.points.append(
            CostPoint(
                time_ms=time_ms,
                at_s=told.at_s + self.run.began_s - self.origin_s,
                period=told.period,
                cost=_number(told.cost),
                missed=missed,
                sites=told.sites,
            )
        )
        del self.points[:-MOST_POINTS]
        self._last_period = told.period
        if told.sites == self._sites and self._known_since is None:
            self._known_since = told.period
        if not told.deciding:
            return
        whole = told.sites == self._sites and math.isfinite(told.cost)
        for place, step in enumerate(self.steps):
            mine = step.run == self.run.number and told.period > step.period
            if mine and step.state == "in force" and step.measured is None and whole and step.cost_before is not None:
                brought = self._better(step.cost_before, told.cost)
                self.steps[place] = msgspec.structs.replace(step, measured=brought, measured_cost=told.cost)
        self._decided = (told.period, told.cost if whole else None)

    def changed(self, owner: str, asked: AskCommit, time_ms: int, revision: int, why: str = "") -> TunedStep:
        """A transformation was put in force, or refused."""
        names = self.run.scene.names
        period, cost_before = self._decided
        if not why:
            self._moved_in = period
        step = TunedStep(
            run=self.run.number,
            time_ms=time_ms,
            at_s=time_ms / 1000 - self.origin_s,
            period=period,
            stream=self.run.streams[asked.tree] if 0 <= asked.tree < len(self.run.streams) else "",
            transformation=asked.name,
            owner=owner,
            moves={names[site]: names[parent] for site, parent, _ in asked.moves} if not why else {},
            revision=revision,
            state="refused" if why else "in force",
            why=why,
            random=asked.at_random,
            relief=_number(asked.relief) or 0.0,
            predicted=_number(asked.benefit),
            predicted_cost=_number(asked.after),
            cost_before=cost_before,
        )
        self.steps.append(step)
        del self.steps[:-MOST_STEPS]
        return step

    @property
    def settled(self) -> bool:
        """Whether the cost is known and nothing was changed for some periods."""
        if self._known_since is None:
            return False
        return self._last_period - max(self._known_since, self._moved_in) >= QUIET_PERIODS

    @property
    def _sites(self) -> int:
        """How many sites the judge hears of when nothing is missing: the members of its own tree, the first."""
        return len(self.run.members[self.run.streams[0]])

    def report(self, time_ms: int, trees: Mapping[str, Mapping[str, str]]) -> TuningReport:
        """All of it."""
        run = self.run
        return TuningReport(
            time_ms=time_ms,
            run=run.number,
            state="settled" if self.settled else "running",
            began_ms=int(run.began_s * 1000),
            objective=run.wishes.objective,
            constraints=list(run.constraints),
            modes=list(run.wishes.modes) or ["bottleneck"],
            every_s=run.wishes.every_s,
            maintenance_s=run.maintenance_s,
            cost=next((point.cost for point in reversed(self.points)), None),
            costs=self.points,
            steps=self.steps,
            trees={stream: dict(parents) for stream, parents in trees.items()},
        )


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
