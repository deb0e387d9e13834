"""Integer labels of strings that keep their order, for a dictionary that can grow.

The dictionary holds every string that some range names. Its strings have labels with gaps of at least 2; a string that
lies between two of them has the label just above the lower one. So any range between dictionary strings, open or
closed, is exact in labels, and a new dictionary string takes a label in the middle of its gap without moving others.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching.compiled.coding import Keys

_SPAN = 2**62


@dataclass(frozen=True, slots=True)
class Labels:
    """Sorted strings as UTF-8 bytes, and their labels."""

    strings: npt.NDArray[np.object_]
    labels: Keys

    @classmethod
    def of(cls, strings: Iterable[bytes]) -> Labels:
        """Labels spread evenly over a dictionary.

        >>> labels = Labels.of([b"b", b"d"])
        >>> keys = labels.keys(pa.array(["a", "b", "c", "d", "e"]))
        >>> bool(np.all(np.diff(keys) > 0))
        True
        """
        found = sorted(set(strings))
        step = 2 * _SPAN // (len(found) + 1)
        return cls(_objects(found), np.array([step * (k + 1) - _SPAN for k in range(len(found))], np.int64))

    def keys(self, column: pa.Array) -> Keys:
        """Labels of a string column; nulls get any."""
        encoded = column.fill_null("").dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        distinct = _objects([text.encode() for text in encoded.dictionary.to_pylist()])
        found: Keys = self.of_bytes(distinct)[encoded.indices.to_numpy()]
        return found

    def of_bytes(self, values: npt.NDArray[np.object_]) -> Keys:
        """Labels of byte strings."""
        if len(self.strings) == 0:
            return np.zeros(len(values), np.int64)
        places = np.searchsorted(self.strings, values)
        inside = np.minimum(places, len(self.strings) - 1)
        known = (places < len(self.strings)) & (self.strings[inside] == values)
        between = np.where(places == 0, self.labels[0] - 1, self.labels[np.maximum(places, 1) - 1] + 1)
        return np.where(known, self.labels[inside], between)

    def grown(self, strings: Iterable[bytes]) -> Labels | None:
        """A dictionary with these strings too and no label changed, or None when a gap has no room left."""
        texts, labels = list(self.strings), self.labels.tolist()
        for text in sorted(set(strings) - set(texts)):
            place = bisect.bisect_left(texts, text)
            low = labels[place - 1] if place else -_SPAN - 2
            high = labels[place] if place < len(labels) else _SPAN + 2
            middle = (low + high) // 2
            if middle - low < 2 or high - middle < 2:
                return None
            texts.insert(place, text)
            labels.insert(place, middle)
        return Labels(_objects(texts), np.array(labels, np.int64))


def _objects(values: list[bytes]) -> npt.NDArray[np.object_]:
    found = np.empty(len(values), object)
    found[:] = values
    return found
