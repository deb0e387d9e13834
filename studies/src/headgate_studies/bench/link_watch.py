"""Bytes on a link as its receiver counts them, and how they compare with the link's budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headgate.service.runtime import Runtime

WINDOW_S: Final = 10.0
_STEP_S: Final = 0.1


@dataclass
class LinkWatch:
    """What arrived over one link (when the server stored it, bytes with headers) and when something waited for it."""

    sender: str
    receiver: str
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    waited: list[tuple[float, bool]] = field(default_factory=list)

    async def watch(self, runtime: Runtime) -> None:
        """Count messages as they are stored at the receiver, for ever."""
        logs = runtime.fabric.logs
        async for batch in runtime.fabric.follow(logs.site(self.receiver), logs.links_into(self.receiver)):
            self.arrivals += [(stored.time_s, stored.size) for stored in batch]

    def sample(self, runtime: Runtime, now_s: float) -> None:
        """Note whether something waits at the sender."""
        outputs = runtime.nodes[self.sender].machine.state.core.outputs.items()
        self.waited.append((now_s, any(output.rows for key, output in outputs if key.child == self.receiver)))

    def bytes_between(self, start_s: float, end_s: float) -> int:
        """The bytes that arrived in a span of time."""
        return sum(size for when, size in self.arrivals if start_s <= when < end_s)

    def judge(self, rate_bytes_per_s: float, start_s: float, end_s: float) -> LinkVerdict:
        """Compare every 10 s between two times with the budget."""
        times = np.array([when for when, _ in self.arrivals])
        sizes = np.array([size for _, size in self.arrivals], dtype=np.float64)
        inside = (times >= start_s) & (times < end_s)
        times, total = times[inside], np.concatenate([[0.0], np.cumsum(sizes[inside])])
        budget = rate_bytes_per_s * WINDOW_S
        # The most in any 10 s starts at a message; the least is looked for every tenth of a second.
        ends = np.searchsorted(times, times + WINDOW_S, side="left")
        most = float(np.max(total[ends] - total[: len(times)], initial=0.0))
        starts = np.arange(start_s, max(start_s, end_s - WINDOW_S) + 1e-9, _STEP_S)
        found = total[np.searchsorted(times, starts + WINDOW_S)] - total[np.searchsorted(times, starts)]
        always = self._always_waited(starts)
        least = float(np.min(found[always])) / budget if always.any() else float("nan")
        mean = float(np.mean(found[always])) / budget if always.any() else float("nan")
        return LinkVerdict(most / budget - 1.0, least, mean, float(always.mean()))

    def _always_waited(self, starts: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether something waited at every sample of the 10 s that start then."""
        when = np.array([each for each, _ in self.waited])
        idle = np.concatenate([[0], np.cumsum([not waits for _, waits in self.waited])])
        low, high = np.searchsorted(when, starts), np.searchsorted(when, starts + WINDOW_S)
        return np.asarray((idle[high] == idle[low]) & (high > low))


@dataclass(frozen=True, slots=True)
class LinkVerdict:
    """The worst excess over the budget in any 10 s, and how busy the link was in those in which something waited.

    `busy_least` and `busy_mean` are the part of the budget that such 10 s used, `waited` how many of all 10 s they are.
    """

    over: float
    busy_least: float
    busy_mean: float
    waited: float
