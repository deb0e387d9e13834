"""The Spark source `nats`: a JetStream subject with exact offsets, a continuity check and admission control.

An offset is the last sequence of the log that was read, and when that log was made. Every sequence of a range must be
there: a hole means that somebody deleted messages that were not read, and fails the batch or is declared as a row with
the reason, as the option `on_gap` says. A log that was made anew, or ends before what was read of it, is such a hole
too: its next messages have numbers that were read before. The log is read whole and filtered by subject here: with a
filter in the server, other subjects' messages could not be told from missing ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headgate.fabric import SyncFabric
from headgate.pipeline.sources.arrow import spark_arrow_schema, split_range
from headgate.pipeline.sources.declarations import GAP, decode_declarations
from headgate.pipeline.sources.nats_options import NatsSettings
from headgate.pipeline.sources.options import SourceError
from headgate.pipeline.sources.parcels import open_parcels
from headgate.pipeline.sources.payloads import PayloadMessage, dead_row, decode_arrow, decode_text
from headgate.wire.logs import Log

Offset = dict[str, Any]

_READ_MESSAGES = 512
_PARTITION_MESSAGES = 256


class SourceGapError(SourceError):
    """Messages of a range were deleted before they were read."""


@dataclass
class MessageRange(InputPartition):
    """Messages [first, stop) of a log, after a gap with that reason if there is one."""

    log: str
    first: int
    stop: int
    gap: str | None = None


class NatsSource(DataSource):
    """Registered as `nats`. The schema is given by `sources.read`, which knows the stream's."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "nats"

    def streamReader(self, schema: StructType) -> NatsReader:
        """A reader of the columns asked for."""
        return NatsReader(NatsSettings.of(dict(self.options)), schema)


class NatsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"sequence": last sequence read, "made": when the log was made}`."""

    def __init__(self, settings: NatsSettings, schema: StructType) -> None:
        self.settings = settings
        self.target = spark_arrow_schema(schema)
        self.closed_at: int | None = None
        self._fabric: SyncFabric | None = None
        self._log: Log | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fabric": None}

    @property
    def fabric(self) -> SyncFabric:
        """The planner's connection, opened when it is first needed."""
        if self._fabric is None:
            self._fabric = self.settings.connect()
        return self._fabric

    @property
    def log(self) -> Log:
        """The log that holds the subject."""
        if self._log is None:
            name = self.settings.log or _log_of(self.fabric, self.settings.subject)
            self._log = Log(name, (self.settings.subject,), -1)
        return self._log

    def _bounds(self) -> tuple[int, int, str]:
        """The first sequence that the log holds, the last that it ever held, and when it was made."""
        info = self.fabric.run(self.fabric.fabric.info(self.log))
        if info is None:
            raise SourceError(f"there is no log {self.log.name!r}", hint="is the deployment up, is `log` right?")
        last = int(info.state.last_seq)
        made = "" if info.created is None else info.created.isoformat()
        return min(max(1, int(info.state.first_seq)), last + 1), last, made

    def initialOffset(self) -> Offset:
        """Where a new query starts."""
        first, last, made = self._bounds()
        if self.settings.start == "new":
            return {"sequence": last, "made": made}
        return {"sequence": (first if self.settings.start == "first" else int(self.settings.start)) - 1, "made": made}

    def getDefaultReadLimit(self) -> ReadLimit:
        """At most `max_messages_per_trigger`; a message counts as a row here."""
        limit = self.settings.max_messages
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """What the log holds, up to the limit of this micro-batch."""
        first, last, made = self._bounds()
        reason = self._backwards(start, last, made)
        if reason is not None:
            if not self.settings.declare_gaps:
                raise SourceGapError(reason, hint="restore that log, or `on_gap: declare` goes on and declares it")
            return {"sequence": last if start.get("made", made) == made else first - 1, "made": made}
        last = last if self.closed_at is None else self.closed_at
        if isinstance(limit, ReadMaxRows):
            last = min(last, start["sequence"] + limit.max_rows)
        return {**start, "sequence": max(last, start["sequence"])}

    def _backwards(self, start: Offset, last: int, made: str) -> str | None:
        """What is wrong if the log is not the one that was read, or ends before what was read of it."""
        name, read, before = self.log.name, start["sequence"], start.get("made", made)
        if before != made:
            return f"{GAP}: {name} was made anew at {made}; of one made at {before} messages up to {read} were read"
        if last < read and self.settings.start != str(read + 1):
            return (
                f"{GAP}: {name} ends with message {last}, but messages up to {read} were read: it was restored from an "
                "older state"
            )
        return None

    def reportLatestOffset(self) -> Offset:
        """The log's end, for the query's progress."""
        _, last, made = self._bounds()
        return {"sequence": last, "made": made}

    def prepareForTriggerAvailableNow(self) -> None:
        """What is published from now on belongs to a later query."""
        self.closed_at = self._bounds()[1]

    def partitions(self, start: Offset, end: Offset) -> list[MessageRange]:
        """Contiguous ranges in the log's order."""
        made = str(end.get("made", ""))
        reason = self._backwards(start, end["sequence"], made or start.get("made", ""))
        now = self._bounds()[2]
        if made not in ("", now):  # a batch that was planned before the log was made anew
            reason = f"{GAP}: messages up to {end['sequence']} of {self.log.name} are gone: it was made anew at {now}"
            if not self.settings.declare_gaps:
                raise SourceGapError(reason, hint="restore that log, or `on_gap: declare` goes on and declares it")
        if reason is not None:
            return [MessageRange(self.log.name, 0, 0, reason)]
        ranges = split_range(start["sequence"] + 1, end["sequence"] + 1, self.settings.partitions, _PARTITION_MESSAGES)
        return [MessageRange(self.log.name, first, stop) for first, stop in ranges]

    def commit(self, end: Offset) -> None:
        """Delete what a committed batch has read, all but its last message, where the log is ours."""
        if self.settings.purge and end["sequence"] > 1 and end.get("made") in (None, self._bounds()[2]):
            for subject in filter(None, (self.settings.subject, self.settings.unsent)):
                self.fabric.purge(self.log, subject, end["sequence"])
            self._purge_carried(end["sequence"])

    def _purge_carried(self, sequence: int) -> None:
        """Delete parcels that were read, but for the last: it says what the root has taken of each site."""
        if self.settings.carried is not None:
            last = self.fabric.last(self.log, self.settings.carried)
            if last is not None:
                self.fabric.purge(self.log, self.settings.carried, min(sequence, last.sequence))

    def stop(self) -> None:
        """Close the planner's connection."""
        if self._fabric is not None:
            self._fabric.close()
            self._fabric = None

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a range as Arrow batches, in the log's order."""
        wanted = subject_pattern(self.settings.subject)
        if partition.gap is not None:
            yield dead_row(None, partition.gap, self.target)
            return
        with self.settings.connect() as fabric:
            for found in read_range(fabric, partition.log, partition.first, partition.stop):
                if isinstance(found, MissingSequences):
                    yield self._gap(found)
                    continue
                opened = open_parcels(found, self.settings.carried, self.target)
                yield from opened.misfits
                messages = [
                    PayloadMessage(stored.sequence, stored.data)
                    for stored in opened.messages
                    if wanted.fullmatch(stored.subject)
                ]
                if self.settings.payload == "arrow":
                    yield from decode_arrow(messages, self.target)
                else:
                    yield decode_text(messages, lines=self.settings.payload == "jsonl").cast(self.target)
                given_up = [stored for stored in opened.messages if stored.subject == self.settings.unsent]
                yield from decode_declarations(
                    [PayloadMessage(stored.sequence, stored.data) for stored in given_up], self.target
                )

    def _gap(self, gap: MissingSequences) -> pa.RecordBatch:
        reason = f"{GAP}: messages {gap.first} to {gap.last} of {gap.log} were deleted before they were read"
        if not self.settings.declare_gaps:
            raise SourceGapError(reason, hint="`on_gap: declare` goes on and declares it")
        return dead_row(None, reason, self.target)


@dataclass(frozen=True, slots=True)
class MissingSequences:
    """Sequences first to last of a log are not there."""

    log: str
    first: int
    last: int


def read_range(fabric: SyncFabric, log: str, first: int, stop: int) -> Iterator[Any]:
    """Lists of messages of [first, stop) in order, with a `MissingSequences` wherever some are missing between them."""
    everything = Log(log, (">",), -1)
    expected = first
    while expected < stop:
        found = fabric.read(everything, ">", expected - 1, limit=min(_READ_MESSAGES, stop - expected))
        found = [stored for stored in found if stored.sequence < stop]
        run: list[Any] = []
        for stored in found:
            if stored.sequence != expected:
                if run:
                    yield run
                    run = []
                yield MissingSequences(log, expected, stored.sequence - 1)
            run.append(stored)
            expected = stored.sequence + 1
        if run:
            yield run
        if not found:
            yield MissingSequences(log, expected, stop - 1)
            return


def subject_pattern(subject: str) -> re.Pattern[str]:
    """A regular expression for a subject with NATS's wildcards.

    >>> bool(subject_pattern("a.*.c").fullmatch("a.b.c")), bool(subject_pattern("a.>").fullmatch("a"))
    (True, False)
    """
    wild = {"*": "[^.]+", ">": ".+"}
    return re.compile(r"\.".join(wild.get(part, re.escape(part)) for part in subject.split(".")))


def _log_of(fabric: SyncFabric, subject: str) -> str:
    """The name of the JetStream stream that holds a subject."""
    names = fabric.run(fabric.fabric.names(subject))
    if len(names) != 1:
        found = "no log holds" if not names else f"{', '.join(names)} all hold"
        raise SourceError(f"{found} the subject {subject!r}", hint="give the option `log`")
    return str(names[0])
