"""What a task tells the driver about what it staged, as one typed record: its columns, its encoder and its decoder.

`StagedRow` describes the columns. A task writes batches of them (`encode_staged`), Spark carries them to the driver,
and there they are one table, `Staged`, which answers what the commit, the controller and the reports ask. Every row
carries the version of the format, so that a worker that runs another version of Headgate is found out before anything
is committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.matching.admission.class_errors import add_errors
from headgate.pipeline.counts import sum_counts
from headgate.reduction import merged
from headgate.wire.frame import WireError
from headgate.wire.integers import decode_sorted, decode_uints
from headgate.wire.manifest import PartRef
from headgate.wire.unsent import Unsent, decode_unsent

STAGED_FORMAT: Final = 4

UInts = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRow:
    """One row of what a task tells. The kind says which columns count; the others are zero or empty.

    `part`: rows in the root log at `log_sequence` (0 where nobody wants any), of which `kept` of `evaluated` matched.
    `dead`: a message of dead letters there, `dead` of them. `unsent`: a sender's declaration.
    `withheld`: rows that were not matched for the classes of a `tolerance`.
    `batch`: what became of one Arrow batch, what it took, what samples say about errors of admission control, and a few
    of its rows, drawn at random.
    `slow`: a class that took far more for each row than was estimated.
    `partition`: matched rows by class and what the context updates took, once at the end, and of the classes that are
    evaluated one by one the rows and nanoseconds of each.
    `memory`: what derived columns remember of the keys of a `partition`, up to the message at `log_sequence`, going on
    from the whole memory that begins at `whole`: keys and rows, keys that were forgotten, and rows of this micro-batch
    of which a derived column cannot be known.
    """

    kind: Literal["part", "dead", "unsent", "withheld", "batch", "slow", "partition", "memory"]
    format: int = STAGED_FORMAT
    log_sequence: int = 0
    evaluated: int = 0
    kept: int = 0
    dead: int = 0
    unsent: str = ""
    tolerance: str = ""
    withheld: int = 0
    shed: int = 0
    partly_shed: int = 0
    late: int = 0
    event_ms: float = 0.0
    events: int = 0
    busy_s: float = 0.0
    match_s: float = 0.0
    class_s: float = 0.0
    class_bytes: int = 0
    missed: float = 0.0
    missed_var: float = 0.0
    wrong: float = 0.0
    wrong_var: float = 0.0
    sampled: int = 0
    class_errors: str = ""
    sample: bytes = b""
    trouble: str = ""
    classes: int = 0
    class_ids: bytes = b""
    class_counts: bytes = b""
    given: int = 0
    age_s: float = 0.0
    updates: int = 0
    update_s: float = 0.0
    slow_class: int = 0
    slow_us: float = 0.0
    slow_limit_us: float = 0.0
    spent_classes: int = 0
    spent_ids: bytes = b""
    spent_rows: bytes = b""
    spent_ns: bytes = b""
    partition: int = 0
    whole: int = 0
    held_keys: int = 0
    held_rows: int = 0
    forgotten_keys: int = 0
    unknown_rows: int = 0


class MemoryRef(NamedTuple):
    """What is remembered of the keys of a partition: its newest message, where its whole begins, keys and rows."""

    partition: int
    place: int
    whole: int
    keys: int
    rows: int
    forgotten: int


_COLUMNS: Final = tuple(column.name for column in fields(StagedRow))
_ARROW: Final = {int: pa.int64(), float: pa.float64(), bytes: pa.binary(), str: pa.string()}
_SPARK: Final = {int: "bigint", float: "double", bytes: "binary", str: "string"}
_PYTHON: Final = {name: str if name == "kind" else type(getattr(StagedRow(kind="part"), name)) for name in _COLUMNS}

STAGED: Final = pa.schema([(name, _ARROW[_PYTHON[name]]) for name in _COLUMNS])
STAGED_DDL: Final = ", ".join(f"{name} {_SPARK[_PYTHON[name]]}" for name in _COLUMNS)


def encode_staged(rows: Sequence[StagedRow]) -> pa.RecordBatch:
    """The rows as a task gives them to Spark.

    >>> encode_staged([StagedRow(kind="part", log_sequence=7, evaluated=3, kept=2)]).num_rows
    1
    """
    columns = [pa.array([getattr(row, name) for row in rows], STAGED.field(name).type) for name in _COLUMNS]
    return pa.RecordBatch.from_arrays(columns, schema=STAGED)


@dataclass(frozen=True, slots=True)
class Staged:
    """All that the tasks of a micro-batch told, in partition order."""

    table: pa.Table

    def __post_init__(self) -> None:
        """Refuse what another version of Headgate wrote."""
        formats = self.table.column("format").unique().to_pylist()
        if formats not in ([], [STAGED_FORMAT]):
            raise WireError(
                f"workers told what they staged in the formats {formats}, this driver reads {STAGED_FORMAT}",
                hint="give the workers of the Spark cluster the same version of Headgate as the driver",
            )

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> Self:
        """From the batches of tasks that ran in this process."""
        return cls(pa.Table.from_batches(batches, STAGED))

    @classmethod
    def collected(cls, rows: Sequence[Sequence[Any]]) -> Self:
        """From the rows that Spark collected, each with a value for every column of `STAGED_DDL`."""
        columns = zip(*rows, strict=True) if rows else [()] * len(_COLUMNS)
        return cls(
            pa.table([pa.array(values, field.type) for values, field in zip(columns, STAGED, strict=True)], STAGED)
        )

    def total(self, column: str) -> Any:
        """The sum of a column.

        >>> Staged.of([encode_staged([StagedRow(kind="part", kept=2), StagedRow(kind="part", kept=3)])]).total("kept")
        5
        """
        return pc.sum(self.table.column(column), min_count=0).as_py()

    def count(self, kind: str) -> int:
        """How many rows of a kind were told."""
        return int(pc.sum(pc.equal(self.table.column("kind"), kind), min_count=0).as_py())

    def most(self, column: str) -> Any:
        """The largest value of a column, 0 where nothing was told."""
        return pc.max(self.table.column(column)).as_py() or 0

    def parts(self) -> tuple[PartRef, ...]:
        """The parts that were staged, in the order of their rows."""
        return tuple(PartRef(*row) for row in self._of_kind("part", "log_sequence", "evaluated", "kept"))

    def dead_letters(self) -> tuple[PartRef, ...]:
        """The messages of dead letters that were staged."""
        return tuple(PartRef(place, 0, dead) for place, dead in self._of_kind("dead", "log_sequence", "dead"))

    def unsent(self) -> Unsent | None:
        """What senders have given up, as declared in this micro-batch."""
        return reduce(merged, (decode_unsent(text) for (text,) in self._of_kind("unsent", "unsent")), None)

    def withheld(self) -> dict[str, int]:
        """By what groups of classes tolerate, how many rows were withheld from each."""
        found: dict[str, int] = {}
        for tolerance, count in self._of_kind("withheld", "tolerance", "withheld"):
            found[tolerance] = found.get(tolerance, 0) + count
        return found

    def slow(self) -> dict[int, tuple[float, float]]:
        """Classes that took too long: microseconds a row, the most of all tasks, and what was allowed."""
        found: dict[int, tuple[float, float]] = {}
        for identity, row_us, limit_us in self._of_kind("slow", "slow_class", "slow_us", "slow_limit_us"):
            found[identity] = max(found.get(identity, (0.0, 0.0)), (row_us, limit_us))
        return found

    def memory(self) -> list[MemoryRef]:
        """What derived columns remember, of the partitions where that has changed."""
        columns = ("partition", "log_sequence", "whole", "held_keys", "held_rows", "forgotten_keys")
        return [MemoryRef(*row) for row in self._of_kind("memory", *columns)]

    def spent(self) -> dict[int, tuple[int, float]]:
        """Of every class that is evaluated one by one, the rows that it was evaluated on and seconds."""
        found: dict[int, tuple[int, float]] = {}
        for size, *packed in self._of_kind("partition", "spent_classes", "spent_ids", "spent_rows", "spent_ns"):
            if size:
                ids, rows, spent_ns = decode_sorted(packed[0], size), *(decode_uints(each, size) for each in packed[1:])
                for identity, count, taken_ns in zip(ids.tolist(), rows.tolist(), spent_ns.tolist(), strict=True):
                    before = found.get(identity, (0, 0.0))
                    found[identity] = before[0] + count, before[1] + taken_ns / 1e9
        return found

    def samples(self) -> list[bytes]:
        """The rows that were drawn at random, as `headgate.wire.row_sample` encodes them."""
        return [data for (data,) in self._of_kind("batch", "sample") if data]

    def class_errors(self) -> dict[int, tuple[float, float, float, float]]:
        """By class, matches missed and wrong by samples, each with its variance."""
        told = [json.loads(text) for (text,) in self._of_kind("batch", "class_errors") if text]
        return add_errors({int(each): tuple(found) for each, found in part.items()} for part in told)

    def class_counts(self) -> tuple[UInts, UInts]:
        """Class ids, ascending, and how many rows matched each."""
        rows = self._of_kind("partition", "classes", "class_ids", "class_counts")
        return sum_counts(
            [(decode_sorted(ids, size), decode_uints(counts, size)) for size, ids, counts in rows if size]
        )

    def troubles(self) -> set[str]:
        """What workers complained of."""
        return {text for (text,) in self._of_kind("batch", "trouble") if text}

    def mean_event_ms(self) -> float | None:
        """The mean time at which the rows were made, None where they do not say."""
        events = self.total("events")
        weighted = pc.multiply(self.table.column("event_ms"), self.table.column("events"))
        return pc.sum(weighted).as_py() / events if events else None

    def _of_kind(self, kind: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.table.filter(pc.equal(self.table.column("kind"), kind))
        return list(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))
