"""TIME-RANGE: the earliest and latest event time among the dropped rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Self

from headgate.reduction.digesters.base import from_json
from headgate.reduction.digesters.ranges import Ranges
from headgate.reduction.filters.thin_time import event_time
from headgate.reduction.reader import Reader

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimeRange(Ranges):
    """Earliest and latest time, to the microsecond, as seconds since 1970 on the wire."""

    name: ClassVar[str] = "time_range"
    kind: ClassVar[str] = "time"
    about: ClassVar[str] = "earliest and latest event time of the dropped rows"

    @classmethod
    def read(cls, reader: Reader, value: Any) -> Self:
        """A time column, or the only timestamp of the stream."""
        if value is None:
            return cls((event_time(reader),))
        return cls((reader.checked_column(value, cls.name, cls.kind),))

    def show(self, value: Any) -> Any:
        """Two times in ISO form, None if no row had one."""
        if not value[0]:
            return None
        return [(_EPOCH + timedelta(seconds=from_json(item))).isoformat() for item in value[1:]]
