"""Random operations on logs, applied to two servers whose answers have to be equal.

An operation names its place in the log relative to what is there ("the last sequence", "one before the first"), so that
most fences are right, and a list of operations still makes sense when some are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any, Final, Literal

from headgate.fabric import FabricError
from headgate.virtual.messages import HEADERS_RECORD_BYTES, RECORD_BYTES, header_bytes
from headgate.wire.logs import Log
from headgate_studies.testing.log_stores import LogStore, outcome

Kind = Literal[
    "publish", "last", "get", "read", "lasts", "subjects", "purge", "remove", "info",
    "ensure", "delete", "names", "restart",
]  # fmt: skip
Place = Literal["zero", "first", "last of subject", "last", "middle", "beyond"]

_SUBJECTS: Final = ("a", "b", "c.x", "c.y", "c.y.z")
_PATTERNS: Final = (*_SUBJECTS, ">", "c.>", "*", "c.*", "*.x", "*.y.*", "*.y.>", "d")
_PLENTY: Final = 1 << 20
_LIMITS: Final = (
    Log("", (), _PLENTY),
    Log("", (), 700),
    Log("", (), _PLENTY, max_per_subject=2),
    Log("", (), 900, max_per_subject=3),
    Log("", (), _PLENTY, max_per_subject=1, latest_only=True),
    Log("", (), 400, max_per_subject=1, latest_only=True),
    Log("", (), _PLENTY, max_per_subject=1),
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One call; which of the fields count depends on its kind."""

    kind: Kind
    log: int = 0
    subject: str = "a"
    place: Place = "zero"
    shift: int = 0
    fenced: bool = False
    replace: bool = False
    message_id: str | None = None
    size: int | None = 1
    """None: as many bytes as the log still takes, or as `shift` says one more or less."""
    limit: int = 256
    max_bytes: int = 1 << 20
    limits: int = 0

    def __str__(self) -> str:
        named = ((each.name, getattr(self, each.name)) for each in fields(self) if each.name != "kind")
        return f"{self.kind} " + " ".join(f"{name}={value!r}" for name, value in named)


def operations(random: Random, count: int, *, restarts: bool = False) -> list[Operation]:
    """So many operations; a restart takes long, and has to be asked for."""
    often: tuple[Kind, ...] = (*("publish",) * 10, "purge", "read", "read", "info", "last", "remove", "get")
    seldom: tuple[Kind, ...] = ("lasts", "subjects", "ensure", "delete", "names")
    kinds = often * 5 + seldom + (("restart",) if restarts else ())
    places: tuple[Place, ...] = (*("last of subject",) * 4, "zero", "first", "last", "middle", "beyond")
    choice = random.choice
    return [
        Operation(
            kind=choice(kinds),
            log=choice((0, 1, 2)),
            subject=choice(_PATTERNS),
            place=choice(places),
            shift=choice((0, 0, 0, 0, 1, -1)),
            fenced=choice((False, True)),
            replace=choice((False, False, False, True)),
            message_id=choice((None, None, None, "1", "2", "a longer id", f"id {random.randrange(50)}")),
            size=choice((0, 1, 10, 100, 150, 500, None)),
            limit=choice((1, 2, 5, 256)),
            max_bytes=choice((1, 50, 160, 300, 1 << 20)),
            limits=random.randrange(len(_LIMITS)),
        )
        for _ in range(count)
    ]


class ServerComparison:
    """Two servers, and the three logs that the operations use on both, in a namespace of their own.

    The last log keeps the ids of messages for so long that no test sees them go; the others are made with limits that
    `limits` chooses.
    """

    def __init__(self, one: LogStore, other: LogStore, namespace: str, limits: Sequence[int] = (0, 3, 5)) -> None:
        self.stores = (one, other)
        self.namespace = namespace
        self.logs = [self._log(number, chosen) for number, chosen in enumerate(limits)]
        for log in self.logs:
            self._both("ensure", log)

    def _log(self, number: int, limits: int) -> Log:
        patterns = (">",) if number == 1 else ("a", "b", "c.>")
        subjects = tuple(f"{self.namespace}.{number}.{each}" for each in patterns)
        return replace(_LIMITS[limits], name=f"{self.namespace}_{number}", subjects=subjects, id_window_s=3600.0)

    def _both(self, name: str, *arguments: Any) -> Any:
        """Call both and return the answer of the first; raises AssertionError when they differ."""
        one, other = (outcome(getattr(store, name), *arguments) for store in self.stores)
        assert one == other, f"{name}{arguments}: {one!r} on one, {other!r} on the other"
        return one

    def _place(self, log: Log, subject: str, operation: Operation) -> int:
        store = self.stores[0]
        info = store.info(log)
        if info is None:
            return 1
        try:
            last = store.last(log, subject)
        except FabricError:
            last = None
        places: dict[Place, int] = {
            "zero": 0,
            "first": info.first,
            "last of subject": last.sequence if last else 0,
            "last": info.last,
            "middle": (info.first + info.last) // 2,
            "beyond": info.last + 7,
        }
        return max(places[operation.place] + operation.shift, 0)

    def _size(self, log: Log, subject: str, fence: int | None, operation: Operation) -> int:
        if operation.size is not None:
            return operation.size
        info = self.stores[0].info(log)
        headers = header_bytes(fence, operation.replace, operation.message_id)
        record = RECORD_BYTES + len(subject) + headers + (HEADERS_RECORD_BYTES if headers else 0)
        room = log.max_bytes - record - (info.bytes if info else 0)
        return max(room + operation.shift, 0) if log.max_bytes < _PLENTY else 1000

    def apply(self, operation: Operation) -> None:
        """Do one operation on both servers and compare what they say, and what the log holds after it."""
        log = self.logs[operation.log]
        prefix = f"{self.namespace}.{operation.log}."
        # A purge of ">" up to a removed last message leaves a wrong first sequence on the real server: not compared.
        bare = operation.kind == "purge" and operation.subject == ">" and operation.place == "beyond"
        subject = ">" if bare else prefix + operation.subject
        literal = prefix + (operation.subject if operation.subject in (*_SUBJECTS, "d") else "a")
        place = self._place(log, literal, operation)
        fence = place if operation.fenced else None
        data = bytes([65 + place % 26]) * self._size(log, literal, fence, operation)
        if operation.kind == "ensure":
            self.logs[operation.log] = log = self._log(operation.log, operation.limits)
        arguments: dict[Kind, tuple[Any, ...]] = {
            "publish": (literal, data, fence, operation.replace, operation.message_id),
            "last": (log, literal),
            "get": (log, max(place, 1)),
            "read": (log, subject, place, operation.limit, operation.max_bytes),
            "lasts": (log, [prefix + each for each in _SUBJECTS]),
            "subjects": (log, subject),
            "purge": (log, subject, place),
            "remove": (log, max(place, 1)),
            "info": (log,),
            "ensure": (log,),
            "delete": (log,),
            "names": (subject,),
            "restart": (),
        }
        self._both(operation.kind, *arguments[operation.kind])
        self._both("info", log)

    def finish(self) -> None:
        """Compare everything that the logs hold, and delete them."""
        for log in self.logs:
            self._both("read", log, f"{self.namespace}.>", 0)
            self._both("delete", log)


def compare(one: LogStore, other: LogStore, namespace: str, steps: Sequence[Operation], limits: Sequence[int]) -> None:
    """Apply all operations to both servers; raises AssertionError at the first answer that differs."""
    comparison = ServerComparison(one, other, namespace, limits)
    try:
        for step in steps:
            comparison.apply(step)
        comparison.finish()
    finally:
        for store in (one, other):
            for log in comparison.logs:
                outcome(store.delete, log)


def compare_seed(one: LogStore, other: LogStore, seed: int, count: int, *, restarts: bool = False) -> None:
    """Compare two servers under the operations of a seed; a difference is raised with the fewest steps that show it."""
    random = Random(seed)
    limits = [random.randrange(len(_LIMITS)) for _ in range(3)]
    numbers = itertools.count()

    def difference(steps: Sequence[Operation]) -> AssertionError | None:
        try:
            compare(one, other, f"n{seed}x{next(numbers)}", steps, limits)
        except AssertionError as error:
            return error
        return None

    steps = operations(random, count, restarts=restarts)
    error = difference(steps)
    if error is None:
        return
    size = len(steps) // 2
    while size:
        start = 0
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            shown = difference(fewer)
            if shown is None:
                start += size
            else:
                steps, error = fewer, shown
        size //= 2
    listed = "\n".join(map(str, steps))
    raise AssertionError(f"seed {seed}, limits {limits}: {error}\nafter\n{listed}")
