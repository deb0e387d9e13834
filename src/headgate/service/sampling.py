"""What a committed block says about its stream: which classes its rows satisfy together, and their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.planning.measured import Observed
from headgate.wire.block import Block
from headgate.wire.message import encode_block
from headgate.wire.rows import encode_rows

MOST_ROWS = 4000


@dataclass(frozen=True, slots=True)
class Sample:
    """One block: rows evaluated, how many satisfied each set of classes, and bytes by column and besides per row."""

    version: int
    evaluated: int
    classes: dict[frozenset[int], float]
    column_bytes: dict[str, float]
    base_bytes: float


def sample(block: Block, version: int, message_rows: int) -> Sample:
    """Look at a block as the root has it. Sizes are those of messages of `message_rows` rows, compressed and framed.

    Each column is encoded alone, so the sum is a little more than what all together take; what is left of a whole
    message is the row's own cost. Measured bytes on links put the level right.
    """
    assert block.classes is not None
    count, lists = len(block.seqs), block.classes
    step = max(1, count // MOST_ROWS)
    _, firsts, numbers = np.unique(lists.set_of_row()[::step], return_index=True, return_counts=True)
    looked = max(1, int(numbers.sum()))
    classes: dict[frozenset[int], float] = {}
    for row, number in zip((firsts * step).tolist(), numbers.tolist(), strict=True):
        ids = frozenset(lists.row(row).tolist())
        classes[ids] = classes.get(ids, 0.0) + number * count / looked
    size = min(max(message_rows, 1), count)
    if not size:
        return Sample(version, block.upto - block.after, classes, {}, 0.0)
    piece = block.take(np.arange(size))
    columns = {name: len(encode_rows(piece.rows.select([name]))) / size for name in piece.rows.schema.names}
    whole = len(encode_block(piece)) / size
    together = len(encode_rows(piece.rows)) / size
    scale = together / max(sum(columns.values()), 1e-9)
    return Sample(
        version,
        block.upto - block.after,
        classes,
        {name: value * scale for name, value in columns.items()},
        max(whole - together, 0.0),
    )


def observed(samples: Sequence[Sample], rate_rows_per_s: float, wanted: frozenset[int]) -> Observed:
    """A stream by its samples, as far as the classes that are wanted go."""
    evaluated = sum(each.evaluated for each in samples)
    classes: dict[frozenset[int], float] = {}
    for each in samples:
        for ids, rows in each.classes.items():
            classes[ids & wanted] = classes.get(ids & wanted, 0.0) + rows / evaluated
    columns = {
        column: sum(each.column_bytes[column] for each in samples) / len(samples) for column in samples[-1].column_bytes
    }
    return Observed(rate_rows_per_s, classes, columns, sum(each.base_bytes for each in samples) / len(samples))
