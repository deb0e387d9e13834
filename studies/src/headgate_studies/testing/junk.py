"""Garbage for every kind of subject of a deployment: where it can be put, and what it looks like."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headgate.fabric import Fabric
from headgate.pipeline.errors import Errors
from headgate.protocol.quarantine import QuarantineReport
from headgate.protocol.records import Holds, Oldest, Past, Pin, Purging, RelayMark
from headgate.protocol.reports import (
    JobReport,
    JoinsReport,
    PlannerReport,
    RelayReport,
    Report,
    StandingReport,
    TablesReport,
)
from headgate.relay.core import Key
from headgate.service.books import read_tally
from headgate.service.reports import decode_relay
from headgate.wire.context import decode_context
from headgate.wire.logs import Log, Logs
from headgate.wire.manifest import decode_manifest
from headgate.wire.message import block_range
from headgate.wire.sealed import read_number
from headgate.wire.snapshot import Snapshot
from headgate.wire.sums import Matched

RUNNING: Final = "running"
STARTING: Final = "starting"
BOTH: Final = frozenset({RUNNING, STARTING})
NEVER: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Target:
    """A subject that garbage is put on.

    `reader` decodes what belongs there: bytes that it takes are no garbage. `relay` says in which modes a relay or the
    reader of an inbox meets it, `named` whether somebody must have named it after the next start. `stops` is the stream
    that stops until the message is taken out, `spoils` the subscription whose counts are lost with it.
    """

    name: str
    log: Log
    subject: str
    reader: Callable[[bytes], Any]
    relay: frozenset[str] = NEVER
    named: bool = True
    stops: str = ""
    spoils: str = ""


def targets(logs: Logs, ids: dict[str, int], revision: int) -> list[Target]:
    """Every kind of subject of the campaign's deployment (`headgate_studies.testing.garbage.DEPLOYMENT`)."""
    state, stats = logs.state, partial(_report, logs)
    root, site, inbox = logs.root("fleet"), logs.site("leaf"), logs.inbox("leaf")
    mine = ids["all-leaf"]
    return [
        Target("head", state, logs.head, read_number),
        Target("pin", state, logs.pin("fleet"), Pin.decode),
        Target("ledger", state, logs.ledger("fleet"), partial(Matched.decode, stream="fleet")),
        Target("purging", state, logs.purging, Purging.decode, named=False),
        Target("quarantine", state, logs.quarantine("service"), QuarantineReport.decode),
        Target("errors", state, logs.stats("errors", "fleet"), Errors.decode),
        stats(JobReport, "_"),
        stats(JobReport, "fleet"),
        stats(PlannerReport, "_"),
        stats(JoinsReport, "_"),
        stats(TablesReport, "_"),
        stats(StandingReport, "_"),
        stats(RelayReport, "leaf", frozenset({STARTING})),
        stats(RelayReport, "nobody"),
        Target("context", root, logs.context("fleet"), decode_context),
        Target("part", root, logs.part("fleet"), bytes, named=False),
        Target("dead", root, logs.dead("fleet"), bytes, named=False),
        Target("next table", logs.tables, logs.table(revision + 1), Snapshot.from_bytes),
        Target("a table of no revision", logs.tables, f"{logs.namespace}.tables.junk", bytes, named=False),
        Target("commit", root, logs.commit("fleet"), decode_manifest, BOTH, stops="fleet"),
        Target("mark", state, logs.mark("root", "fleet"), RelayMark.decode, BOTH),
        Target("hold", state, logs.hold("leaf"), Holds.decode, BOTH, named=False),
        Target("oldest", state, logs.oldest, Oldest.decode, BOTH),
        Target("past", state, logs.past("fleet"), Past.decode, BOTH, named=False),
        Target("acknowledgement", state, logs.ack(mine), partial(read_tally, subject=logs.ack(mine)), BOTH,
               spoils="all-leaf"),
        Target("block", site, logs.link("mid", "leaf", "fleet"), block_range, BOTH),
        Target("block of nobody", site, logs.link("nobody", "leaf", "fleet"), block_range, BOTH),
        Target("block of no stream", site, logs.link("mid", "leaf", "nothing"), block_range, BOTH),
        Target("held", site, logs.held("leaf", Key("fleet", subscription=mine).token), block_range, BOTH),
        Target("inbox", inbox, logs.delivery("leaf", mine), block_range, BOTH),
        Target("inbox of nobody", inbox, logs.delivery("leaf", 999_999), block_range, named=False),
    ]  # fmt: skip


def _report(logs: Logs, form: type[Report], name: str, relay: frozenset[str] = NEVER) -> Target:
    reader: Callable[[bytes], Any] = decode_relay if form is RelayReport else form.decode
    return Target(f"{form.about()} {name}", logs.state, logs.stats(form.about(), name), reader, relay)


async def garbage(fabric: Fabric, target: Target, rng: random.Random) -> tuple[str, bytes]:
    """Bytes that the target's reader cannot take, and what sort they are."""
    stored = await fabric.last(target.log, target.subject)
    for sort, data in _sorts(rng, None if stored is None else stored.data, fabric.max_payload):
        if not _taken(target, data):
            return sort, data
    raise AssertionError(f"no garbage was found for {target.name}")


def _taken(target: Target, data: bytes) -> bool:
    """Whether bytes would be taken for what belongs there; where anything does, any bytes are garbage enough."""
    if target.reader is bytes:
        return False
    try:
        target.reader(data)
    except Exception:  # noqa: BLE001 - a decoder may fail in any way
        return False
    return True


def _sorts(rng: random.Random, last: bytes | None, most: int) -> Iterator[tuple[str, bytes]]:
    """Garbage without end, each of a sort that is drawn."""
    sorts: list[tuple[str, Callable[[], bytes]]] = [
        ("empty", bytes),
        ("a word", lambda: b"garbage"),
        ("random bytes", lambda: rng.randbytes(rng.randrange(1, 4096))),
        ("oversize", lambda: rng.randbytes(most - 1024)),
        ("other JSON", lambda: rng.choice([b"[]", b"{}", b"null", b'{"a": 1}', b'"x"', b"-1", b"[[1]]", b"1e400"])),
        ("deep JSON", lambda: b"[" * 200_000),
    ]
    if last:
        sorts += [("flipped", lambda: _flipped(rng, last)), ("cut", lambda: last[: rng.randrange(len(last))])] * 2
    while True:
        sort, make = rng.choice(sorts)
        yield sort, make()


def _flipped(rng: random.Random, data: bytes) -> bytes:
    """A message with some bits changed."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)
