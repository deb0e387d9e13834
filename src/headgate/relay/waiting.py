"""Blocks that wait in an output, and how they are taken together or apart for a pack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headgate.relay.routes import Child, Receiver
from headgate.wire.block import Block


@dataclass(frozen=True, slots=True)
class Waiting:
    """A block that waits in an output: for whom, since when, and how many rows had come to the output before it.

    `first` is where the block began when it came and `span_s` the time since the block before it: a micro-batch comes
    at once, but its rows were made over that time. `decided` says that rows of it were given up here: what it declares
    is known nowhere else until it is published, so it is published as a whole.
    """

    block: Block
    target: Child | Receiver
    since: float
    came: int = 0
    first: int = 0
    span_s: float = 0.0
    decided: bool = False

    def due(self, rows: int) -> float:
        """When the next so many rows began to wait, in the mean, as if they had come evenly over the block's time."""
        size, waiting = self.block.upto - self.first, len(self.block.seqs)
        if size <= 0:
            return self.since
        gone = min(max((self.block.after - self.first) / size, 0.0), 1.0)
        next_part = min(rows / waiting, 1.0) if waiting else 1.0
        return self.since + self.span_s * (gone + (1.0 - gone) * next_part / 2)


def runs(waiting: Sequence[Waiting]) -> Iterator[list[Waiting]]:
    """Neighbours that can be looked at together: the same columns for the same receivers."""
    run: list[Waiting] = []
    for each in waiting:
        if run and (each.target is not run[-1].target or each.block.rows.schema != run[-1].block.rows.schema):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def for_decisions(each: Waiting, most: int) -> Iterator[Waiting]:
    """The block in pieces that can be published as a whole: of one commit, and of at most so many rows.

    A block without rows is left whole: what it declares is of all its commits. So is one that was decided on before.
    """
    if each.decided or not len(each.block.seqs):
        yield each
        return
    rest = each.block
    for commit in each.block.commits:  # commits without rows may have been left out: the next one covers them
        for piece in rest.until(commit.upto).pieces(most):
            yield replace(each, block=piece)
        rest = rest.since(commit.upto)


def meant_for(block: Block, target: Child | Receiver) -> Block:
    """The block with the digests of the receivers behind the output only."""
    if not block.digests:
        return block
    mine = {target.id} if isinstance(target, Receiver) else {receiver.id for receiver in target.receivers}
    return replace(block, digests={receiver: found for receiver, found in block.digests.items() if receiver in mine})


def front_of(waiting: list[Waiting], rows: int) -> tuple[list[Waiting], list[Waiting]]:
    """The first rows, and the rest."""
    for index, each in enumerate(waiting):
        count = len(each.block.seqs)
        if count > rows:
            if rows <= 0 or each.decided:
                return waiting[:index], waiting[index:]
            end = int(each.block.seqs[rows - 1])
            head, tail = replace(each, block=each.block.until(end)), replace(each, block=each.block.since(end))
            return [*waiting[:index], head], [tail, *waiting[index + 1 :]]
        rows -= count
    return waiting, []
