"""How long a stream's query rests between two micro-batches: as short as the cores allow, never past the trigger.

A micro-batch costs about the same whether it holds ten rows or a thousand, so the shorter the pause, the younger the
rows and the more of the machine the job takes. With a fixed interval rows wait for half of it on average even where the
cores are idle. Here each query rests by what its micro-batches take: all queries of a job together keep the cores busy
for at most a given share, each of them is at work for at most half of the time, so that a trickle of rows does not cost
a core, and a machine that is slow, because it is small or because others use it, rests longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SHARE: Final = 0.75
"""The share of the cores that micro-batches may keep busy; the rest is for relays and the server."""
HALF: Final = 2.0
"""The interval between two micro-batches of a query is at least so many times what one takes."""
TICK_S: Final = 0.05
"""How often a source is asked for rows while none come; this takes about 2 % of a core for each stream."""
ON_ARRIVAL: Final = frozenset({"generator", "mqtt", "nats", "nats-core", "netcdf", "zarr"})
"""Formats that are asked for rows as soon as the query is free: asking them costs no listing of files."""


@dataclass(frozen=True, slots=True)
class QueryPace:
    """The pace of a job's queries on so many cores; `longest_s` is the longest interval between two micro-batches.

    >>> pace = QueryPace(longest_s=1.0, cores=2)
    >>> pace.rest_s(0.2, queries=1), round(pace.rest_s(0.2, queries=3), 3), round(pace.rest_s(0.8, queries=3), 3)
    (0.2, 0.2, 0.2)
    """

    longest_s: float
    cores: int
    share: float = SHARE

    def rest_s(self, took_s: float, queries: int) -> float:
        """How long a query rests after a micro-batch that took so long, where so many queries share the cores.

        A micro-batch of few rows keeps one core busy, in turn that of the driver, of Java and of a Python worker.
        """
        period_s = took_s * max(HALF, queries / (self.cores * self.share))
        return max(0.0, min(period_s, self.longest_s) - took_s)
