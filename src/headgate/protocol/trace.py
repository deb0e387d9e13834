"""What machines were told and what they wanted, line by line, and one number for all of it."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headgate.protocol.kernel import Completed, Failed, Issued, Machine
from headgate.protocol.port import Append
from headgate.wire.block import Block
from headgate.wire.logs import Log
from headgate.wire.manifest import Manifest
from headgate.wire.snapshot import Snapshot

_WIDTH = 150


class Trace:
    """Keeps the last lines of a run. `digest` is equal for two runs that did the same."""

    def __init__(self, keep: int | None = 60, echo: Callable[[str], None] | None = None) -> None:
        """`keep` None keeps every line; `echo` hears each of them."""
        self._echo = echo
        self.lines: deque[str] = deque(maxlen=keep)
        self._hash = hashlib.blake2b(digest_size=8)
        self._wanted: dict[tuple[int, int], Any] = {}

    def __call__(self, machine: Machine, direction: str, what: Any) -> None:
        """Take down one event or command of a machine."""
        if isinstance(what, Issued):
            self._wanted[id(machine), what.number] = what.command
            text = f"#{what.number} {describe(what.command)}"
        elif isinstance(what, Completed):
            command = self._wanted.pop((id(machine), what.number), None)
            text = f"#{what.number} {_name(command)}: {describe(what.value)}"
        elif isinstance(what, Failed):
            command = self._wanted.pop((id(machine), what.number), None)
            text = f"#{what.number} {_name(command)} failed: {what.error}"
        else:
            text = describe(what)
        line = f"{machine.now.monotonic_s:9.4f} {machine.name:<10} {direction} {text}"
        self._hash.update(line.encode())
        self.lines.append(line[:_WIDTH])
        if self._echo is not None:
            self._echo(line[:_WIDTH])

    @property
    def digest(self) -> str:
        """A number for everything that was taken down, also for lines that are not kept any more."""
        return self._hash.hexdigest()


def describe(what: Any) -> str:
    """A command, an answer or a message in a few words."""
    match what:
        case Block():
            rows = f"{len(what.seqs)} rows of ({what.after}, {what.upto}] under {what.version}"
            return f"{rows}, given up {what.declared}" if what.declared else rows
        case Manifest():
            return f"commit of ({what.after}, {what.upto}] under {what.version}"
        case Append(subject, data, expect, replace):
            return f"Append {subject} behind {expect}{' (replaces)' if replace else ''}: {describe(data)}"
        case bytes():
            return what[:80].decode(errors="replace")
        case Log():
            return what.name
        case Snapshot():
            return f"version {what.revision} of the catalog"
        case pa.RecordBatch():
            return f"{what.num_rows} rows"
        case list() | tuple() if not hasattr(what, "_fields"):
            return f"{len(what)} x [{', '.join(describe(each) for each in what[:3])}]"
        case _ if hasattr(what, "sequence") and hasattr(what, "data"):
            return f"{getattr(what, 'subject', '')}@{what.sequence}: {describe(what.data)}"
        case tuple():
            named = zip(getattr(what, "_fields", ()), what, strict=True)
            return " ".join([_name(what), *(_field(name, value) for name, value in named if value is not None)])
        case _ if hasattr(what, "__dataclass_fields__"):
            inside = (describe(getattr(what, name)) for name in what.__dataclass_fields__)
            return f"{_name(what)} {' '.join(inside)}"
        case _ if hasattr(what, "name"):
            return str(what.name)
        case _ if callable(what):
            return "work"
        case _:
            return str(what)


def _field(name: str, value: Any) -> str:
    """A field of a command: logs and subjects speak for themselves, numbers need their name."""
    return f"{name}={value:.10g}" if isinstance(value, int | float) else describe(value)


def _name(what: Any) -> str:
    return type(what).__name__
