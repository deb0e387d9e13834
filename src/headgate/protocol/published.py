"""Published snapshots of the catalog: the newest revision, and a revision's snapshot, also when messages are garbage.

The newest revision is announced in one message. When that cannot be read, or names a revision that is not there, the
newest snapshot that can be read in the log of tables is taken instead.
"""

from __future__ import annotations

from typing import Final

from headgate.errors import HeadgateError
from headgate.protocol.port import LogPort
from headgate.wire.frame import WireError
from headgate.wire.sealed import read_number
from headgate.wire.snapshot import Snapshot, part_count
from headgate.wire.unreadable import UnreadableError, decode_message

_INSTEAD: Final = "the newest snapshot that can be read is taken instead"
_TRIES: Final = 16


async def head_revision(port: LogPort) -> int | None:
    """The newest announced revision that is there, None when none was announced."""
    logs = port.logs
    stored = await port.last(logs.state, logs.head)
    while stored is not None:
        revision = port.quarantine.take(logs.state, stored, read_number, _INSTEAD)
        if revision is None:
            break
        if await port.subjects(logs.tables, logs.table(revision)):
            return revision
        newer = await port.last(logs.state, logs.head)
        if newer is not None and newer.sequence != stored.sequence:
            stored = newer  # others were announced between the two questions, and that one was deleted
            continue
        cause = f"it names revision {revision}, which is not in {logs.tables.name}"
        port.quarantine.add(UnreadableError(logs.state.name, stored.subject, stored.sequence, cause), _INSTEAD)
        break
    return None if stored is None else await newest_readable(port)


async def newest_readable(port: LogPort) -> int | None:
    """The newest revision whose snapshot can be read."""
    logs = port.logs
    subjects = await port.subjects(logs.tables, f"{logs.namespace}.tables.*")
    names = (subject.rsplit(".", 1)[1] for subject in subjects)
    for revision in sorted((int(name) for name in names if name.isdigit()), reverse=True)[:_TRIES]:
        try:
            if await load_snapshot(port, revision) is not None:
                return revision
        except UnreadableError as error:
            port.quarantine.add(error)
    return None


async def load_snapshot(port: LogPort, revision: int) -> Snapshot | None:
    """The published snapshot of a revision, None when there is none; `UnreadableError` when it is something else."""
    logs = port.logs
    stored = await port.last(logs.tables, logs.table(revision))
    if stored is None:
        return None
    parts = []
    for number in range(1, part_count(stored.data) + 1):
        part = await port.last(logs.tables, logs.table_part(revision, number))
        if part is None:
            cause = f"part {number} of catalog version {revision} is gone"
            raise UnreadableError(logs.tables.name, stored.subject, stored.sequence, cause)
        parts.append(part.data)
    whole = b"".join(parts) or stored.data

    def read(_: bytes) -> Snapshot:
        snapshot = Snapshot.from_bytes(whole)
        if snapshot.revision != revision:
            raise WireError(f"it is the snapshot of revision {snapshot.revision}, not of {revision}")
        return snapshot

    return decode_message(logs.tables.name, stored, read)


async def require_snapshot(port: LogPort, revision: int) -> Snapshot:
    """The published snapshot of a revision; an error when there is none."""
    found = await load_snapshot(port, revision)
    if found is None:
        raise HeadgateError(f"version {revision} of the catalog is not published", hint="is the service running?")
    return found
