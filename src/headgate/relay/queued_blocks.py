"""Blocks that wait in an output: in order, with counts of what there is, taken together or apart for a pack."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from headgate.relay.bounds import Bounds
from headgate.relay.routes import Child, Receiver
from headgate.wire.block import Block, concat


@dataclass(frozen=True, slots=True)
class Waiting:
    """A block that waits in an output: for whom, since when, and how many rows had come to the output before it.

    `first` is where the block began when it came and `span_s` the time since the block before it: a micro-batch comes
    at once, but its rows were made over that time. `decided` says that rows of it were given up here: what it declares
    is known nowhere else until it is published, so it is published as a whole. What sites above gave up has no place
    inside of a block either, so a commit about which something is declared is not cut any more
    (`Block.exact_at`).
    """

    block: Block
    target: Child | Receiver
    since: float
    came: int = 0
    first: int = 0
    span_s: float = 0.0
    decided: bool = False
    size: int = field(init=False)
    """The bytes of its rows, asked for once, as that takes a look at every column."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.block.rows.nbytes if len(self.block.seqs) else 0)

    def due(self, rows: int) -> float:
        """When the next so many rows began to wait, in the mean, as if they had come evenly over the block's time."""
        size, waiting = self.block.upto - self.first, len(self.block.seqs)
        if size <= 0:
            return self.since
        gone = min(max((self.block.after - self.first) / size, 0.0), 1.0)
        next_part = min(rows / waiting, 1.0) if waiting else 1.0
        return self.since + self.span_s * (gone + (1.0 - gone) * next_part / 2)


class WaitingBlocks:
    """The blocks of an output's queue, and how many rows and bytes they hold, in all and for those with own limits."""

    def __init__(self) -> None:
        self.entries: deque[Waiting] = deque()
        self.rows = 0
        self.bytes = 0
        self.bounds = Bounds(())

    def add(self, each: Waiting, bounds: Bounds) -> None:
        """Put a block at the end; `bounds` are the limits of its receivers."""
        self.entries.append(each)
        self.rows += len(each.block.seqs)
        self.bytes += each.size
        if bounds is not self.bounds:
            self.bounds = bounds
            self._count_bounds()
        elif bounds:
            bounds.add(each.block)

    def advance(self, upto: int) -> None:
        """Take out what lies up to a sequence number."""
        while self.entries and self.entries[0].block.upto <= upto:
            gone = self.entries.popleft()
            self.rows -= len(gone.block.seqs)
            self.bytes -= gone.size
            if self.bounds:
                self.bounds.take(gone.block)
        if self.entries and self.entries[0].block.after < upto:
            first = self.entries[0]
            rest = replace(first, block=first.block.since(upto))
            self.rows -= len(first.block.seqs) - len(rest.block.seqs)
            self.bytes -= first.size - rest.size
            if self.bounds:
                self.bounds.take(first.block.until(upto))
            self.entries[0] = rest

    def apart(self, upto: int | None) -> tuple[list[Waiting], list[Waiting]]:
        """What lies up to a sequence number, and the rest; a block across it is cut there."""
        if upto is None:
            return [], list(self.entries)
        before, behind = [], []
        for each in self.entries:
            if each.block.upto <= upto:
                before.append(each)
            elif each.block.after >= upto:
                behind.append(each)
            else:
                before.append(replace(each, block=each.block.until(upto)))
                behind.append(replace(each, block=each.block.since(upto)))
        return before, behind

    def refill(self, waiting: Sequence[Waiting], leaving: int) -> None:
        """Put entries back; neighbours without rows become one, so that a queue is not much longer than its rows.

        What is on its way out ends at `leaving` and stays apart: it has declared its own, and the rest must not declare
        it again.
        """
        self.entries = deque()
        for each in waiting:
            last = self.entries[-1] if self.entries else None
            alike = last is not None and each.target is last.target and each.block.version == last.block.version
            if last is not None and alike and last.block.upto != leaving and _join(last.block, each.block):
                decided = last.decided or each.decided
                joined = concat([last.block, each.block])
                self.entries[-1] = replace(each, block=joined, since=last.since, decided=decided)
            else:
                self.entries.append(each)
        self.rows = sum(len(each.block.seqs) for each in self.entries)
        self.bytes = sum(each.size for each in self.entries)
        self._count_bounds()

    def _count_bounds(self) -> None:
        if self.bounds:
            self.bounds.clear()
            for each in self.entries:
                self.bounds.add(each.block)


def _join(first: Block, second: Block) -> bool:
    """Whether two blocks may become one: they have no rows, and it stays known which commit their declarations are of.

    Where rows of a commit cannot be read any more, its reader takes what was declared off the rows that it matched.
    """
    if len(first.seqs) or len(second.seqs) or first.upto != second.after:
        return False
    if not first.declared or first.commits[-1].upto == second.commits[-1].upto:
        return True
    return first.of_whole_commits and second.of_whole_commits


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


def apart_from_declared(block: Block) -> tuple[Block, ...]:
    """The block, or what comes before its last commit and that commit where something is declared of it."""
    begins = block.commits[-1].after
    if not block.declared or not len(block.seqs) or begins <= block.after:
        return (block,)
    return block.until(begins), block.since(begins)


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
