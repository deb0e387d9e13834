"""BOX: the bounding box of the dropped rows' positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from headgate.reduction.digesters.ranges import Ranges
from headgate.reduction.errors import PolicyError
from headgate.reduction.reader import Reader


@dataclass(frozen=True, slots=True)
class BoundingBox(Ranges):
    """The smallest box around all positions: [x, y] of the low corner and of the high one."""

    name: ClassVar[str] = "box"
    about: ClassVar[str] = "bounding box of the dropped positions: box: [x, y]"

    @classmethod
    def read(cls, reader: Reader, value: Any) -> Self:
        """Two number columns."""
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise PolicyError("a box needs two columns", where=reader.where, hint="write `box: [x, y]`")
        return cls(tuple(reader.checked_column(path, cls.name, cls.kind) for path in value))
