"""One row at a time, into a buffer that was made once: for callers that cannot wait for a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching.compiled.coding import Flags, Keys
from headgate.matching.compiled.index import BoxIndex
from headgate.matching.compiled.keys import column_keys
from headgate.matching.compiled.search import float_row_keys, make_work, match_one
from headgate.matching.lists import Ids


class RowMatcher:
    """Matches single rows against a box index; after a match the ids are `out[:count]`, sorted.

    Belongs to one thread. The index may change between rows; one that was rebuilt is noticed.
    """

    __slots__ = ("_index", "_keys", "_tree", "_valid", "_work", "out")

    def __init__(self, index: BoxIndex, capacity: int = 1 << 16) -> None:
        self._index = index
        self.out: Ids = np.empty(capacity, np.uint32)
        self._adopt()

    def _adopt(self) -> None:
        self._tree = self._index.tree
        self._work = make_work(self._tree)
        count = len(self._index.attributes)
        self._keys: Keys = np.empty(count, np.int64)
        self._valid: Flags = np.ones(count, np.uint8)

    def match_floats(self, values: npt.NDArray[np.float64]) -> int:
        """Match a row whose attributes are all floating, none of them null; returns how many ids it has."""
        float_row_keys(values, self._keys)
        return self.match_keys(self._keys, self._valid)

    def match(self, row: Mapping[str, Any]) -> int:
        """Match a row given by column; None is null. Returns how many ids it has."""
        keys, valid = np.empty_like(self._keys), np.empty_like(self._valid)
        for k, attribute in enumerate(self._index.attributes):
            column = pa.array([row.get(attribute.name)], attribute.type)
            found, there = column_keys(column, attribute.type, self._index.labels.get(attribute.name))
            keys[k], valid[k] = found[0], there[0]
        return self.match_keys(keys, valid)

    def match_keys(self, keys: Keys, valid: Flags) -> int:
        """Match a row given by keys; returns how many ids it has."""
        if self._tree is not self._index.tree:
            self._adopt()
        count: int = match_one(self._tree, keys, valid, self.out, self._work)
        while count < 0:
            self.out = np.empty(2 * len(self.out) + len(self._tree.lane_ids), np.uint32)
            count = match_one(self._tree, keys, valid, self.out, self._work)
        return count
