"""The audit: who changed what, when, from where, before and after; one line of JSON for each change, chained by hashes.

A record is stored before the change that it tells of is in force, so no change is without one. Where the service is
killed in between there is a record of a change that was not made: the next one has the same revision. Each record has
the hash of the one before it, so that none can be altered or taken out without all that follow. The newest hash is also
kept in NATS (`hg.catalog.audit`), so that records that were cut off at the end are missed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from headgate.catalog.difference import Changed
from headgate.diagnostics import SERVICE
from headgate.errors import HeadgateError, masked
from headgate.private import open_private

AUDIT_FILE: Final = "audit.jsonl"
FIRST: Final = "0" * 64
_MOST_DOCUMENTS: Final = 200
_SECRET: Final = re.compile(r"password|passwd|secret|token|credential|private", re.IGNORECASE)


class AuditError(HeadgateError):
    """The audit is not what was written."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who makes a change: a name, and where it asks from as far as that is known."""

    name: str
    origin: str = ""


HOME: Final = Author("home")
"""The service itself: plans that it makes, contexts that it takes over."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The newest record: its number and hash."""

    number: int = 0
    hash: str = FIRST


class Audit:
    """The audit of one state directory. Records may come from several threads."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / AUDIT_FILE
        self._lock = threading.Lock()
        self.newest = self._resume()

    def record(self, author: Author, what: str, changes: Mapping[str, Any], revision: int | None = None) -> None:
        """Append a record, and return when it is stored for good."""
        with self._lock:
            body = {
                "number": self.newest.number + 1,
                "time": datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds"),
                "who": author.name,
                "from": masked(author.origin),
                "what": masked(what),
                "revision": revision,
                "changes": redacted(changes),
                "before": self.newest.hash,
            }
            digest = digest_of(body)
            with open_private(self.path) as file:
                file.write(json.dumps({**body, "hash": digest}).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            self.newest = Anchor(self.newest.number + 1, digest)

    def record_catalog(self, author: Author, what: str, revision: int, changed: Sequence[Changed]) -> None:
        """Append what a change of the catalog does; of very many documents, which they are."""
        self.record(author, what, documents(changed), revision)

    def _resume(self) -> Anchor:
        """Where the file ends. A record that was being written at a kill is taken off: its change was not made."""
        if not self.path.exists():
            return Anchor()
        data = self.path.read_bytes()
        end = data.rfind(b"\n") + 1
        if end < len(data):
            SERVICE.warning("the last record of %s was cut off by a crash, before its change was made", self.path)
            os.truncate(self.path, end)
        if not end:
            return Anchor()
        try:
            last = json.loads(data[data.rfind(b"\n", 0, end - 1) + 1 : end])
            return Anchor(int(last["number"]), str(last["hash"]))
        except (ValueError, KeyError, TypeError) as error:
            raise AuditError(
                "the last record cannot be read", where=str(self.path), hint="restore the file from a backup"
            ) from error


def digest_of(body: Mapping[str, Any]) -> str:
    """The hash of a record, over everything in it, the hash of the one before included."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def documents(changed: Sequence[Changed]) -> dict[str, Any]:
    """Changed documents by kind and name."""
    if len(changed) > _MOST_DOCUMENTS:
        return {"documents": len(changed), "names": [f"{each.kind} {each.name}" for each in changed[:_MOST_DOCUMENTS]]}
    return {
        f"{each.kind} {each.name}".strip(): {
            "before": None if each.before is None else json.loads(each.before),
            "after": None if each.after is None else json.loads(each.after),
        }
        for each in changed
    }


def redacted(value: Any, key: str = "") -> Any:
    """A document that can be shown: values under keys that name secrets are stars, as are passwords in texts.

    >>> redacted({"source": {"password": "x", "url": "nats://me:x@host"}, "tokens": 3})
    {'source': {'password': '***', 'url': 'nats://me:***@host'}, 'tokens': '***'}
    """
    if isinstance(value, Mapping):
        return {name: redacted(each, str(name)) for name, each in value.items()}
    if value is not None and _SECRET.search(key):
        return "***"
    if isinstance(value, list | tuple):
        return [redacted(each) for each in value]
    return masked(value) if isinstance(value, str) else value


def read_audit(path: Path) -> Iterator[dict[str, Any]]:
    """The records, oldest first, each checked against the one before it.

    Raises:
        AuditError: A record was altered, taken out or put in; the error says which is the first that does not fit.
    """
    before = Anchor()
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}, line {number}"
            try:
                record = json.loads(line)
                digest, body = record["hash"], {key: value for key, value in record.items() if key != "hash"}
                fits = digest_of(body) == digest
                follows = (body["number"], body["before"]) == (before.number + 1, before.hash)
            except (ValueError, KeyError, TypeError) as error:
                raise AuditError("this is no record of the audit", where=where, hint=_RESTORE) from error
            if not fits:
                raise AuditError("this record was altered: its hash is another one", where=where, hint=_RESTORE)
            if not follows:
                raise AuditError("records before this one were altered or are gone", where=where, hint=_RESTORE)
            before = Anchor(number, digest)
            yield record


def verify_audit(path: Path, anchor: Anchor | None) -> Anchor:
    """Check all of the audit, and that it does not end before the newest record that NATS knows of."""
    newest = Anchor()
    for record in read_audit(path):
        newest = Anchor(record["number"], record["hash"])
        if anchor is not None and newest.number == anchor.number and newest.hash != anchor.hash:
            raise AuditError(
                f"record {anchor.number} is not the one that NATS knows of", where=str(path), hint=_RESTORE
            )
    if anchor is not None and newest.number < anchor.number:
        raise AuditError(
            f"the audit ends with record {newest.number}, and there were {anchor.number}",
            where=str(path),
            hint=_RESTORE,
        )
    return newest


_RESTORE: Final = "restore the file from a backup, and find out who can write to the state directory"
