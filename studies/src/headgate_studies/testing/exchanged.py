"""State moved away, put back and exchanged: ``python -m headgate_studies.testing.exchanged --rounds 100 --seed 1``.

One round runs a deployment a few times (a real NATS server, a real catalog, real relays, no Spark), stops it, does one
or two things to what is stored, and starts it again. Then either the user is told, by the start or at a reader's
connect, or nothing was lost: every reader gets exactly the rows that were committed and that it does not have. The last
line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headgate.catalog import parse_deployment
from headgate.client import Client, LossError
from headgate.client.delivery import closing
from headgate.errors import HeadgateError
from headgate.pipeline.worker import Address
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

DEPLOYMENT: Final = """
streams:
  rows: {root: home, schema: {n: long}, source: {format: nats, payload: json}}
sites: {home: {}, away: {}}
plan: {rows: {away: home}}
subscriptions:
  reader: {stream: rows, site: away}
  other: {stream: rows, site: home}
"""
_EXTRA: Final = {"stream": "rows", "site": "home", "where": "n % 7 = 3"}
_LIMIT_S: Final = 120.0
_STORED: Final = ("nats", "catalog", "checkpoints")
_FILES: Final = {
    "nats": ("nats",),
    "catalog": ("catalog.db", "catalog.db-wal", "catalog.db-shm"),
    "checkpoints": ("checkpoints",),
}


@dataclass
class TokenReader:
    """What a subscriber that stores its own position has: the rows, the token after them, how many were declared."""

    rows: list[int] = field(default_factory=list)
    position: str | None = None
    declared: int = 0


@dataclass
class ExchangeWorld:
    """One deployment in a directory, what was committed in it, and what its reader has at some moments.

    `held` is how many of the committed rows each backup has.
    """

    place: Path
    committed: list[int] = field(default_factory=list)
    batch: int = 0
    extra: list[str] = field(default_factory=list)
    reader: TokenReader = field(default_factory=TokenReader)
    backups: list[Path] = field(default_factory=list)
    held: dict[Path, int] = field(default_factory=dict)

    def commit(self, runtime: Runtime, count: int) -> None:
        """Commit rows, numbered on."""
        first = len(self.committed) + 1000 * self.batch
        rows = list(range(first, first + count))
        assert runtime.server is not None
        with DirectCommits(Address(runtime.server.url, Logs()), "exchanged") as direct:
            direct.commit("rows", pa.record_batch({"n": pa.array(rows, pa.int64())}), self.batch)
        self.batch += 1
        self.committed += rows

    def back_up(self) -> None:
        """Keep a copy of everything that is stored, as it is now."""
        copy = self.place.with_name(f"{self.place.name}.backup{len(self.backups)}")
        copy.mkdir()
        for kind in _STORED:
            put(self.place, copy, kind)
        self.backups.append(copy)
        self.held[copy] = len(self.committed)


def put(source: Path, target: Path, kind: str) -> None:
    """Put one kind of state from one directory in the place of what another has; nothing where there is none."""
    for name in _FILES[kind]:
        gone, come = target / name, source / name
        shutil.rmtree(gone, ignore_errors=True) if gone.is_dir() else gone.unlink(missing_ok=True)
        if come.is_dir():
            shutil.copytree(come, gone)
        elif come.exists():
            shutil.copy(come, gone)


@asynccontextmanager
async def running(place: Path, text: str = DEPLOYMENT, **settings: Any) -> AsyncIterator[tuple[Runtime, Client]]:
    """The deployment, or that of another file, started on what a directory holds."""
    chosen = Settings(state_dir=place, job=False, **settings)
    async with open_runtime(chosen, parse_deployment(text, "exchanged.yaml")) as runtime:
        assert runtime.server is not None
        async with await Client.connect(runtime.server.url) as client:
            yield runtime, client


async def read(client: Client, name: str, count: int, **reading: Any) -> TokenReader:
    """Read so many rows; the rows and the position after them."""
    found = TokenReader(position=reading.get("position"))
    inbox = await client.subscribe(name, **reading)  # whoever owes it nothing may still have to tell it something
    if not count:
        return found
    async with closing(inbox) as deliveries:
        async for delivery in deliveries:
            found.rows += [row["n"] for row in delivery.to_pylist()]
            found.declared += sum(delivery.given_up.values())
            found.position = delivery.position
            if len(found.rows) + found.declared >= count:
                inbox.done()
                break
    return found


async def live_a_while(world: ExchangeWorld, chance: random.Random) -> None:
    """Two or three runs in which rows are committed and read, with backups at random moments."""
    for _ in range(chance.randint(2, 3)):
        async with running(world.place) as (runtime, client):
            for _ in range(chance.randint(1, 3)):
                world.commit(runtime, chance.randint(1, 40))
                if chance.random() < 0.6:
                    behind = len(world.committed) - len(world.reader.rows)
                    more = await read(client, "reader", behind, position=world.reader.position)
                    world.reader = TokenReader(world.reader.rows + more.rows, more.position)
                if chance.random() < 0.3:
                    world.extra.append(f"extra{len(world.extra)}")
                    await client.control("subscribe", name=world.extra[-1], subscription=_EXTRA)
                if chance.random() < 0.3:
                    world.back_up()
        if chance.random() < 0.7 or not world.backups:
            world.back_up()


def damage(place: Path, chance: random.Random) -> str:
    """Flip a bit of one stored file, cut it, or take it away, in half of the rounds the copies too; what was done."""
    copies = place / "nats" / "descriptions"
    if gone := chance.random() < 0.5:
        shutil.rmtree(copies)
    files = sorted(path for kind in _FILES.values() for name in kind for path in _stored(place / name))
    path, how = chance.choice(files), chance.choice(["a bit flipped", "cut", "away"])
    content = bytearray(path.read_bytes())
    if how == "a bit flipped":
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
    elif how == "cut":
        path.write_bytes(content[: chance.randrange(len(content))])
    else:
        path.unlink()
    log = next((part for part in path.parts if part.startswith("HG_")), "")
    return f"{log + ' ' if log else ''}{path.name}: {how}{', no copies' if gone else ''}"


def _stored(path: Path) -> list[Path]:
    """The files of a path that hold anything."""
    return [found for found in (path, *path.rglob("*")) if found.is_file() and found.stat().st_size]


def disturb(world: ExchangeWorld, stranger: Path, chance: random.Random) -> str:
    """Do something to what is stored; returns what it was."""
    empty = world.place.with_name(f"{world.place.name}.empty")
    empty.mkdir(exist_ok=True)
    what = chance.choice(["nothing", "log away", "file", "file", "everything older", "one", "one", "one", "two", "two"])
    if what == "file":
        return damage(world.place, chance)
    if what == "log away":
        log = chance.choice(sorted(path for path in (world.place / "nats" / "data").rglob("HG_*") if path.is_dir()))
        shutil.rmtree(log)
        return f"log away: {log.name}"
    if what == "everything older":
        backup = chance.choice(world.backups)
        for kind in _STORED:
            put(backup, world.place, kind)
        # What came after the backup is nowhere any more: only a reader that has some of it can know, and must be told.
        del world.committed[world.held[backup] :]
        return what
    told = []
    for kind in chance.sample(_STORED, {"nothing": 0, "one": 1, "two": 2}[what]):
        name, source = chance.choice(
            [("away", empty), ("older", chance.choice(world.backups)), ("a stranger's", stranger)]
        )
        put(source, world.place, kind)
        told.append(f"{kind} {name}")
    return ", ".join(sorted(told)) or what


@dataclass
class ExchangeOutcome:
    """What all rounds found."""

    rounds: int = 0
    refused_starts: int = 0
    rebuilt_catalogs: int = 0
    accepted_losses: int = 0
    told_readers: int = 0
    intact_readers: int = 0
    rows: int = 0
    declared: int = 0
    disturbances: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


async def start_again(place: Path, outcome: ExchangeOutcome) -> tuple[dict[str, bool] | None, bool]:
    """Start as the messages say; the options that were needed (None: nothing helps but restoring), and whether told."""
    options: dict[str, Any] = {}
    for _ in range(4):
        try:
            async with running(place, **options):
                return options, bool(options)
        except HeadgateError as error:
            outcome.refused_starts += not options
            text = str(error)
        if "--rebuild-catalog" in text and "rebuild_catalog" not in options:
            options = {"rebuild_catalog": True}
        elif "--accept-loss" in text:
            options = {"accept_loss": True}
        else:
            return None, True
    raise AssertionError(f"the advice goes round in circles: {text}")


async def one_round(directory: Path, stranger: ExchangeWorld, chance: random.Random, outcome: ExchangeOutcome) -> None:
    """Live, disturb, start again, and hold everybody to account."""
    world = ExchangeWorld(directory / "deployment")
    await live_a_while(world, chance)
    what = disturb(world, stranger.place, chance)
    outcome.disturbances[what] += 1
    before = list(world.committed)
    options, told = await start_again(world.place, outcome)
    outcome.rebuilt_catalogs += bool(options and "rebuild_catalog" in options)
    if options is None:
        return  # told, and nothing was changed: only a restore helps
    if "nats a stranger's" in what and "catalog" in what:
        return  # told that what was there is not its own; what runs now is the stranger's deployment
    anew = "nats away" in what and "catalog" in what  # a new deployment: only positions know of the one before
    async with running(world.place) as (runtime, client):
        lost = runtime.catalog.snapshot().identity.incarnations["rows"].number > 1
        outcome.accepted_losses += lost
        world.commit(runtime, chance.randint(1, 40))
        added = world.committed[len(before) :]
        outcome.rows += len(world.committed)
        head = (await runtime.status())["streams"]["rows"]["head"]
        missing = set(world.extra) - runtime.catalog.snapshot().subscription_ids.keys()
        rebuilt_from_older = "nats older" in what and "catalog" in what
        if missing and what != "everything older" and not anew and not rebuilt_from_older:
            outcome.wrong.append(f"{what}: the subscriptions {sorted(missing)} are gone")
        owed = world.committed[len(world.reader.rows) :]
        ahead = len(world.reader.rows) > len(before)
        try:
            found = await asyncio.wait_for(read(client, "reader", len(owed), position=world.reader.position), 20.0)
        except LossError:
            outcome.told_readers += 1
        except TimeoutError:
            outcome.wrong.append(f"{what}: the reader waits in silence for {len(owed)} rows, head {head}, told {told}")
        else:
            outcome.declared += found.declared
            if (found.rows != owed and not declared_right(found, owed)) or ahead:
                outcome.wrong.append(f"{what}: the reader got {found.rows[:5]}.., owed {owed[:5]}.., told {told}")
            outcome.intact_readers += found.rows == owed and not ahead
        try:
            await client.subscribe("reader", position=stranger.reader.position, peek=True)
            outcome.wrong.append(f"{what}: a stranger's position was taken")
        except LossError:
            outcome.told_readers += 1
        if lost:
            await _after_loss(client, added, what, outcome)


def declared_right(found: TokenReader, owed: list[int]) -> bool:
    """Whether the rows came in order, each at most once, and every other one was declared as given up."""
    wanted = iter(owed)
    return all(row in wanted for row in found.rows) and len(found.rows) + found.declared == len(owed)


async def _after_loss(client: Client, added: list[int], what: str, outcome: ExchangeOutcome) -> None:
    """A reader that stores nothing is told as well, and gets all of the new incarnation then."""
    try:
        await read(client, "other", 1)
        outcome.wrong.append(f"{what}: a reader without a position was not told of the loss")
    except LossError:
        outcome.told_readers += 1
    found = await asyncio.wait_for(read(client, "other", len(added), after_loss=True), 20.0)
    if found.rows != added:
        outcome.wrong.append(f"{what}: after the loss {found.rows[:5]}.. came, and {added[:5]}.. were committed")


async def run_rounds(directory: Path, rounds: int, seed: int, tell: Callable[[str], None] = print) -> ExchangeOutcome:
    """Rounds with consecutive seeds; a round that fails is named by its seed."""
    outcome = ExchangeOutcome()
    stranger = ExchangeWorld(directory / "stranger")
    await live_a_while(stranger, random.Random(seed))
    async with running(stranger.place) as (runtime, client):
        stranger.commit(runtime, 3)
        stranger.reader = await read(client, "reader", 3)
    for number in range(seed, seed + rounds):
        place, began, wrong = directory / f"round{number}", time.monotonic(), len(outcome.wrong)
        place.mkdir()
        try:
            async with asyncio.timeout(_LIMIT_S):
                await one_round(place, stranger, random.Random(number), outcome)
        except Exception as error:  # noqa: BLE001 - whatever is not one of our errors is what is looked for
            outcome.wrong.append(f"{type(error).__name__}: {error}")
        outcome.wrong[wrong:] = [f"seed {number}: {line}" for line in outcome.wrong[wrong:]]
        outcome.rounds += 1
        tell(f"round {number}: {time.monotonic() - began:.1f} s, {outcome.wrong[wrong:] or 'right'}")
        shutil.rmtree(place, ignore_errors=True)
    return outcome


def main(arguments: list[str]) -> int:
    """Run rounds and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="headgate-exchanged-") as directory:
        outcome = asyncio.run(
            run_rounds(Path(directory), chosen.rounds, chosen.seed, lambda line: print(line, file=sys.stderr))
        )
    print(json.dumps({**vars(outcome), "disturbances": dict(sorted(outcome.disturbances.items()))}))
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
