"""SUM: the sum of the dropped values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.reduction.digesters.base import from_json
from headgate.reduction.digesters.moments import Moments


@dataclass(frozen=True, slots=True)
class Sum(Moments):
    """Sum of values."""

    name: ClassVar[str] = "sum"
    about: ClassVar[str] = "sum of the dropped values"

    def show(self, value: Any) -> Any:
        """Sum of values."""
        return from_json(value[1])
