"""Walks everything that a deployment has stored and checks it: what is damaged is named with its place.

Logs: every message carries a checksum, except rows as publishers wrote them. The catalog: every row that is in force.
The audit: its chain. Keys and users: whether they can be read. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headgate.catalog import Catalog
from headgate.errors import HeadgateError
from headgate.fabric import Fabric, FabricError, Stored
from headgate.fabric.accounts import Keys
from headgate.fabric.registry import Registry
from headgate.protocol.published import load_snapshot
from headgate.service.anchoring import read_anchor
from headgate.service.audit import AUDIT_FILE, verify_audit
from headgate.service.stored_messages import check_message
from headgate.service.survey import short_logs
from headgate.wire.frame import WireError
from headgate.wire.logs import Log
from headgate.wire.unreadable import UnreadableError, decode_message

_AT_ONCE: Final = 256


@dataclass
class Verified:
    """What was looked at, in numbers, and what is wrong with it, in sentences."""

    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add(self, what: str, count: int = 1) -> None:
        """Count what was looked at."""
        self.counts[what] = self.counts.get(what, 0) + count


async def verify_all(fabric: Fabric, state_dir: Path, catalog: str) -> Verified:
    """Check a deployment, running or not; `catalog` is its database."""
    found = Verified()
    _verify_files(found, state_dir, catalog)
    try:
        newest = verify_audit(state_dir / AUDIT_FILE, await read_anchor(fabric))
        found.add("records of the audit", newest.number)
    except HeadgateError as error:
        found.wrong.append(str(error))
    infos = await fabric.infos(fabric.logs.everything)
    for name, missing in sorted(short_logs(infos, _witness(catalog)).items()):
        found.wrong.append(
            f"the log {name} has lost {missing:,} messages since the last stop: files are damaged or gone"
        )
    for name, state in sorted(infos.items()):
        found.add("logs")
        if state.lost:
            numbers = ", ".join(map(str, state.lost[:10]))
            found.wrong.append(
                f"the NATS server has lost {len(state.lost)} messages of log {name} to damaged files: {numbers}"
            )
        read = 0
        async for stored in _messages(fabric, name):
            found.add("messages")
            read += 1
            try:
                decode_message(name, stored, lambda data, subject=stored.subject: check_message(subject, data))  # type: ignore[misc]
            except UnreadableError as error:
                found.wrong.append(str(error))
        if read < state.messages and (await fabric.infos(fabric.logs.everything)).get(name) == state:
            found.wrong.append(
                f"{state.messages - read:,} messages of log {name} cannot be read: its files are damaged"
            )
    await _verify_tables(found, fabric)
    return found


def _verify_files(found: Verified, state_dir: Path, catalog: str) -> None:
    try:
        with Catalog.open(catalog) as opened:
            opened.verify()
            found.add("catalog")
    except HeadgateError as error:
        found.wrong.append(str(error))
    directory = state_dir / "nats"
    if directory.exists():
        for what, read in (("keys", Keys.open), ("users", Registry.read_file)):
            try:
                read(directory)
                found.add(what)
            except HeadgateError as error:
                found.wrong.append(str(error))


def _witness(catalog: str) -> Mapping[str, int]:
    """How far the logs were at the last stop; nothing where the catalog cannot say."""
    try:
        with Catalog.open(catalog) as opened:
            return opened.witness()
    except HeadgateError:
        return {}  # that was said


async def _messages(fabric: Fabric, name: str) -> AsyncIterator[Stored]:
    log, place = Log(name, (fabric.logs.everything,), 0), 0
    while True:
        try:
            found = await fabric.read(log, fabric.logs.everything, place, limit=_AT_ONCE)
        except FabricError as error:
            raise HeadgateError(f"log {name} cannot be read behind message {place}: {error}") from error
        for stored in found:
            yield stored
        if not found:
            return
        place = found[-1].sequence


async def _verify_tables(found: Verified, fabric: Fabric) -> None:
    """Read every published revision of the catalog as whoever runs from it would."""
    logs = fabric.logs
    for subject in await fabric.subjects(logs.tables, logs.any_table):
        revision = subject.rsplit(".", 1)[1]
        if revision.isdigit():
            try:
                await load_snapshot(fabric, int(revision))
                found.add("revisions")
            except (WireError, HeadgateError) as error:
                found.wrong.append(str(error))
