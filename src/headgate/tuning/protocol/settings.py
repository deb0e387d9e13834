"""What every site of a system agrees on before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.tuning.arrangement import Setting
from headgate.tuning.compile import Compiled
from headgate.tuning.constraints import CompiledConstraint
from headgate.tuning.language import ObjectiveError
from headgate.tuning.transformations import STANDARD, Transformation


@dataclass(frozen=True)
class TuningSettings:
    """The objective, its limits and the clockwork.

    Reports and surroundings travel every `maintenance_s`; units are priced every `optimisation_s` and the root
    decides half-way through. A neighbour that was silent for `patience` maintenance periods is gone. `approximate`
    is the constant p of the statistics approximation (None: every site takes part in every phase). `joins` has the
    pairs of child and parent that can connect, None when all can.
    """

    objective: Compiled
    setting: Setting
    limits: tuple[CompiledConstraint, ...] = ()
    transformations: tuple[Transformation, ...] = STANDARD
    levels: int = 3
    maintenance_s: float = 10.0
    optimisation_s: float = 120.0
    patience: int = 3
    mode: str = "bottleneck"
    concurrent: bool = False
    random_share: float = 0.0
    approximate: float | None = None
    joins: frozenset[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        for compiled in self.costs:
            _refuse(compiled, {"own_profile", "children_profile"}, "only merged profiles travel between sites")
            _refuse(compiled, {"attained_quality", "granted_shortfall"}, "quality depends on the whole plan at once")

    @property
    def costs(self) -> tuple[Compiled, ...]:
        """Everything that is aggregated: the objective first, then the limits."""
        return (self.objective, *(limit.compiled for limit in self.limits))


def _refuse(compiled: Compiled, names: set[str], why: str) -> None:
    """Refuse what sites cannot work out from messages; `headgate tune`, which sees the whole plan, can."""
    found = sorted(names & compiled.metrics)
    if found:
        raise ObjectiveError(
            f"sites on their own cannot work out {', '.join(found)} in {compiled.text!r}: {why}",
            text=compiled.text,
            position=max(0, compiled.text.find(found[0])),
            hint="use merged_profile, superfluous_data or own_rate instead, or tune the plan with `headgate tune`",
        )
