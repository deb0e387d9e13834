"""Classes that boxes do not decide: in the index of their own profile type where it offers one, else one by one.

A type's index (XPORT's `init`, `add`, `remove`, `match`) is kept up with every class that comes and goes, and asked
when there are enough of them: a handful of profiles is evaluated faster than any index is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from headgate.matching.hiding import Span, hide
from headgate.matching.index import ClassSpec, MatchingError
from headgate.matching.lists import ClassLists, Ids
from headgate.matching.metering import Meter
from headgate.matching.scan import ScanIndex

if TYPE_CHECKING:
    from headgate.filters.profiles import Profile, ProfileIndex

OWN_FROM = 8


class Evaluated:
    """Classes by id; `kind_of` names the profile type whose index a filter's text may go to, None for no index."""

    def __init__(self, kind_of: Callable[[str], str | None] | None = None) -> None:
        self._kind_of = kind_of
        self._alone = ScanIndex([])
        self._indexes: dict[str, ProfileIndex | None] = {}
        self._members: dict[str, dict[int, ClassSpec]] = {}
        self._kinds: dict[int, str] = {}

    @property
    def meter(self) -> Meter | None:
        """What evaluates classes by the clock."""
        return self._alone.meter

    @meter.setter
    def meter(self, meter: Meter | None) -> None:
        self._alone.meter = meter

    @property
    def classes(self) -> Ids:
        """The ids it knows, ascending."""
        own = np.fromiter(self._kinds, np.uint32, len(self._kinds))
        return np.union1d(self._alone.classes, own).astype(np.uint32)

    def kind(self, text: str, where: object) -> str | None:
        """The type whose index takes a filter; none takes what depends on a subscriber's context."""
        if self._kind_of is None or getattr(where, "parameters", None):
            return None
        name = self._kind_of(text)
        if name is not None and name not in self._indexes:
            from headgate.filters.profiles import profile_type

            self._indexes[name] = profile_type(name).index()
        return name if name is not None and self._indexes[name] is not None else None

    def add(self, classes: Iterable[tuple[str, ClassSpec]]) -> None:
        """Add classes, each with its filter's text; an id that is known already is refused."""
        alone = []
        for text, spec in classes:
            kind = self.kind(text, spec.filter)
            if kind is None:
                alone.append(spec)
                continue
            if spec.id in self._kinds:
                raise MatchingError(f"class id {spec.id} is given twice", hint="ids name one class each")
            self._index(kind).add(spec.id, cast("Profile", spec.filter))
            self._members.setdefault(kind, {})[spec.id] = spec
            self._kinds[spec.id] = kind
        self._alone.add(alone)

    def _index(self, kind: str) -> ProfileIndex:
        found = self._indexes[kind]
        assert found is not None
        return found

    def remove(self, ids: Iterable[int]) -> None:
        """Forget classes; unknown ids are ignored."""
        gone = list(ids)
        for identity in gone:
            kind = self._kinds.pop(identity, None)
            if kind is not None:
                self._index(kind).remove(identity)
                del self._members[kind][identity]
        self._alone.remove(gone)

    def context(self, identity: int) -> Mapping[str, Any]:
        """The context of one class."""
        kind = self._kinds.get(identity)
        return self._alone.context(identity) if kind is None else self._members[kind][identity].context

    def bind(self, identity: int, context: Mapping[str, Any]) -> None:
        """Replace the context of one class; those in an index of their type have filters that do not read it."""
        kind = self._kinds.get(identity)
        if kind is None:
            self._alone.bind(identity, context)
        else:
            spec = self._members[kind][identity]
            self._members[kind][identity] = ClassSpec(spec.id, spec.filter, context)

    def match(self, batch: pa.RecordBatch) -> ClassLists:
        """The classes of each row."""
        found = self._alone.match(batch)
        for kind, members in self._members.items():
            if len(members) < OWN_FROM:
                few = ScanIndex(members.values())
                few.meter = self.meter
                found = found.joined(few.match(batch))
            else:
                offsets, numbers = self._index(kind).match(batch)
                lists = ClassLists(offsets.astype(np.int64), numbers.astype(np.uint32))
                found = found.joined(hide(lists, self._spans(batch.num_rows, members)))
        return found

    def _spans(self, rows: int, members: Mapping[int, ClassSpec]) -> Sequence[Span]:
        """The spans of a batch that some classes of a type's index do not see."""
        mine = np.fromiter(members, np.uint32, len(members))
        return () if self.meter is None else self.meter.spans(rows, lambda ids: np.intersect1d(ids, mine))
