"""MIN: the smallest dropped value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headgate.reduction.digesters.extreme import ExtremeValue


@dataclass(frozen=True, slots=True)
class Min(ExtremeValue):
    """Smallest value."""

    name: ClassVar[str] = "min"
    about: ClassVar[str] = "smallest dropped value"
    sign: ClassVar[int] = 1
