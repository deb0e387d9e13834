"""How good delivery must be: tolerated drop and delay, and the quality that was promised."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quality:
    """A QoS function of drop and delay by its thresholds, and the contract `at_least` on its value in [0, 1].

    Delivery is worth nothing once the drop reaches `drop` or the mean delay reaches `delay_s`.
    """

    drop: float = 1.0
    delay_s: float = 10.0
    at_least: float | None = None
