"""A message of a link, as its buffer gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.reduction.digest import Digest
from headgate.reduction.rows import Ints, Seqs


@dataclass(frozen=True, slots=True)
class LinkTaken:
    """One message of a link: rows, the groups that keep each (`groups[offsets[i]:offsets[i + 1]]`), and digests.

    `members` has the receivers' names of each group number, `digests` one digest per group that lost something.
    """

    seqs: Seqs
    rows: pa.RecordBatch
    since: int
    to: int
    offsets: Ints
    groups: Ints
    members: Mapping[int, tuple[str, ...]]
    digests: Mapping[int, Digest]

    def __bool__(self) -> bool:
        return self.to > self.since

    def rows_of(self, receiver: str) -> Seqs:
        """The sequence numbers of the rows for one receiver."""
        numbers = [number for number, names in self.members.items() if receiver in names]
        row_of = np.repeat(np.arange(len(self.seqs)), np.diff(self.offsets))
        return self.seqs[row_of[np.isin(self.groups, numbers)]]

    def digest_of(self, receiver: str) -> Digest | None:
        """The digest for one receiver."""
        found = [digest for number, digest in self.digests.items() if receiver in self.members[number]]
        return found[0] if found else None
