"""Class lists as bytes: sets of classes, the set of each row, and the names of the classes that the sets number.

Numbers ascend within a set, so their differences are small; byte planes under zstd make little of them. Where many rows
have many classes, numbers in the order of the index are smaller than ids: 44 of 500,000 classes a row take 65 bytes
with the table of names, and 76 as sorted ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from headgate.matching import ClassLists
from headgate.wire.frame import WireError
from headgate.wire.integers import decode_lists, decode_uints, encode_lists, encode_uints

Sections = Sequence[bytes | memoryview]

# Below so many pairs of a row and a class, ids are written as they are: a table of names costs more than it saves.
_NAMED_FROM: Final = 4096


def encode_classes(lists: ClassLists) -> tuple[dict[str, int], list[bytes]]:
    """What a header says of the lists, and their sections: lengths of sets, numbers; names and sets if there are."""
    lists = _pruned(lists.trimmed())
    header, sections = {"ids": len(lists.numbers)}, list(encode_lists(lists.starts, lists.numbers))
    if lists.names is not None:
        header["names"] = len(lists.names)
        sections.append(encode_uints(lists.names))
    if lists.sets is not None:
        header["sets"] = len(lists.starts) - 1
        sections.append(encode_uints(lists.sets.astype(np.uint64)))
    return header, sections


def decode_classes(header: Mapping[str, Any], sections: Sections, rows: int) -> tuple[ClassLists, Sections]:
    """The lists of so many rows, and the sections behind theirs."""
    sets, rest = None, iter(sections)
    starts, numbers = decode_lists(next(rest), next(rest), int(header.get("sets", rows)), int(header["ids"]))
    names = decode_uints(next(rest), int(header["names"])).astype(np.uint32) if "names" in header else None
    if "sets" in header:
        sets = decode_uints(next(rest), rows).astype(np.int64)
        if rows and int(sets.max()) >= len(starts) - 1:
            raise WireError(f"a row has the class set {int(sets.max())} of {len(starts) - 1}")
    if names is not None and len(numbers) and int(numbers.max()) >= len(names):
        raise WireError(f"a class list has the number {int(numbers.max())} of {len(names)} classes")
    return ClassLists(starts, numbers, names, sets), list(rest)


def _pruned(lists: ClassLists) -> ClassLists:
    """The same lists without names that no set has."""
    if lists.names is None:
        return lists
    if len(lists.numbers) < _NAMED_FROM:
        return lists.plain()
    used = lists.number_counts() > 0
    if used.all():
        return lists
    renumbered = (np.cumsum(used) - 1).astype(np.uint32)
    return ClassLists(lists.starts, renumbered[lists.numbers], lists.names[used], lists.sets)
