"""Garbage on every subject: ``python -m headgate_studies.testing.garbage --rounds 500`` (one JSON object last).

Each round puts one message that cannot be read on one kind of subject, of a deployment that runs or of one that is
about to start: empty, random, oversize, other JSON, or a real message cut short or with changed bits. Then rows are
committed to two streams. Nothing may end, every subscriber must get every row once and in order, and each message must
be named by log and sequence unless its owner has replaced it before anybody read it. A commit that cannot be read may
stop its own stream, with a message that names it; it is taken out and the stream must go on.

Relays, books, control and readers are the real ones, on a real NATS server; rows are committed as the Spark job does,
without Spark. `--no-relay` leaves out what only relays and the readers of inboxes meet.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.fabric import EmbeddedServer, Fabric
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.service.demo.run import Readers, drained
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate.wire.unreadable import UnreadableError
from headgate_studies.direct import DirectCommits
from headgate_studies.testing.junk import RUNNING, STARTING, Target, garbage, targets

STREAMS: Final = ("fleet", "other")
_ROWS: Final = 20
_SETTLE_S: Final = 60.0
_START_S: Final = 90.0
_POLL_S: Final = 0.1
_SEED: Final = 29
_A_LIFE: Final = 12
_AT_ONCE: Final = 3

DEPLOYMENT: Final = """
streams:
  fleet: {root: root, source: {format: generator, kind: fleet, seed: 29}, key: vehicle, event_time: at}
  other: {root: root, source: {format: generator, kind: fleet, seed: 29}, key: vehicle, event_time: at}
sites: {root: {}, mid: {}, leaf: {}}
plan: {fleet: {mid: root, leaf: mid}, other: {mid: root}}
subscriptions:
  all-leaf: {stream: fleet, site: leaf}
  json-leaf: {stream: fleet, site: leaf, format: json, select: [vehicle, speed]}
  near-mid: {stream: fleet, site: mid, where: "speed > $limit", context: {limit: 30}}
  all-other: {stream: other, site: mid}
"""


@dataclass
class GarbageOutcome:
    """What a campaign did and found. `named` and `replaced` count messages, `wrong` says what should not have been."""

    rounds: int = 0
    starts: int = 0
    rows: int = 0
    named: int = 0
    replaced: int = 0
    unread: int = 0
    stopped: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    sorts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class Put:
    """A message that was put somewhere."""

    target: Target
    sequence: int
    text: str


class Broken(Exception):  # noqa: N818 - the end of a namespace, not an error of anybody's
    """Something went wrong: what follows in this namespace would say nothing."""


class GarbageWorld:
    """One namespace: a deployment that is started and stopped, its streams, and what was put into its logs."""

    def __init__(self, url: str, namespace: str, directory: Path, outcome: GarbageOutcome, rng: random.Random) -> None:
        self.url = url
        self.logs = Logs(namespace)
        self.directory = directory
        self.outcome = outcome
        self.rng = rng
        self.batches = dict.fromkeys(STREAMS, 0)
        self.seen: dict[str, list[int]] = {}
        self.unnamed: list[Put] = []
        self.spoilt: set[str] = set()
        self.ids: dict[str, int] = {}
        self.revision = 0

    def settings(self) -> Settings:
        """How the deployment is run."""
        return Settings(self.directory, nats=self.url, namespace=self.logs.namespace, job=False)

    async def put(self, fabric: Fabric, target: Target, mode: str) -> Put | None:
        """Put garbage on a subject; None where the log refuses it."""
        sort, data = await garbage(fabric, target, self.rng)
        text = f"{target.name}, {sort}, {mode}"
        try:
            sequence = await fabric.publish(target.subject, data)
        except HeadgateError:
            return None  # such as a second message on the subject of a table
        self.outcome.rounds += 1
        for counts, name in ((self.outcome.kinds, f"{target.name}, {mode}"), (self.outcome.sorts, sort)):
            counts[name] = counts.get(name, 0) + 1
        put = Put(target, sequence, text)
        self.unnamed.append(put)
        if target.spoils:
            self.spoilt.add(target.spoils)
        return put

    @contextlib.asynccontextmanager
    async def life(self) -> AsyncIterator[tuple[Runtime, Client, Readers]]:
        """The deployment from a start to a stop, with a reader for each subscription."""
        deployment = parse_deployment(DEPLOYMENT, "garbage.yaml", GENERATOR_SCHEMAS)
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_START_S):
                    runtime = await stack.enter_async_context(open_runtime(self.settings(), deployment))
                client = await stack.enter_async_context(await Client.connect(self.url, namespace=self.logs.namespace))
            except (HeadgateError, ValueError, TypeError, KeyError, TimeoutError) as error:
                raise Broken(f"it does not start: {error!r:.400}") from error
            readers = Readers(client, keep=True)
            stack.push_async_callback(readers.stop)
            readers.start(list(deployment.subscriptions))
            self.outcome.starts += 1
            try:
                yield runtime, client, readers
            finally:
                for name, found in readers.deliveries.items():
                    self.seen.setdefault(name, []).extend(seq for each in found for seq in each.seqs.tolist())

    async def commit(self, stream: str) -> None:
        """Commit the next rows of a stream, as the Spark job does."""
        batch = self.batches[stream]
        rows = generate("fleet", _SEED, _ROWS * batch, _ROWS * (batch + 1))

        def work() -> None:
            with DirectCommits(Address(self.url, self.logs), "garbage") as direct:
                direct.commit(stream, rows, batch)

        await asyncio.to_thread(work)
        self.batches[stream] += 1
        self.outcome.rows += _ROWS

    async def cycle(self, runtime: Runtime, client: Client, readers: Readers) -> None:
        """Commit to both streams, wait until all is delivered, and see what was named."""
        with _told("a commit"):
            for stream in STREAMS:
                await self._commit_or_stop(runtime, client, stream)
        deadline = time.monotonic() + _SETTLE_S
        while True:
            if runtime.failure.done():
                raise Broken(f"the deployment ended: {runtime.failure.exception()!r:.400}")
            with _told("a reader or the status"):
                readers.check()
                status = await runtime.status()
            if self._settled(status):
                break
            if time.monotonic() > deadline:
                flight = {name: each["in_flight"] for name, each in status["subscriptions"].items()}
                raise Broken(f"rows are not delivered: {flight}, {status['findings']}")
            await asyncio.sleep(_POLL_S)
        wrong = [each for each in status["findings"] if each["wrong"] and not self._expected(each)]
        if wrong:
            raise Broken(f"the ledger is wrong: {wrong}")
        self._sort_named(status["quarantine"]["messages"])

    def _settled(self, status: dict[str, Any]) -> bool:
        """Whether every row was committed, delivered and acknowledged."""
        heads = {name: status["streams"][name]["head"] for name in STREAMS}
        return heads == {name: _ROWS * count for name, count in self.batches.items()} and drained(status)

    def _expected(self, finding: dict[str, Any]) -> bool:
        """Counts of a subscription whose acknowledgement was overwritten are lost, and that is said."""
        return finding["subject"] in {f"subscription {name}" for name in self.spoilt}

    async def _commit_or_stop(self, runtime: Runtime, client: Client, stream: str) -> None:
        """Commit; where a commit that cannot be read stops the stream, see that it is said, and take it out."""
        for _ in range(_A_LIFE):
            try:
                return await self.commit(stream)
            except UnreadableError as error:
                stopping = [put for put in self.unnamed if put.target.stops == stream]
                if error.sequence not in {put.sequence for put in stopping}:
                    raise
                self.outcome.stopped += 1
                status = await runtime.status()
                named = {(each["log"], each["sequence"]) for each in status["quarantine"]["messages"]}
                if (error.log, error.sequence) not in named:
                    raise Broken(f"{error} stops the stream and is not named") from error
                await client.fabric.remove(self.logs.root(stream), error.sequence)
        raise Broken(f"stream {stream} does not go on")

    def _sort_named(self, messages: list[dict[str, Any]]) -> None:
        """Strike out what was named."""
        named = {(each["log"], each["sequence"]) for each in messages}
        found = [put for put in self.unnamed if (put.target.log.name, put.sequence) in named]
        self.outcome.named += len(found)
        self.unnamed = [put for put in self.unnamed if put not in found]

    async def close(self, fabric: Fabric) -> None:
        """At the end: everything came once and in order, and what was not named was replaced or is read by nobody."""
        for name in ("all-leaf", "json-leaf", "all-other"):
            wanted = list(range(1, _ROWS * self.batches["other" if name == "all-other" else "fleet"] + 1))
            if name not in self.spoilt and self.seen.get(name, []) != wanted:
                self.outcome.wrong.append(f"{name} got {len(self.seen.get(name, []))} rows of {len(wanted)}")
        for put in self.unnamed:
            if await fabric.get(put.target.log, put.sequence) is None:
                self.outcome.replaced += 1
            elif not put.target.named:
                self.outcome.unread += 1
            else:
                self.outcome.wrong.append(f"{put.text}: nobody has named message {put.sequence}")


@contextlib.contextmanager
def _told(what: str) -> Any:
    """Whatever ends a part of the deployment, as the end of this namespace."""
    try:
        yield
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"{what} ended: {error!r:.400}") from error


async def _live(world: GarbageWorld, fabric: Fabric, chosen: list[tuple[Target, str]]) -> None:
    """One life: garbage before the start, then garbage while it runs, with rows between."""
    for target, _ in [each for each in chosen if each[1] == STARTING]:
        await world.put(fabric, target, STARTING)
    running = [target for target, mode in chosen if mode == RUNNING]
    async with world.life() as (runtime, client, readers):
        with _told("a change"):
            extra = {"stream": "other", "site": "mid", "where": f"speed > {10_000 + world.revision}"}
            await client.control("subscribe", name="extra", subscription=extra, change=True)
        await world.cycle(runtime, client, readers)
        for first in range(0, len(running), _AT_ONCE):
            for target in running[first : first + _AT_ONCE]:
                await world.put(fabric, target, RUNNING)
                for verb in ("status", "subscribe", "context"):
                    await fabric.request(world.logs.control(verb), world.rng.randbytes(40))
            await world.cycle(runtime, client, readers)
        snapshot = runtime.catalog.snapshot()
        world.ids, world.revision = dict(snapshot.subscription_ids), snapshot.revision


def _choose(world: GarbageWorld, relay: bool, count: int) -> list[tuple[Target, str]]:
    """So many subjects with the mode in which garbage is put there; one that spoils counts comes last of all."""
    known = targets(world.logs, world.ids, world.revision)
    pairs = [(each, mode) for each in known for mode in (RUNNING, STARTING) if relay or mode not in each.relay]
    plain = [pair for pair in pairs if not pair[0].spoils]
    return world.rng.sample(plain, min(count, len(plain)))


def _print(text: str) -> None:
    print(text, flush=True)


async def run(
    rounds: int, seed: int, directory: Path, *, relay: bool = True, tell: Callable[[str], None] = _print
) -> GarbageOutcome:
    """Put so many messages, in namespaces of at most a few lives each."""
    outcome, rng, began = GarbageOutcome(), random.Random(seed), time.monotonic()
    with EmbeddedServer(directory / "server", sync_always=False) as server:
        number = 0
        while outcome.rounds < rounds and number < rounds:
            number += 1
            world = GarbageWorld(server.url, f"g{number}", directory / f"state {number}", outcome, rng)
            async with await Fabric.connect(server.url, world.logs) as fabric:
                before = outcome.rounds
                try:
                    await _live(world, fabric, [])  # a first life, so that there is a past
                    for _ in range(3):
                        if outcome.rounds < rounds:
                            await _live(world, fabric, _choose(world, relay, min(_A_LIFE, rounds - outcome.rounds)))
                    if relay and world.rng.random() < 0.5:
                        spoilt = [each for each in targets(world.logs, world.ids, world.revision) if each.spoils]
                        await _live(world, fabric, [(spoilt[0], world.rng.choice((RUNNING, STARTING)))])
                    await _live(world, fabric, [])  # what is read at a start only has been read after this one
                    await world.close(fabric)
                except Broken as error:
                    last = "; ".join(put.text for put in world.unnamed[-_A_LIFE:])
                    outcome.wrong.append(f"{error} (put: {last})")
            tell(f"namespace {number}: {outcome.rounds - before} messages, {len(outcome.wrong)} wrong so far")
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-relay", action="store_true", help="leave out what only relays and readers meet")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headgate garbage ") as place:
        outcome = asyncio.run(run(given.rounds, given.seed, Path(place), relay=not given.no_relay))
    print(json.dumps({"seed": given.seed, **asdict(outcome)}))
    sys.exit(1 if outcome.wrong else 0)


if __name__ == "__main__":
    main()
