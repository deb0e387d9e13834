"""STD: the standard deviation of the dropped values (of the population)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.reduction.digesters.base import from_json
from headgate.reduction.digesters.moments import Moments


@dataclass(frozen=True, slots=True)
class Std(Moments):
    """Standard deviation of values, None without any."""

    name: ClassVar[str] = "std"
    about: ClassVar[str] = "standard deviation of the dropped values"

    def show(self, value: Any) -> Any:
        """Standard deviation of values, None without any."""
        return math.sqrt(from_json(value[2]) / value[0]) if value[0] else None
