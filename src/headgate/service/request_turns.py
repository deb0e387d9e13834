"""Whose request is served next: everybody in turn, at a rate and with a queue of bounded length each.

Somebody who sends thousands of requests at once fills a queue of their own: the next request of anybody else waits for
what is being served at the moment and for one request of each other who waits, never for a queue. What does not fit, or
comes faster than the limit for longer than the burst, is refused at once, and told when to come back. A request that
was refused after it was looked at counts as several: whoever sends filters that are written to hurt is soon looked at
a few times a second only.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from headgate.model import RequestLimits

T = TypeVar("T")
_MOST_FLOWS: Final = 10_000


@dataclass(slots=True)
class _Flow(Generic[T]):
    tokens: float
    seen_s: float
    waiting: deque[T] = field(default_factory=deque)


class RequestTurns(Generic[T]):
    """Queues by flow. Time comes in as an argument."""

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self._flows: OrderedDict[str, _Flow[T]] = OrderedDict()
        self._ready: OrderedDict[str, None] = OrderedDict()
        self.refused = 0

    def __len__(self) -> int:
        return sum(len(self._flows[name].waiting) for name in self._ready)

    def offer(self, flow: str, request: T, now_s: float) -> float | None:
        """Take a request into its queue; where it is refused, after how many seconds it may be tried again."""
        limits = self.limits
        found = self._flows.get(flow)
        if found is None:
            found = self._flows[flow] = _Flow(float(limits.burst), now_s)
            self._forget(now_s)
        self._flows.move_to_end(flow)
        found.tokens = min(found.tokens + (now_s - found.seen_s) * limits.requests_per_s, float(limits.burst))
        found.seen_s = now_s
        if found.tokens < 1.0:
            self.refused += 1
            return (1.0 - found.tokens) / limits.requests_per_s
        if len(found.waiting) >= limits.waiting:
            self.refused += 1
            return len(found.waiting) / limits.requests_per_s
        found.tokens -= 1.0
        found.waiting.append(request)
        self._ready[flow] = None
        return None

    def charge(self, flow: str, requests: int) -> tuple[list[T], float]:
        """Count a request of a flow as so many more, as it was found out to cost more than others.

        Where the flow has used up more than it may have, its requests that wait are given back, to be refused, with the
        seconds after which they may be tried again: they would be looked at before anything was known of it.
        """
        found = self._flows.get(flow)
        if found is None:
            return [], 0.0
        found.tokens -= requests
        if found.tokens >= 0.0:
            return [], 0.0
        waiting = [*found.waiting]
        found.waiting.clear()
        self._ready.pop(flow, None)
        self.refused += len(waiting)
        return waiting, (1.0 - found.tokens) / self.limits.requests_per_s

    def take(self) -> T | None:
        """The next request: of the flow that has waited longest since its last turn; None when nobody waits."""
        if not self._ready:
            return None
        flow, _ = self._ready.popitem(last=False)
        waiting = self._flows[flow].waiting
        request = waiting.popleft()
        if waiting:
            self._ready[flow] = None  # behind everybody else
        return request

    def _forget(self, now_s: float) -> None:
        """Keep the number of flows bounded: those go that were not seen for longest and are owed nothing.

        A flow that is forgotten before its burst has grown back would get a new one, so that is not done.
        """
        for name in list(self._flows)[: max(len(self._flows) - _MOST_FLOWS, 0)]:
            flow = self._flows[name]
            if (
                not flow.waiting
                and flow.tokens + (now_s - flow.seen_s) * self.limits.requests_per_s >= self.limits.burst
            ):
                del self._flows[name]
