"""MEAN: the mean of the dropped values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.reduction.digesters.base import from_json
from headgate.reduction.digesters.moments import Moments


@dataclass(frozen=True, slots=True)
class Mean(Moments):
    """Mean of values, None without any."""

    name: ClassVar[str] = "mean"
    about: ClassVar[str] = "mean of the dropped values"

    def show(self, value: Any) -> Any:
        """Mean of values, None without any."""
        return from_json(value[1]) / value[0] if value[0] else None
