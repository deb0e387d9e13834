"""Every kind of stored file, damaged: ``python -m headgate_studies.testing.damage`` prints a table.

A deployment runs a few times (a real NATS server, a real catalog, real relays, no Spark) and is stopped. Then one bit
of one file is flipped, or its last byte cut, or the file taken away, of each kind that there is. `verify` looks at it,
the deployment is started again, and its reader reads on. Whatever comes of it, a reader must have every row that it is
owed, or somebody must have been told. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from headgate.cli.status_sheets import differences
from headgate.client import Client, LossError
from headgate.errors import HeadgateError
from headgate.fabric.place import write_whole
from headgate.service.runtime import Runtime
from headgate.service.stored_files import kind_of, unknown_files
from headgate.service.verifying import verify_directory
from headgate.wire.logs import Logs
from headgate_studies.testing.damage_kept import keep_more, read_kept
from headgate_studies.testing.exchanged import ExchangeWorld, declared_right, read, running

DAMAGES: Final = ("a bit flipped", "a byte cut", "removed")
_LIMIT_S: Final = 60.0
_READ_S: Final = 15.0
_OTHER: Final = 20
_MESSAGES: Final = "messages of a log"
_RUNS: Final = 3
# What is published at `away` waits in its outbox: nothing goes up from there in the time that a case takes.
_DEPLOYMENT: Final = """
streams:
  rows: {root: home, schema: {n: long}, source: {format: nats, payload: json}}
  posts: {root: home, schema: {text: string}, source: {format: nats, payload: json}}
  cars:
    root: home
    source: {format: json, path: /nowhere}
    schema: {car: string, at: timestamp, v: double}
    key: car
    event_time: at
    derive: {before: previous(v)}
sites: {home: {}, away: {upload: 8 bit/s}}
plan: {rows: {away: home}, posts: {away: home}}
jobs: {second: {streams: cars}}
subscriptions:
  reader: {stream: rows, site: away}
  other: {stream: rows, site: home}
"""


@dataclass(frozen=True, slots=True)
class DamageCase:
    """What was done to which file, what was said of it, and what came of the reader.

    `verdict` is `as before`, `made good` (something was said, and every row is there), `told` (a start was refused, or
    a reader told of a loss) or `silently wrong`.
    """

    kind: str
    file: str
    damage: str
    verify: str
    start: str
    reader: str
    verdict: str


def spoil(path: Path, damage: str) -> None:
    """Damage a file."""
    content = bytearray(path.read_bytes())
    if damage == "removed":
        path.unlink()
    elif damage == "a byte cut":
        path.write_bytes(content[:-1])
    else:
        content[len(content) // 2] ^= 16
        path.write_bytes(content)


def chosen(state_dir: Path, skip: Iterable[str] = ()) -> dict[str, list[Path]]:
    """By kind, the files to damage: the first that is not empty.

    Of messages it is one of each log; of other files of logs, one of every role that a log has.
    """
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(path for path in state_dir.rglob("*") if path.is_file() and path.stat().st_size):
        kind = kind_of(path.relative_to(state_dir).as_posix())
        if kind is None or kind.name in skip:
            continue
        whole = kind.name == _MESSAGES
        if _log_of(path, whole=whole) not in {_log_of(other, whole=whole) for other in found[kind.name]}:
            found[kind.name].append(path)
    return dict(found)


def _log_of(path: Path, *, whole: bool) -> str:
    """The log that a file is of, or only its role, such as `HG_ROOT`; empty for others."""
    log = next((part for part in path.parts if part.startswith("HG_")), "")
    return log if whole else "_".join(log.split("_")[:2])


class _Said(logging.Handler):
    """What is logged as a warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def verified(state_dir: Path) -> str:
    """What `verify` says of a deployment that does not run; empty where nothing is wrong."""
    return "; ".join((await verify_directory(state_dir, Logs())).wrong)


async def started(world: ExchangeWorld) -> tuple[str, str, str]:
    """What a start says, what the reader gets, and the verdict, without what `verify` has said."""
    owed, said, handler = world.committed[len(world.reader.rows) :], "", _Said()
    logging.getLogger("headgate").addHandler(handler)
    try:
        async with running(world.place, _DEPLOYMENT) as (runtime, client):
            said = "; ".join([*runtime.told, *handler.lines])
            try:
                found = await asyncio.wait_for(
                    read(client, "reader", len(owed), position=world.reader.position), _READ_S
                )
            except LossError as error:
                return said, str(error), "told"
            except TimeoutError:
                return said, "waits", "silently wrong" if not handler.lines and not said else "told"
            kept = await asyncio.to_thread(read_kept, client.fabric.logs, runtime.url, _RUNS)
            wrong = await _other_reader(runtime, client, world) or kept.wrong
            said = "; ".join([*runtime.told, *handler.lines])
            if kept.told and not wrong:
                return said, kept.told, "told"
            if wrong:
                return said, wrong, "told" if said else "silently wrong"
            if found.rows == owed:
                return said, "every row", "made good" if said else "as before"
            if declared_right(found, owed):
                return said, f"{found.declared} rows declared as lost", "told"
            return said, f"{found.rows[:5]}... in place of {owed[:5]}...", "silently wrong"
    except HeadgateError as error:
        return str(error), "", "told"
    finally:
        logging.getLogger("headgate").removeHandler(handler)


async def _other_reader(runtime: Runtime, client: Client, world: ExchangeWorld) -> str:
    """A reader whose place is kept for it: what is wrong with what it gets, or with the ledger; empty where nothing."""
    owed = world.committed[_OTHER:]
    try:
        found = await asyncio.wait_for(read(client, "other", len(owed)), _READ_S)
    except LossError:
        return ""  # it was told
    except TimeoutError:
        return "the reader without a position waits"
    if found.rows != owed and not declared_right(found, owed):
        return f"the reader without a position got {found.rows[:3]}... in place of {owed[:3]}..."
    for _ in range(50):
        lines = differences(await runtime.status())
        if not lines:
            return ""
        await asyncio.sleep(0.1)
    return "; ".join(lines)


async def one_case(base: ExchangeWorld, path: Path, damage: str, directory: Path) -> DamageCase:
    """Damage one file of a copy of a deployment, and see."""
    place = directory / "case"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(base.place, place)
    relative = path.relative_to(base.place).as_posix()
    kind = kind_of(relative)
    assert kind is not None
    spoil(place / relative, damage)
    world = ExchangeWorld(place, list(base.committed), base.batch, reader=base.reader)
    looked = directory / "looked"
    shutil.rmtree(looked, ignore_errors=True)
    shutil.copytree(place, looked)
    async with asyncio.timeout(_LIMIT_S):
        said = await verified(looked)
        start, reader, verdict = await started(world)
    if said and verdict == "as before":
        verdict = "made good"
    log = next((f"{part}/" for part in path.parts if part.startswith("HG_")), "")
    return DamageCase(kind.name, log + path.name, damage, said, start, reader, verdict)


async def make_base(directory: Path) -> ExchangeWorld:
    """A deployment that has run three times, with everything that it stores without Spark."""
    world = ExchangeWorld(directory / "base")
    for _ in range(_RUNS):
        async with running(world.place, _DEPLOYMENT, http=True, http_address="127.0.0.1:0") as (runtime, client):
            world.commit(runtime, 20)
            if not world.reader.rows:
                await read(client, "other", _OTHER)
            more = await read(client, "reader", 10, position=world.reader.position)
            world.reader.rows += more.rows
            world.reader.position = more.position
            if "ada" not in runtime.people.registry.users:
                await client.control("user-add", name="ada", subscribe=["rows"])
            runtime.job_config()
            write_whole(world.place / "job-second.json", runtime.job_config("second").shown())
            write_whole(world.place / "job-second.log", "what a job said\n")
            await asyncio.to_thread(keep_more, client.fabric.logs, runtime.url)
    return world


async def run_table(directory: Path, kinds: Iterable[str] | None, tell: Callable[[str], None]) -> list[DamageCase]:
    """Damage a file of every kind in every way."""
    base = await make_base(directory)
    assert not unknown_files(base.place), unknown_files(base.place)
    cases: list[DamageCase] = []
    known = chosen(base.place)
    if stray := set(kinds or ()) - known.keys():
        raise HeadgateError(f"there is no kind of file {min(stray)!r}", hint=f"kinds are {', '.join(known)}")
    for kind, paths in known.items():
        for path in paths if kinds is None or kind in kinds else ():
            for damage in DAMAGES:
                try:
                    case = await one_case(base, path, damage, directory)
                except Exception as error:  # noqa: BLE001 - whatever is not one of our errors is what is looked for
                    case = DamageCase(kind, path.name, damage, "", repr(error)[:200], "", "silently wrong")
                cases.append(case)
                tell(f"{case.kind} ({case.file}), {damage}: {case.verdict}: {(case.verify or case.start)[:160]}")
    return cases


def as_table(cases: list[DamageCase]) -> str:
    """What came of it by kind, as it stands in docs/restoring.md: what was worst, over all files of a kind."""
    rank = ("as before", "made good", "told", "silently wrong")
    lines = ["| kind of file | " + " | ".join(DAMAGES) + " |", "|---" * (len(DAMAGES) + 1) + "|"]
    for kind in dict.fromkeys(case.kind for case in cases):
        found = [
            max({case.verdict for case in cases if (case.kind, case.damage) == (kind, damage)}, key=rank.index)
            for damage in DAMAGES
        ]
        lines.append(f"| {kind} | {' | '.join(found)} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print what comes of every damage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", action="append", help="only this kind of file; repeatable")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        cases = asyncio.run(run_table(Path(place), given.kind, lambda line: print(line, flush=True)))
    wrong = [asdict(case) for case in cases if case.verdict == "silently wrong"]
    counts = {verdict: sum(case.verdict == verdict for case in cases) for verdict in {case.verdict for case in cases}}
    print(as_table(cases))
    print(json.dumps({"cases": len(cases), "verdicts": counts, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
