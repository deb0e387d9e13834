"""The filter-QoS paper's workload (Table 1 and section 5.2): range profiles, Zipf messages, uniform updates.

Profiles are conjunctions of one range per attribute around a context value. Range widths rise geometrically from the
most to the least selective attribute, which gives the paper's global order of selectivity. Values lie in [0, 10000],
rounded to three significant digits unless asked otherwise. The paper gives no widths; ours are set so that a message
matches about 44 profiles (a) or about 900 (b) of 500,000. In (c) the two most selective attributes select 5 and 10 %
and the others most of the rows, so that a message matches about 940.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]


def three_digits(values: Floats) -> Floats:
    """Values rounded to three significant digits.

    >>> three_digits(np.array([0.0, 1234.5, 98.76])).tolist()
    [0.0, 1230.0, 98.8]
    """
    step = 10.0 ** (np.floor(np.log10(np.maximum(np.abs(values), 1e-9))) - 2)
    found: Floats = np.round(np.round(values / step) * step, 9)
    return found


@dataclass(frozen=True, slots=True)
class MatchingWorkload:
    """How profiles, messages and updates are drawn; every draw takes its generator."""

    profiles: int = 500_000
    attributes: int = 8
    narrowest: float = 0.134
    widest: float = 0.9
    span: float = 10_000.0
    distinct: int = 1000
    zipf: float = 1.0
    rounded: bool = True
    selective: tuple[float, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Column names."""
        return tuple(f"v{k}" for k in range(self.attributes))

    @property
    def widths(self) -> Floats:
        """Width of each attribute's ranges, in units of values; `selective` gives those of the first ones as shares."""
        first = len(self.selective)
        steps = np.arange(self.attributes - first) / max(1, self.attributes - first - 1)
        found: Floats = self.span * self.narrowest * (self.widest / self.narrowest) ** steps
        return np.concatenate([self.span * np.array(self.selective), found])

    def _values(self, rng: np.random.Generator, shape: Any) -> Floats:
        drawn = rng.uniform(0, self.span, shape)
        return three_digits(drawn) if self.rounded else drawn

    def contexts(self, rng: np.random.Generator) -> Floats:
        """The context value of every profile and attribute."""
        return self._values(rng, (self.profiles, self.attributes))

    def ranges(self, contexts: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds, both included, around context values."""
        return contexts - self.widths / 2, contexts + self.widths / 2

    def messages(self, rng: np.random.Generator, count: int) -> Floats:
        """Messages x attributes; each attribute's popular values lie anywhere in the span."""
        share = 1.0 / np.arange(1, self.distinct + 1) ** self.zipf
        share /= share.sum()
        columns = [self._values(rng, self.distinct)[rng.choice(self.distinct, count, p=share)] for _ in self.names]
        return np.stack(columns, axis=1)

    def updates(self, rng: np.random.Generator, count: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[Any], Floats]:
        """Updates: profile, attribute and new context value, all uniform."""
        profiles = rng.integers(0, self.profiles, count).astype(np.uint32)
        return profiles, rng.integers(0, self.attributes, count), self._values(rng, count)

    def batch(self, messages: Floats) -> pa.RecordBatch:
        """Messages as an Arrow batch."""
        columns = [pa.array(np.ascontiguousarray(messages[:, k])) for k in range(self.attributes)]
        return pa.RecordBatch.from_arrays(columns, names=list(self.names))


FEW_MATCHES = MatchingWorkload()
MANY_MATCHES = MatchingWorkload(narrowest=0.309)
SELECTIVE = MatchingWorkload(narrowest=1.03, widest=1.5, selective=(0.05, 0.10))
