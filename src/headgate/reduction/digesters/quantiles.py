"""QUANTILES: the spread of the dropped values as minimum, quartiles and maximum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headgate.reduction.digesters.base import Parts
from headgate.reduction.digesters.sketch import Sketched
from headgate.reduction.rows import column, numbers

_K = 64
_RANKS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Quantiles(Sketched):
    """Exact up to 32 values, then a KLL sketch with k = 64 (rank error about 4 %, about 0.8 KB)."""

    name: ClassVar[str] = "quantiles"
    about: ClassVar[str] = "minimum, quartiles and maximum of the dropped values"

    def lift(self, rows: pa.RecordBatch) -> Parts:
        """Each row's value; NULL and NaN are none."""
        values = numbers(column(rows, self.columns[0]))
        entries = np.empty(len(values), dtype=object)
        entries[:] = [[] if value != value else [value] for value in values.tolist()]
        return (entries,)

    def reduce_exact(self, values: list[Any]) -> list[Any]:
        """All values, sorted."""
        return sorted(values)

    def sketch(self, items: list[Any]) -> Any:
        """The merged sketch."""
        import datasketches

        merged = datasketches.kll_floats_sketch(_K)
        loose = [value for item in items if isinstance(item, list) for value in item]
        if loose:
            merged.update(np.array(loose, dtype=np.float32))
        for item in items:
            if not isinstance(item, list):
                merged.merge(item)
        return merged

    def to_bytes(self, sketch: Any) -> bytes:
        """Serialised form."""
        return bytes(sketch.serialize())

    def from_bytes(self, data: bytes) -> Any:
        """From the serialised form."""
        import datasketches

        return datasketches.kll_floats_sketch.deserialize(data)

    def show(self, value: Any) -> Any:
        """Values at ranks 0, 1/4, 1/2, 3/4 and 1, None without any value."""
        if isinstance(value, list):
            if not value:
                return None
            return [float(value[max(0, int(np.ceil(rank * len(value))) - 1)]) for rank in _RANKS]
        found = self.decode(value)[0][0]
        inner = [float(found.get_quantile(rank)) for rank in _RANKS[1:-1]]
        return [float(found.get_min_value()), *inner, float(found.get_max_value())]
