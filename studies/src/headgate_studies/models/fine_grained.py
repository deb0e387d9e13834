"""Fine-grained control: classes with different requirements on one filter (the paper's open question, section 6).

Finding out which requirements a message concerns costs as much as matching it, so the question is turned round:
classes, not messages, are grouped by requirement. Each group has its own part of the index, sees every message and the
updates of its own classes, and is controlled by the method that its requirement chooses. Groups take turns by the time
that their oldest message has left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.matching.admission.frontend import Requirement, choose
from headgate.matching.admission.method import Method, WaitingEvents


@dataclass(frozen=True, slots=True)
class ControlledClasses:
    """Classes of one requirement, and the method that controls them."""

    requirement: Requirement
    classes: tuple[int, ...]
    method: Method


@dataclass(frozen=True, slots=True)
class FineGrained:
    """Groups of classes, tightest bound first."""

    groups: tuple[ControlledClasses, ...]

    @classmethod
    def of(cls, requirements: Mapping[int, Requirement], seed: int = 0) -> FineGrained:
        """Groups from each class's requirement.

        >>> fast = Requirement(bound_s=1.0, false_negatives=True)
        >>> groups = FineGrained.of({1: fast, 2: Requirement(), 3: fast}).groups
        >>> [(group.method.name, group.classes) for group in groups]
        [('shed messages', (1, 3)), ('traditional adaptive', (2,))]
        """
        found: dict[Requirement, list[int]] = {}
        for identity, need in requirements.items():
            found.setdefault(need, []).append(identity)
        ordered = sorted(found, key=lambda need: float("inf") if need.bound_s is None else need.bound_s)
        return cls(tuple(ControlledClasses(need, tuple(sorted(found[need])), choose(need, seed)) for need in ordered))

    def turn(self, waiting: Sequence[WaitingEvents], now_s: float) -> int | None:
        """Which group goes next: of those with events, the one with the least time left; None when nothing waits."""
        best, chosen = float("inf"), None
        for number, (group, queue) in enumerate(zip(self.groups, waiting, strict=True)):
            if len(queue.messages) + len(queue.updates) == 0:
                continue
            bound = group.requirement.bound_s
            left = float("inf") if bound is None else queue.remaining_s(now_s, bound)
            if chosen is None or left < best:
                best, chosen = left, number
        return chosen
