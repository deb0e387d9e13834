"""Context state: the values of subscribers that their filters refer to as `$name`, versioned by one order.

Messages and updates share one order (contract 8). A pin names a position in it, and `ContextState.at(position)` is the
index with exactly the updates up to there: a micro-batch that is replayed with its pin gives the same rows, whether the
worker is new, behind, at, or already past that position.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from headgate.matching.build import build_index
from headgate.matching.index import ClassSpec, Index, MatchingError
from headgate.matching.lists import ClassLists
from headgate.model import Schema


@runtime_checkable
class Bindable(Index, Protocol):
    """An index whose classes can be given another context in place."""

    def bind(self, identity: int, context: Mapping[str, Any]) -> None:
        """Replace the context of one class."""
        ...


@dataclass(frozen=True, slots=True)
class ContextUpdate:
    """New values of some of a class's context names, at a position of the stream's order."""

    position: int
    class_id: int
    values: Mapping[str, Any]


class ContextState:
    """Classes with their context as it was at `base`, the updates since, and an index that follows them.

    The index is kept at one position and moved forward in place; going back builds it again from the base, which only
    a replay after a restart asks for.
    """

    def __init__(self, schema: Schema, classes: Iterable[ClassSpec], base: int = 0) -> None:
        self._schema = schema
        self._classes = {spec.id: spec for spec in classes}
        self._base = self._position = base
        self._log: list[ContextUpdate] = []
        self._positions: list[int] = []
        self._contexts: dict[int, dict[str, Any]] = {}
        self._index: Index = build_index(schema, self._classes.values())

    @property
    def position(self) -> int:
        """Where the index stands."""
        return self._position

    @property
    def head(self) -> int:
        """The last position that an update was recorded for, or the base."""
        return self._positions[-1] if self._positions else self._base

    def record(self, updates: Iterable[ContextUpdate]) -> None:
        """Append updates in order; an unknown class or a position at or below the head is refused, with all of them."""
        new = list(updates)
        last = self.head
        for update in new:
            if update.position <= last:
                raise MatchingError(
                    f"a context update at position {update.position} came after position {last}",
                    hint="updates share one order with the messages",
                )
            if update.class_id not in self._classes:
                raise MatchingError(f"class {update.class_id} has no context here", hint="add the class first")
            last = update.position
        self._log.extend(new)
        self._positions.extend(update.position for update in new)

    def at(self, position: int) -> Index:
        """The index with the recorded updates up to a position; one before the base cannot be had.

        A pin is chosen where everything before it is recorded; only then does a replay give the same rows.
        """
        if position < self._base:
            raise MatchingError(
                f"the state at position {position} is gone, the oldest is {self._base}", hint="open an older snapshot"
            )
        if position < self._position:
            self._contexts.clear()
            self._index = build_index(self._schema, self._classes.values())
            self._position = self._base
        start, stop = bisect_right(self._positions, self._position), bisect_right(self._positions, position)
        touched: dict[int, None] = {}
        for update in self._log[start:stop]:
            known = self._contexts.setdefault(update.class_id, dict(self._classes[update.class_id].context))
            known.update(update.values)
            touched[update.class_id] = None
        for identity in touched:
            assert isinstance(self._index, Bindable)
            self._index.bind(identity, dict(self._contexts[identity]))
        self._position = min(position, max(self._base, self.head))
        return self._index

    def match(self, batch: pa.RecordBatch, position: int) -> ClassLists:
        """The classes of each row with the state of a pinned position."""
        return self.at(position).match(batch)

    def forget(self, position: int) -> None:
        """Make a position the new base: what lies before it can no longer be pinned, its updates are dropped."""
        self.at(position)
        self._classes = {
            identity: ClassSpec(identity, spec.filter, dict(self._contexts.get(identity, spec.context)))
            for identity, spec in self._classes.items()
        }
        cut = bisect_right(self._positions, position)
        del self._log[:cut], self._positions[:cut]
        self._contexts.clear()
        self._base = position
