"""Published snapshots of the catalog: the newest revision, and a revision's snapshot, also when messages are garbage.

The newest revision is announced in one message. When that cannot be read, or names a revision that is not there, the
newest snapshot that can be read in the log of tables is taken instead.
"""

from __future__ import annotations

from typing import Final, TypeVar

from headgate.errors import HeadgateError
from headgate.protocol.port import LogPort, Stored
from headgate.wire.frame import WireError
from headgate.wire.logs import Log
from headgate.wire.sealed import read_number
from headgate.wire.snapshot import Snapshot, SnapshotChange, apply_changes, base_revision, join_parts, part_count
from headgate.wire.unreadable import UnreadableError, decode_message

T = TypeVar("T")
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
    """The published snapshot of a revision, None when there is none; `UnreadableError` when it is something else.

    Of one that is a change of what this process has read lately the change alone is read, else all back to a whole one.
    """
    tables, wanted = port.logs.tables, revision
    found: Snapshot | None = None
    changes: list[tuple[Stored, SnapshotChange]] = []
    while found is None:
        stored = await port.last(tables, port.logs.table(wanted))
        if stored is None:
            if not changes or await port.last(tables, changes[-1][0].subject) is None:
                return None  # or it was deleted since, and what it was a change of after it
            raise _unreadable(tables, changes[-1], f"version {wanted}, which it is a change of, is gone")
        read = await _read(port, wanted, stored)
        identity = read.identity if isinstance(read, Snapshot) else read.part.identity
        if changes and identity.mark != changes[-1][1].mark:
            raise _unreadable(tables, changes[-1], f"version {wanted} is another one than it is a change of")
        if isinstance(read, Snapshot):
            found = read
        else:
            changes.append((stored, read))
            wanted = read.base
            found = port.revisions.get(wanted, read.mark)
    if changes:
        try:
            found = apply_changes(found, [change for _, change in reversed(changes)])
        except KeyError as error:
            cause = f"it ends {error}, which version {wanted} does not have"
            raise _unreadable(tables, changes[0], cause) from error
    port.revisions.keep(found)
    return found


async def _read(port: LogPort, revision: int, stored: Stored) -> Snapshot | SnapshotChange:
    """What was published for a revision, by its first message."""
    logs, parts = port.logs, []
    for number in range(1, part_count(stored.data) + 1):
        part = await port.last(logs.tables, logs.table_part(revision, number))
        if part is None:
            cause = f"part {number} of catalog version {revision} is gone"
            raise UnreadableError(logs.tables.name, stored.subject, stored.sequence, cause)
        parts.append(part.data)

    def read(first: bytes) -> Snapshot | SnapshotChange:
        whole = join_parts(first, parts)
        if base_revision(first) is None:
            snapshot = Snapshot.from_bytes(whole)
            return checked(snapshot, snapshot.revision)
        change = SnapshotChange.from_bytes(whole)
        if change.base >= revision:
            raise WireError(f"it is a change of revision {change.base}, which is not before it")
        return checked(change, change.part.revision)

    def checked(found: T, number: int) -> T:
        if number != revision:
            raise WireError(f"it is the snapshot of revision {number}, not of {revision}")
        return found

    return decode_message(logs.tables.name, stored, read)


def _unreadable(log: Log, message: tuple[Stored, SnapshotChange], cause: str) -> UnreadableError:
    return UnreadableError(log.name, message[0].subject, message[0].sequence, cause)


async def require_snapshot(port: LogPort, revision: int) -> Snapshot:
    """The published snapshot of a revision; an error when there is none."""
    found = await load_snapshot(port, revision)
    if found is None:
        raise HeadgateError(f"version {revision} of the catalog is not published", hint="is the service running?")
    return found
