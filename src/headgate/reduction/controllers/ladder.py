"""The paper's ladder (section 4.2): climb when packs come sooner than they used to, step down when they come later.

The metric is the turnaround time, from one pack to the next request, with a smoothed history per level. Repairs, with
the reasons in docs/policies.md: the change ratio is taken before the history is updated (the other way round only ever
climbs); the smoothing weight belongs to the observation; a change counts only when it is larger than the level's own
usual variation, three times in a row, so that chance does not move the ladder; a level that was steady for some packs
lets the one below be tried, and each time that fails the next try waits twice as long. A pack that frees too little
climbs on at once (`Backlog.pack`), so a try costs no row.

A ladder that has settled keeps to two neighbouring levels, its band: where the right amount lies between two levels it
goes to and fro between them. To leave the band takes three times the evidence, which a change of load gives and chance
does not; the histories stand still while evidence comes in, so that a change is not taken for the usual.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.reduction.controllers.base import Pressure

_ALPHA = 0.1
_THRESHOLD = 0.1
_DEVIATIONS = 3.0
_STREAK = 3
_STRONG = 9
_STEADY = 8
_LONGEST_WAIT = 1024


@dataclass(slots=True)
class Ladder:
    """One step at a time, by turnaround. `turnaround_s` and `variation_s` are the histories per level.

    `band` is the lowest and the highest level since the ladder settled, None before.
    """

    headroom: float = 0.1
    level: int = 1
    last: float | None = None
    turnaround_s: dict[int, float] = field(default_factory=dict)
    variation_s: dict[int, float] = field(default_factory=dict)
    streak: int = 0
    steady: int = 0
    patience: int = _STEADY
    trying: bool = False
    band: tuple[int, int] | None = None

    def start(self, pressure: Pressure) -> int:
        """The level after the paper's rule."""
        if self.last is None or pressure.now <= self.last:
            return min(self.level, pressure.levels)
        observed = pressure.now - self.last
        usual = self.turnaround_s.get(self.level)
        if usual is None:
            self.turnaround_s[self.level] = observed
            self.variation_s[self.level] = observed / 4
            return min(self.level, pressure.levels)
        spread = self.variation_s[self.level]
        change = (observed - usual) / usual
        threshold = max(_THRESHOLD, _DEVIATIONS * spread / usual)
        direction = (change < -threshold) - (change > threshold)
        target = max(1, min(self.level + direction, pressure.levels))
        if direction == 0 or target == self.level or self.band is None:
            self.turnaround_s[self.level] = (1 - _ALPHA) * usual + _ALPHA * observed
            # A sudden change counts as no more than the usual variation can explain, or it would hide itself.
            seen = min(abs(observed - usual), _DEVIATIONS * spread)
            self.variation_s[self.level] = (1 - _ALPHA) * spread + _ALPHA * seen
        self._move(direction, target)
        return min(self.level, pressure.levels)

    def _inside(self, level: int) -> bool:
        """Whether going to a level keeps to two neighbouring ones."""
        return self.band is None or max(self.band[1], level) - min(self.band[0], level) <= 1

    def _move(self, direction: int, target: int) -> None:
        if direction == 0:
            self.streak = 0
            self.steady += 1
            if self.steady == _STEADY and self.band is None:
                self.band = (self.level, self.level)
            if self.steady >= _LONGEST_WAIT:
                self.band = (self.level, self.level)
            if self.steady >= self.patience and self.level > 1 and self._inside(self.level - 1):
                self._go(self.level - 1)
                self.trying = True
            return
        self.steady = 0
        self.streak = self.streak + direction if self.streak * direction > 0 else direction
        if abs(self.streak) >= (_STREAK if self._inside(target) else _STRONG):
            self._step(target)

    def _step(self, level: int) -> None:
        """Go to another level because of what was seen; going back up after a try makes the next one wait longer."""
        if level > self.level and self.trying:
            self.patience = min(2 * self.patience, _LONGEST_WAIT)
        elif level < self.level:
            self.patience = max(_STEADY, self.patience // 2)
        self._go(level)

    def _go(self, level: int) -> None:
        if self.band is not None:
            inside = self._inside(level)
            self.band = (min(self.band[0], level), max(self.band[1], level)) if inside else (level, level)
        self.level, self.steady, self.streak, self.trying = level, 0, 0, False

    def want(self, pressure: Pressure) -> float:
        """The headroom, no more: the ladder does not look at the size of the overload."""
        del pressure
        return self.headroom

    def enough(self, pressure: Pressure) -> int:
        """The top of the band: a pack that frees less than the headroom there waits for more evidence."""
        return self.band[1] if self.band is not None and self.band[0] < self.band[1] else pressure.levels + 1

    def packed(self, now: float, level: int, freed: float) -> None:
        """Remember when; a pack that had to climb leaves the ladder where it ended."""
        del freed
        self.last = now
        if level > self.level:
            self._step(level)
