"""A subscriber of the simulated world: takes what its reader hands over, checks all of it, and may stop at any time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headgate.wire.block import EXPIRED, Block
from headgate.wire.ledger import Tally
from headgate_studies.testing.world.oracle import Oracle
from headgate_studies.testing.world.thinned import ThinnedTruth

VALUE: Final = "value"


class BrokenPromise(AssertionError):  # noqa: N818 # it is what was found, not an error of the program
    """A promise that was not kept."""


@dataclass
class Subscriber:
    """What a subscription's consumer has seen. It keeps this with its position, as a careful consumer would.

    `mark` is where the next block has to begin, `since` where the running sums began, which is where the subscription
    was owed its first row or where it was read again from an earlier acknowledgement. `done` is what it has finished.
    `told` says that its acknowledgement was damaged, and that its reader says so: it counts from what is left.
    `accepts` says that it was told that rows behind its mark are gone, and reads on after them.
    """

    name: str
    id: int
    stream: str
    past: int | None = None
    mark: int | None = None
    done: int = 0
    owed: int = 0
    delivered: int = 0
    given_up: dict[str, int] = field(default_factory=dict)
    position: bytes | None = None
    blocks: int = 0
    told: bool = False
    accepts: bool = False
    thinned: ThinnedTruth | None = None

    def take(self, block: Block, tally: Tally, oracle: Oracle) -> None:
        """Check a block that was handed over, and remember it."""
        if self.accepts and self.mark is not None and tally.starts is not None and tally.starts > self.mark:
            self.mark, self.owed, self.delivered, self.given_up = tally.starts, 0, 0, {}
        self.accepts = False
        if self.mark is not None and block.after != self.mark:
            raise BrokenPromise(f"{self.name}: a block after {block.after} follows the coverage {self.mark}")
        if self.mark is None and not self.told:
            begins = 0 if self.past is not None else oracle.starts(self.stream, self.id)
            if block.after != begins:
                raise BrokenPromise(f"{self.name}: the first block begins after {block.after}, owed from {begins} on")
        self.owed += self._check_rows(block, oracle)
        self.mark = block.upto
        self.blocks += 1
        self.delivered += len(block.seqs)
        for reason, count in block.declared.get(self.id, {}).items():
            self.given_up[reason] = self.given_up.get(reason, 0) + count
        if block.at_boundary:
            self._check_sums(tally)

    def _check_rows(self, block: Block, oracle: Oracle) -> int:
        """Every row is owed, in order, once, and holds what was committed; returns how many are owed."""
        seqs = block.seqs.tolist()
        owed = oracle.rows(self.stream, self.id, block.after, block.upto, past=self.past)
        if seqs != sorted(set(seqs)) or not set(seqs) <= set(owed):
            raise BrokenPromise(f"{self.name}: rows {seqs[:8]} in ({block.after}, {block.upto}], owed are {owed[:8]}")
        truth = oracle.streams[self.stream]
        if self.thinned is not None:
            problem = self.thinned.check(block, owed, truth)
            if problem is not None:
                raise BrokenPromise(f"{self.name}: {problem}")
            if self.thinned.subscription.average_s is not None:  # values are means, and compared with those
                return len(owed)
        if VALUE in block.rows.schema.names and block.rows.column(VALUE).to_pylist() != truth.values(seqs):
            raise BrokenPromise(
                f"{self.name}: rows of ({block.after}, {block.upto}] hold other values than were committed"
            )
        return len(owed)

    def _check_sums(self, tally: Tally) -> None:
        """Up to here, owed = delivered + reduced + expired, by this consumer's sums and by the tally's."""
        counted = tally.delivered + sum(tally.reduced.values()) + tally.expired
        mine = self.delivered + sum(self.given_up.values())
        if tally.boundary != self.mark or not self.owed == counted == mine:
            raise BrokenPromise(
                f"{self.name}: at {tally.boundary} (coverage {self.mark}) {self.owed} rows are owed, the tally has "
                f"{counted} ({tally.delivered} delivered, {dict(tally.reduced)}, {tally.expired} expired), "
                f"the consumer {mine}"
            )

    def go_back(self, tally: Tally, oracle: Oracle) -> None:
        """Read again from what was acknowledged: what came after it comes again."""
        self.mark = None if tally.starts is None else tally.mark
        self.done = tally.mark
        self.position = tally.encode()
        rows = (
            [] if tally.starts is None else oracle.rows(self.stream, self.id, tally.starts, tally.mark, past=self.past)
        )
        self.owed = len(rows)
        self.delivered = tally.delivered + tally.since.delivered
        self.given_up = dict(tally.reduced)
        for reason, count in tally.since.reduced.items():
            self.given_up[reason] = self.given_up.get(reason, 0) + count
        expired = tally.expired + tally.since.expired
        if expired:
            self.given_up[EXPIRED] = expired
