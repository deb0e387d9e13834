"""What trespassers asked for and what came of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class TrespassOutcome:
    """What was asked and what came of it."""

    seed: int
    requests: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    leaked: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    refused_to_the_owner: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: TrespassOutcome) -> None:
        """Take in what another one found."""
        self.requests += other.requests
        self.kinds += other.kinds
        self.leaked += other.leaked
        self.changed += other.changed

    @property
    def wrong(self) -> list[str]:
        """Everything that should not be."""
        return [*self.leaked, *self.changed, *self.refused_to_the_owner]
