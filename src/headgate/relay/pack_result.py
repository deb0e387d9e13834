"""What a pack leaves: the blocks with the rows that stay, and what went declared in the block that it was in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.reduction import Digest, merged
from headgate.reduction.digest import DigestTable
from headgate.reduction.digesters import Digester
from headgate.reduction.rows import Bools
from headgate.relay.link_rows import Note
from headgate.relay.queued_blocks import Waiting
from headgate.wire.block import merge_declared, merge_digests
from headgate.wire.patch import Patches, restricted


def leave(
    run: Sequence[Waiting],
    everything: pa.RecordBatch,
    kept: Bools,
    notes: Sequence[Note],
    lists: ClassLists | None,
    patches: Patches,
    left: pa.RecordBatch | None,
    digesters_of: Mapping[int, tuple[Digester, ...]],
) -> tuple[list[Waiting], Counter[str]]:
    """The blocks of a run with the rows that stay, what went declared in the block that it was in; and counts of it.

    `everything` are the rows of the run, `left` those that stay where they were rewritten.
    """
    reasons_of_all: Counter[str] = Counter()
    ends = np.cumsum([len(each.block.seqs) for each in run])
    starts = np.concatenate([[0], ends[:-1]])
    before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
    rows = everything.filter(pa.array(kept)) if left is None else left
    seqs = np.concatenate([each.block.seqs for each in run])
    declared: list[dict[int, dict[str, int]]] = [{} for _ in run]
    digests: list[dict[int, Digest]] = [{} for _ in run]
    for receiver, why, names in notes:
        for index in np.unique(np.searchsorted(ends, np.flatnonzero(why >= 0), side="right")).tolist():
            inside = np.flatnonzero(why[starts[index] : ends[index]] >= 0) + starts[index]
            found = np.bincount(why[inside], minlength=len(names))
            reasons = {name: int(count) for name, count in zip(names, found, strict=True) if count}
            reasons_of_all.update(reasons)
            declared[index] = merge_declared(declared[index], {receiver: reasons})
            digesters = digesters_of.get(receiver, ())
            if digesters:
                gone = everything.take(pa.array(inside))
                digest = DigestTable.of(gone, seqs[inside], why[inside], names, digesters).total()
                joined = merged(digests[index].get(receiver), digest)
                assert joined is not None
                digests[index][receiver] = joined
    result = []
    for index, each in enumerate(run):
        low, high = int(before[starts[index]]), int(before[ends[index]])
        inside = np.flatnonzero(kept[starts[index] : ends[index]])
        block = replace(
            each.block,
            seqs=each.block.seqs[inside],
            rows=rows.slice(low, high - low),
            classes=each.block.classes if lists is None else lists.slice(low, high),
            declared=merge_declared(each.block.declared, declared[index]),
            digests=merge_digests(each.block.digests, digests[index]),
            patches=restricted(patches, each.block.after, each.block.upto),
        )
        changed = len(inside) < len(each.block.seqs) or bool(declared[index])
        result.append(replace(each, block=block, decided=each.decided or changed))
    return result, reasons_of_all
