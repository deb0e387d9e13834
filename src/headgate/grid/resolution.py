"""The `resolution:` document of a subscription: how much of space and time it asks for.

```yaml
resolution: {space: 1/4, time: 1/2}     # the first quarter of the points, every second step
resolution: {space: [1/4, 1/2]}         # only what somebody who has the first quarter still misses
```
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from headgate.grid.errors import GridError, at, check_keys
from headgate.grid.layout import GridLayout
from headgate.grid.permutation import Interval

_EXAMPLE = "{space: 1/4, time: 1/2}"


@dataclass(frozen=True, slots=True)
class Resolution:
    """Intervals of the spatial and the temporal ranks; the whole of both by default."""

    space: Interval = field(default_factory=Interval)
    time: Interval = field(default_factory=Interval)

    @property
    def fraction(self) -> float:
        """Share of the points and steps asked for."""
        return float(self.space.length * self.time.length)

    def contains(self, other: Resolution) -> bool:
        """Whether everything that the other asks for is in this."""
        return all(
            mine.low <= theirs.low and theirs.high <= mine.high
            for mine, theirs in ((self.space, other.space), (self.time, other.time))
        )

    def missing_from(self, held: Resolution) -> tuple[Resolution, ...]:
        """What must still be sent to somebody who has `held`: disjoint parts that together are the difference."""
        parts = [Resolution(space, self.time) for space in self.space.missing_from(held.space)]
        shared = (max(self.space.low, held.space.low), min(self.space.high, held.space.high))
        if shared[0] < shared[1]:
            both = Interval(*shared)
            parts.extend(Resolution(both, time) for time in self.time.missing_from(held.time))
        return tuple(parts)

    @property
    def document(self) -> dict[str, list[str]]:
        """The resolution as a subscription writes it; what is whole is left out.

        >>> parse_resolution({"space": ["1/4", "50%"]}).document
        {'space': ['1/4', '1/2']}
        """
        found = {"space": self.space, "time": self.time}
        return {name: [str(each.low), str(each.high)] for name, each in found.items() if not each.full}

    @property
    def text(self) -> str:
        """The document in one line."""
        return f"space [{self.space.low}, {self.space.high}), time [{self.time.low}, {self.time.high})"


def parse_resolution(
    document: Any, layout: GridLayout | None = None, *, where: str | None = "resolution"
) -> Resolution:
    """The resolution of a document; with a layout it is checked that some point and step remains.

    >>> parse_resolution({"space": "1/4", "time": 0.5}).text
    'space [0, 1/4), time [0, 1/2)'
    """
    found = check_keys(document, ("space", "time"), where, _EXAMPLE)
    parsed = {name: _interval(value, at(where, name)) for name, value in found.items()}
    if layout is not None:
        if "time" in parsed and layout.time is None:
            raise GridError(
                "the stream has no time steps",
                where=at(where, "time"),
                hint="give its grid a `time:` with a bin or a tick, or ask for space only",
            )
        bits = {"space": layout.space_bits, "time": layout.time.bits if layout.time else 0}
        for name, interval in parsed.items():
            first, past = interval.ranks(bits[name])
            if first >= past:
                raise GridError(
                    f"no point of a block of {1 << bits[name]} lies in [{interval.low}, {interval.high})",
                    where=at(where, name),
                    hint=f"ask for at least 1/{1 << bits[name]}, or give the stream larger blocks",
                )
    return Resolution(**parsed)


def _interval(value: Any, where: str) -> Interval:
    if isinstance(value, (list, tuple)):
        if len(value) != 2:
            raise GridError(f"{value!r} is no interval", where=where, hint="write [from, to], such as [1/4, 1/2]")
        low, high = (_fraction(end, where) for end in value)
        if low >= high:
            raise GridError(
                f"the interval [{low}, {high}] is reversed or empty", where=where, hint="the lower end first"
            )
    else:
        low, high = Fraction(0), _fraction(value, where)
        if high == 0:
            raise GridError("a resolution of 0 asks for nothing", where=where, hint="write a fraction such as 1/4")
    return Interval(low, high)


def _fraction(value: Any, where: str) -> Fraction:
    text = "a flag" if isinstance(value, bool) else str(value).strip()
    try:
        found = Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise GridError(f"{value!r} is not a fraction", where=where, hint="write 1/4, 0.25 or 25%") from None
    if not 0 <= found <= 1:
        raise GridError(f"{value} is not between 0 and 1", where=where, hint="1 is everything, 1/4 every fourth")
    return found
