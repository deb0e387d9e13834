"""MIN: the smallest dropped value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headgate.reduction.digesters.extreme import Extreme


@dataclass(frozen=True, slots=True)
class Min(Extreme):
    """Smallest value."""

    name: ClassVar[str] = "min"
    about: ClassVar[str] = "smallest dropped value"
    sign: ClassVar[int] = 1
