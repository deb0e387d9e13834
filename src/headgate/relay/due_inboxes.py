"""When the inboxes of a site are due: in the order of time, so that a look costs by those that are due, not by all.

An inbox shares no budget with others, so it goes as soon as it is due. One that waits for an answer, or is being
packed, is looked at again when that is over.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar

K = TypeVar("K")


class Waits(Protocol):
    """What an output says about when it is due."""

    packing: bool

    @property
    def waits(self) -> bool:
        """Whether a message of it is on its way."""
        ...

    @property
    def queue(self) -> object:
        """What waits; nothing is false."""
        ...

    @property
    def due_at(self) -> float:
        """From when on the next message may be sent."""
        ...


class DueTimes(Generic[K]):
    """The times of outputs by key; whoever sends takes them from `due`, and says `sent` of those that are under way."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._at: dict[K, float] = {}
        self._under_way: dict[K, None] = {}
        self._number = 0

    def add(self, key: K, output: Waits) -> None:
        """Something was put into an output's queue, or became free to go."""
        if output.waits or output.packing:
            self._under_way[key] = None
        elif output.queue:
            self.put(key, output.due_at)

    def put(self, key: K, at: float) -> None:
        """Look at an output again at a time, unless that is done earlier anyhow."""
        if at < self._at.get(key, float("inf")):
            self._at[key] = at
            self._number += 1
            heapq.heappush(self._heap, (at, self._number, key))

    def sent(self, key: K) -> None:
        """An output waits for an answer, or is being packed."""
        self._under_way[key] = None

    def look(self, outputs: Mapping[K, Waits]) -> None:
        """Take back those whose answers have come."""
        for key in list(self._under_way):
            output = outputs.get(key)
            if output is None or not (output.waits or output.packing):
                del self._under_way[key]
                if output is not None:
                    self.add(key, output)

    def due(self, now: float) -> Iterator[K]:
        """Those whose time has come, each once."""
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                yield key

    def next_at(self) -> float | None:
        """The time of the next one, None while nothing waits for a time."""
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # it was put to an earlier time, or is gone
        return self._heap[0][0] if self._heap else None

    def forget(self, key: K) -> None:
        """An output is gone."""
        self._at.pop(key, None)
        self._under_way.pop(key, None)
