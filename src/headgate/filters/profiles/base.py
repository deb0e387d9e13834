"""What a profile type is: XPORT's profile-related methods (section 2.2.1) over whole batches.

The paper's `match(m, p)` is asked of a batch of messages at once, `merge(p, q)` has its default, a disjunction, and the
index methods (`init`, `add`, `remove`, `match`) are an object that a type may provide. `covers` is what the paper needs
of the merged profiles on a path, and the planner of everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters.filter import Filter
from headgate.filters.vector import Mask
from headgate.model import Schema

Counts = npt.NDArray[np.int64]


@runtime_checkable
class Profile(Protocol):
    """A compiled profile: a predicate over rows. Frozen, picklable, and evaluated without anything but the rows.

    A profile that also has a `filter` (a `Filter` that matches exactly the same rows) takes part in the algebra and in
    indexes over boxes; `relational` asks for it.
    """

    @property
    def text(self) -> str:
        """The canonical text: equal texts of one type match the same rows."""
        ...

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""
        ...

    @property
    def parameters(self) -> frozenset[str]:
        """The names of the subscriber's context that it reads."""
        ...

    def evaluate(self, batch: pa.RecordBatch, context: Mapping[str, Any] | None = None) -> Mask:
        """For each row whether it matches; unknown counts as no."""
        ...


@runtime_checkable
class ProfileIndex(Protocol):
    """Many profiles at once. Making the object is the paper's `init`."""

    def add(self, number: int, profile: Profile) -> None:
        """Add a profile under a number that is not in use."""
        ...

    def remove(self, number: int) -> None:
        """Remove the profile of that number."""
        ...

    def match(self, batch: pa.RecordBatch) -> tuple[Counts, Counts]:
        """For each row the numbers of the profiles that match it, ascending, as offsets and numbers."""
        ...


@runtime_checkable
class ProfileType(Protocol):
    """A language of profiles. `merge` and `index` have defaults in `DefaultProfileType`."""

    @property
    def name(self) -> str:
        """The name that a subscription's `profile` has."""
        ...

    def compile(self, where: str, schema: Schema, context: Mapping[str, pa.DataType]) -> Profile:
        """The profile that a text means; `FilterError` with the position if it means none."""
        ...

    def match(self, batch: pa.RecordBatch, profile: Profile, context: Mapping[str, Any] | None = None) -> Mask:
        """For each row whether the profile matches it."""
        ...

    def covers(self, one: Profile, other: Profile) -> bool:
        """Whether every row that matches `other` matches `one`; a yes is never wrong."""
        ...

    def merge(self, one: Profile, other: Profile) -> Profile:
        """A profile that matches every row that either matches."""
        ...

    def index(self) -> ProfileIndex | None:
        """A new, empty index, None if the type has none."""
        ...


class DefaultProfileType:
    """The defaults: rows matched by the profile itself, covered by an equal text, merged by OR, without an index."""

    def match(self, batch: pa.RecordBatch, profile: Profile, context: Mapping[str, Any] | None = None) -> Mask:
        """For each row whether the profile matches it."""
        return profile.evaluate(batch, context)

    def covers(self, one: Profile, other: Profile) -> bool:
        """Equal texts cover one another, and a disjunction covers its parts."""
        parts = {part.text for part in parts_of(one)}
        return all(part.text in parts for part in parts_of(other))

    def merge(self, one: Profile, other: Profile) -> Profile:
        """The disjunction, without what is covered."""
        return one if self.covers(one, other) else other if self.covers(other, one) else AnyOf.of((one, other))

    def index(self) -> ProfileIndex | None:
        """None: profiles are asked one by one."""
        return None


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The disjunction of profiles of one type."""

    profiles: tuple[Profile, ...]
    text: str
    columns: frozenset[str]
    parameters: frozenset[str]

    @classmethod
    def of(cls, profiles: Iterable[Profile]) -> AnyOf:
        """A disjunction without repetitions, in the order of the texts."""
        flat = {part.text: part for profile in profiles for part in parts_of(profile)}
        found = tuple(flat[text] for text in sorted(flat))
        return cls(
            found,
            " OR ".join(f"({part.text})" for part in found),
            frozenset().union(*(part.columns for part in found)),
            frozenset().union(*(part.parameters for part in found)),
        )

    def evaluate(self, batch: pa.RecordBatch, context: Mapping[str, Any] | None = None) -> Mask:
        """For each row whether any part matches."""
        found = np.zeros(batch.num_rows, bool)
        for profile in self.profiles:
            found |= profile.evaluate(batch, context)
        return found


def parts_of(profile: Profile) -> tuple[Profile, ...]:
    """The profiles of a disjunction, or the profile itself."""
    return profile.profiles if isinstance(profile, AnyOf) else (profile,)


def relational(profile: object) -> Filter | None:
    """The filter that matches exactly the profile's rows, None if the profile has none."""
    found = profile if isinstance(profile, Filter) else getattr(profile, "filter", None)
    return found if isinstance(found, Filter) else None
