"""MAX: the largest dropped value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headgate.reduction.digesters.extreme import ExtremeValue


@dataclass(frozen=True, slots=True)
class Max(ExtremeValue):
    """Largest value."""

    name: ClassVar[str] = "max"
    about: ClassVar[str] = "largest dropped value"
    sign: ClassVar[int] = -1
