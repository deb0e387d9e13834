"""MAX: the largest dropped value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headgate.reduction.digesters.extreme import Extreme


@dataclass(frozen=True, slots=True)
class Max(Extreme):
    """Largest value."""

    name: ClassVar[str] = "max"
    about: ClassVar[str] = "largest dropped value"
    sign: ClassVar[int] = -1
