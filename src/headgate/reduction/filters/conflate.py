"""CONFLATE: keeps the latest row of each key, the way market data and positions are thinned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from headgate.reduction.errors import PolicyError
from headgate.reduction.filters.latest import Latest
from headgate.reduction.reader import Reader


@dataclass(frozen=True, slots=True)
class Conflate(Latest):
    """Latest per key; a key is required, because without one a single row would be left."""

    name: ClassVar[str] = "conflate"
    main: ClassVar[str | None] = "key"
    about: ClassVar[str] = "keep only the latest row of each key"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """A key."""
        key = reader.key()
        reader.has("attribute")
        if not key:
            raise PolicyError("conflate needs a key", where=reader.where, hint="conflate: {key: vehicle}")
        return cls(1, key)
