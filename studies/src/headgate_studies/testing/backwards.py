"""State that moves backwards, goes away or is exchanged: ``python -m headgate_studies.testing.backwards --rounds 100``.

A round runs a stream's batches for each kind of source (files, nats, generator) with the real committer on a real NATS
server, and a model of Spark's checkpoint (`model_query`). At random moments the driver is killed, and the checkpoint,
the root log or the source's own log is moved back to an older state, deleted, cut off or exchanged. Whoever is refused
at a start either restores what the message asks for or accepts the loss, by chance. In the end every row must have been
committed once, or the user must have been told: 0 rows may be lost without a word.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.fabric import EmbeddedServer, SyncFabric
from headgate.model import Schema, Source, Stream
from headgate.pipeline.sources.generators import ORIGIN_US
from headgate.pipeline.sources.nats import SourceGapError
from headgate.protocol.commits import LineageError
from headgate.wire.logs import Logs
from headgate_studies.testing.model_query import (
    FileSource,
    KilledError,
    ModelQuery,
    ModelSource,
    ReaderSource,
    committed_rows,
)

KINDS: Final = ("files", "nats", "generator")
KILLS: Final = ("", "planned", "staged", "committed")
STEPS: Final = 8


@dataclass
class BackwardsOutcome:
    """What a round did and found; rows by name where they are wrong."""

    kind: str
    seed: int
    moves: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    rows: int = 0
    lost_silently: list[str] = field(default_factory=list)
    twice_silently: list[str] = field(default_factory=list)


class BackwardsWorld:
    """One stream of a kind with its state, and the moves that happen to it."""

    def __init__(self, kind: str, url: str, directory: Path, seed: int) -> None:
        self.kind, self.url, self.directory = kind, url, directory
        self.chance = random.Random(seed)
        self.logs = Logs(f"b{uuid.uuid4().hex[:10]}")
        self.fabric = SyncFabric(url, self.logs)
        for log in (self.logs.root("s"), self.logs.input("s"), self.logs.state):
            self.fabric.ensure(log)
        self.folder = directory / "in"
        self.folder.mkdir(parents=True)
        self.checkpoint = directory / "checkpoint"
        self.backups: list[Path] = []
        self.produced: list[str] = []
        self.ever: set[str] = set()  # rows that were in the root log at some time
        self.deleted: set[str] = set()  # rows that were deleted from the source
        self.forgiven: set[str] = set()  # rows of which the user was told that they are or may be gone
        self.repeated = False  # the user was told that rows may come twice
        self.declares = self.accepts = False
        self.outcome = BackwardsOutcome(kind, seed)
        formats = {"files": "text", "nats": "nats", "generator": "generator"}
        self.stream = Stream("s", Schema.of({"value": "string"}), Source(formats[kind], {}), "root")

    def close(self) -> None:
        """Delete the logs and close the connection."""
        for log in (self.logs.root("s"), self.logs.input("s"), self.logs.state):
            self.fabric.run(self.fabric.fabric.delete(log))
        self.fabric.close()

    # The source

    def source(self) -> ModelSource:
        """The source as a query that starts has it."""
        from pyspark.sql.types import StringType, StructType, TimestampType

        from headgate.pipeline.sources.generator_options import GeneratorSettings
        from headgate.pipeline.sources.nats import NatsReader
        from headgate.pipeline.sources.nats_options import NatsSettings
        from headgate.pipeline.sources.paced import PacedReader

        if self.kind == "files":
            return FileSource(self.folder)
        if self.kind == "nats":
            gap = "declare" if self.declares else "fail"
            options = {"url": self.url, "namespace": self.logs.namespace, "stream": "s", "payload": "json"}
            settings = NatsSettings.of({**options, "on_gap": gap})
            schema = StructType().add("value", StringType()).add("_error", StringType())
            return ReaderSource(lambda: NatsReader(settings, schema), self._named)
        ticks = GeneratorSettings.of({"kind": "ticks", "limit": str(max(1, len(self.produced))), "pace": "none"})
        schema = StructType().add("at", TimestampType())
        return ReaderSource(lambda: PacedReader(ticks, schema), lambda row: str(row["at"]))

    def _named(self, row: dict[str, Any]) -> str:
        if row["_error"] is not None:
            self.tell(str(row["_error"]))
            return f"declared {len(self.outcome.told)}"
        return str(row["value"])

    def produce(self, count: int) -> None:
        """New rows at the source."""
        first = len(self.produced)
        names = [f"row {number}" for number in range(first, first + count)]
        if self.kind == "generator":
            from headgate.pipeline.sources import generate

            rows = generate("ticks", 0, first, first + count, rate=100.0)
            names = [str(value) for value in rows.column("at").to_pylist()]
        self.produced += names
        if self.kind == "files":
            (self.folder / f"{first:06d}.txt").write_text("\n".join(names))
        if self.kind == "nats":
            for name in names:
                self.fabric.publish(self.logs.published("s"), name.encode())

    # Running

    def run(self) -> None:
        """Start the query, as often as it is refused, and run a few batches; it may be killed in one."""
        kill, batches = self.chance.choice(KILLS), self.chance.randint(1, 5)
        for _ in range(4):
            source = self.source()
            try:
                query = ModelQuery(self.fabric, self.stream, self.checkpoint, source, accept=self.accepts)
                self.accepts = False
                query.run(batches, kill)
            except KilledError:
                return
            except (LineageError, SourceGapError, RuntimeError) as error:
                self.tell(str(error))
                self._answer(error)
                continue
            finally:
                source.stop()
                self.ever.update(self.committed())
            return
        raise AssertionError(f"{self.kind}, seed {self.outcome.seed}: refused four times: {self.outcome.told[-4:]}")

    def tell(self, message: str) -> None:
        """What the user hears: that rows which were deleted at the source or from the root log are gone."""
        self.outcome.told.append(message)
        self.forgiven |= self.deleted | (self.ever - set(self.committed()))

    def committed(self) -> list[str]:
        """The rows that the root log holds."""
        return committed_rows(self.fabric, "s")[0]

    def _answer(self, error: Exception) -> None:
        """Do what the message offers: delete the checkpoint, or accept what is gone."""
        if isinstance(error, SourceGapError):
            self.declares = True
        elif isinstance(error, LineageError) and "was committed by the checkpoint" not in str(error):
            self.accepts = True
            if "exchange" in self.outcome.moves:  # it says that it goes on after that checkpoint, wherever that is
                self.forgiven |= set(self.produced)
        else:  # of another stream, or what Spark cannot read
            shutil.rmtree(self.checkpoint)
            self.accepts = self.chance.random() < 0.3  # or from the source's start
            self.repeated |= self.accepts

    # Moves

    def move(self) -> None:
        """Something happens to the state while nothing runs."""
        moves: list[Callable[[], None]] = [
            self.nothing, self.back_up, self.take_back, self.restore, self.delete, self.exchange, self.cut_off,
            self.cut_root_log, self.lose_root_log,
        ]  # fmt: skip
        if self.kind == "nats":
            moves += [self.purge_source, self.remake_source]
        move = self.chance.choice(moves)
        self.outcome.moves.append(move.__name__)
        move()

    def nothing(self) -> None:
        """A plain restart."""

    def back_up(self) -> None:
        """Copy the checkpoint, for a later restore."""
        if self.checkpoint.exists():
            copy = self.directory / f"backup-{len(self.backups)}"
            shutil.copytree(self.checkpoint, copy)
            self.backups.append(copy)

    def take_back(self) -> None:
        """A power cut: the files of the last batches were never written to the disk."""
        spark = self.checkpoint / "spark"
        numbers = sorted({int(path.name) for path in spark.glob("offsets/*") if path.name.isdigit()})
        for number in numbers[-self.chance.randint(1, 3) :]:
            for path in (
                f"offsets/{number}",
                f"commits/{number}",
                f"sources/0/{number}",
                f"sources/0/{number}.compact",
            ):
                if self.chance.random() < 0.8:
                    (spark / path).unlink(missing_ok=True)

    def restore(self) -> None:
        """Put a backup in place of the checkpoint."""
        if self.backups:
            shutil.rmtree(self.checkpoint, ignore_errors=True)
            shutil.copytree(self.chance.choice(self.backups), self.checkpoint)

    def delete(self) -> None:
        """Delete the checkpoint, or only Spark's files in it."""
        shutil.rmtree(self.checkpoint / "spark" if self.chance.random() < 0.5 else self.checkpoint, ignore_errors=True)

    def exchange(self) -> None:
        """Put the checkpoint of another stream in its place, with or without its identity."""
        if not self.checkpoint.exists():
            return
        spark = self.checkpoint / "spark"
        for path in [*spark.glob("offsets/[0-9]*")]:
            number = self.chance.randint(0, 40)
            offset = {"files": {"logOffset": number}, "nats": {"sequence": number, "made": "never"}}.get(self.kind)
            path.write_text("v1\n{}\n" + json.dumps(offset or {"row": number, "origin_us": ORIGIN_US}))
        if self.chance.random() < 0.5:
            (self.checkpoint / "lineage").write_text("another")

    def cut_off(self) -> None:
        """A power cut: the newest files are there and empty."""
        spark = self.checkpoint / "spark"
        for folder in ("offsets", "sources/0"):
            paths = sorted(
                (path for path in spark.glob(f"{folder}/*") if path.is_file()), key=lambda p: p.stat().st_mtime
            )
            if paths and self.chance.random() < 0.7:
                paths[-1].write_text("")

    def cut_root_log(self) -> None:
        """The root log is an older one: its last messages are not there."""
        log, count = self.logs.root("s"), self.chance.randint(1, 6)
        info = self.fabric.run(self.fabric.fabric.info(log))
        assert info is not None
        for sequence in range(info.state.last_seq, max(0, info.state.last_seq - count), -1):
            if self.fabric.get(log, sequence) is not None:
                self.fabric.run(self.fabric.fabric._js.delete_msg(log.name, sequence))  # noqa: SLF001 - a fault

    def lose_root_log(self) -> None:
        """The root log is gone and was made anew."""
        if self.chance.random() < 0.3:
            self.fabric.run(self.fabric.fabric.delete(self.logs.root("s")))
            self.fabric.ensure(self.logs.root("s"))

    def purge_source(self) -> None:
        """Somebody deletes the oldest messages of the source."""
        info = self.fabric.run(self.fabric.fabric.info(self.logs.input("s")))
        assert info is not None
        last = int(info.state.last_seq)
        if last:
            place = self.chance.randint(1, last)
            self._doom(place)
            self.fabric.purge(self.logs.input("s"), self.logs.published("s"), place)

    def remake_source(self) -> None:
        """The source's log is deleted and made anew."""
        if self.chance.random() < 0.5:
            self._doom(1 << 62)
            self.fabric.run(self.fabric.fabric.delete(self.logs.input("s")))
            self.fabric.ensure(self.logs.input("s"))

    def _doom(self, below: int) -> None:
        """Note the rows that are about to be deleted; a stream begins with its first committed batch."""
        place = 0
        begun = self.fabric.last(self.logs.root("s"), self.logs.commit("s")) is not None or bool(self.ever)
        while batch := self.fabric.read(self.logs.input("s"), self.logs.published("s"), place):
            gone = {stored.data.decode() for stored in batch if stored.sequence < below}
            self.deleted |= gone
            self.forgiven |= set() if begun else gone
            place = batch[-1].sequence


def play(kind: str, url: str, directory: Path, seed: int) -> BackwardsOutcome:
    """One round: rows come, the query runs and is killed, state moves; in the end everything runs to its end."""
    world = BackwardsWorld(kind, url, directory, seed)
    outcome = world.outcome
    try:
        for _ in range(STEPS):
            world.produce(world.chance.randint(1, 20))
            world.run()
            world.move()
        world.produce(5)
        for _ in range(STEPS):
            world.run()
        names = world.committed()
    finally:
        world.close()
    counts = Counter(names)
    outcome.rows = len(world.produced)
    outcome.lost_silently = [name for name in world.produced if name not in counts and name not in world.forgiven]
    outcome.twice_silently = [] if world.repeated else [name for name, count in counts.items() if count > 1]
    return outcome


def run(rounds: int, seed: int = 0, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """So many rounds for each kind of source; figures, with the seeds of rounds that lost or repeated a row."""
    found: list[BackwardsOutcome] = []
    with (
        tempfile.TemporaryDirectory() as place,
        EmbeddedServer(Path(place) / "nats", sync_always=False) as server,
        contextlib.redirect_stderr(io.StringIO()),  # every checkpoint that is made anew is told there
    ):
        for number in range(rounds):
            for kind in KINDS:
                outcome = play(kind, server.url, Path(place) / f"{kind}-{number}", seed + number)
                found.append(outcome)
                if outcome.lost_silently or outcome.twice_silently:
                    tell(f"{kind}, seed {outcome.seed}: {outcome}")
    return {
        "rounds": len(found),
        "moves": dict(Counter(move for each in found for move in each.moves)),
        "rows": sum(each.rows for each in found),
        "told": sum(len(each.told) for each in found),
        "lost_silently": sum(len(each.lost_silently) for each in found),
        "twice_silently": sum(len(each.twice_silently) for each in found),
    }


def main() -> None:
    """Run the campaign; the last line is one JSON object, and the exit code 1 where a row was lost without a word."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="rounds for each kind of source (100)")
    parser.add_argument("--seed", type=int, default=0, help="the first round's seed (0)")
    given = parser.parse_args()
    figures = run(given.rounds, given.seed)
    print(json.dumps(figures))
    raise SystemExit(1 if figures["lost_silently"] or figures["twice_silently"] else 0)


if __name__ == "__main__":
    main()
