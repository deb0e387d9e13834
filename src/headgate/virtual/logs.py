"""One JetStream log in virtual time: appends that may be refused, exact reads, purges, and what damage does to it.

A contract suite of `headgate-studies` compares every operation with a real nats-server. What is worth knowing:

- A refused append takes no sequence number. Numbers are not used again after a purge, only after a power failure or a
  restored backup.
- A subject without messages has the last sequence 0, also when it had messages before: `expect=0` is then right.
- The fence is checked before the message id, the message id before the limits. A replacement (`replace`) needs room
  beside what it replaces, but not a free place on its subject. Only when its subject has all the messages that it may
  have, a replacement no larger than the oldest of them needs no room.
- A message whose file was damaged (`rot`) is left out of reads without a word and cannot be deleted. When it is the
  last of its subject, the subject seems empty, to a fence too. An append that would have to delete it is stored, but
  never acknowledged; a replacement deletes itself instead. A start after a power failure loses it and all that came
  after it. (When the real server rewrites such a file, it may lose healthy messages too; that is not simulated.)
- A log with `latest_only` replaces the value of a subject by its next one, which needs room beside it where it is
  larger. A full one refuses, as every log does: no value goes for another one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from headgate.protocol.port import FabricError, FencedError, LogFullError
from headgate.virtual.messages import (
    HEADERS_RECORD_BYTES,
    RECORD_BYTES,
    Unreadable,
    VirtualMessage,
    header_bytes,
)
from headgate.virtual.subjects import is_literal, matches
from headgate.wire.logs import Log

READ_BYTES: Final = 16 << 20
_FEW_DEAD: Final = 64


@dataclass(frozen=True, slots=True)
class VirtualLogInfo:
    """How much a log holds. `first` is 0 in a log that was never written to, and `last + 1` in one that is empty."""

    messages: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class LogBackup:
    """Everything that a log held at one moment."""

    log: Log
    messages: tuple[VirtualMessage, ...]
    last: int
    rotten: frozenset[int]


class SimulatedLog:
    """One log. `synced` says that every change is durable at once; else `sync` makes durable what was done so far."""

    __slots__ = ("_by_subject", "_bytes", "_first_at", "_ids", "_ids_by_age", "_journal", "_last", "_messages",
                 "_order", "_rotten", "_taken", "filled", "log", "synced")  # fmt: skip

    def __init__(self, log: Log, *, synced: bool = True) -> None:
        self.log = log
        self.synced = synced
        self.filled = False
        self._set((), 0)

    def _set(self, messages: Iterable[VirtualMessage], last: int, rotten: Iterable[int] = ()) -> None:
        """Hold exactly these messages, given in the order of their sequences, all of them durable."""
        self._rotten = set(rotten)
        self._messages = {message.sequence: message for message in messages}
        self._last = last
        self._order = list(self._messages)
        self._first_at = 0
        self._by_subject: dict[str, list[int]] = {}
        self._bytes = 0
        self._taken: dict[str, set[str]] = {}
        for message in self._messages.values():
            self._by_subject.setdefault(message.subject, []).append(message.sequence)
            self._bytes += message.stored_bytes
        self._ids: dict[str, tuple[int, float]] = {}
        self._ids_by_age: deque[tuple[float, str]] = deque()
        for message in self._messages.values():
            if message.message_id is not None and message.sequence not in self._rotten:
                self._remember(message.message_id, message.sequence, message.time_s)
        # Changes that are not durable: the number of an appended message, or a message that was removed.
        self._journal: list[int | VirtualMessage] = []

    def append(
        self,
        subject: str,
        data: Any,
        *,
        size: int,
        expect: int | None = None,
        replace: bool = False,
        message_id: str | None = None,
        now: float = 0.0,
    ) -> int:
        """Store a message of `size` bytes (payload alone) and return its sequence; see `SimulatedServer.publish`."""
        sequences = self._by_subject.get(subject)
        if expect is not None:
            last = sequences[-1] if sequences else 0
            if expect != (0 if last in self._rotten else last):
                raise FencedError(f"{subject}: wrong last sequence: {last}")
        if message_id is not None and (known := self._known(message_id, now)):
            return known
        headers = header_bytes(expect, replace, message_id)
        size += headers + len(subject)
        stored = size + RECORD_BYTES + (HEADERS_RECORD_BYTES if headers else 0)
        log = self.log
        if self.filled:
            raise LogFullError(f"{subject}: maximum bytes exceeded")
        at_limit = sequences is not None and 0 < log.max_per_subject <= len(sequences)
        if at_limit and not (replace or log.latest_only):
            raise LogFullError(f"{subject}: maximum messages per subject exceeded")
        if self._bytes + stored > log.max_bytes and not (
            at_limit and sequences and self._messages[sequences[0]].stored_bytes >= stored
        ):
            raise LogFullError(f"{subject}: maximum bytes exceeded")
        self._last = sequence = self._last + 1
        self._messages[sequence] = VirtualMessage(sequence, subject, data, now, headers, size, message_id)
        self._order.append(sequence)
        self._bytes += stored
        if not self.synced:
            self._journal.append(sequence)
        if message_id is not None:
            self._remember(message_id, sequence, now)
        if sequences is None:
            self._new_subject(subject, sequence)
        else:
            sequences.append(sequence)
            if 0 < log.max_per_subject < len(sequences):
                self._delete_first(subject)
            if replace:
                self._drop(subject, len(sequences) - 1)
        return sequence

    def _known(self, message_id: str, now: float) -> int:
        """The sequence under which a message id was stored within the window, else 0."""
        ages = self._ids_by_age
        while ages and now - ages[0][0] >= self.log.id_window_s:
            stored_s, old = ages.popleft()
            if self._ids[old][1] == stored_s:
                del self._ids[old]
        found = self._ids.get(message_id)
        return found[0] if found else 0

    def _remember(self, message_id: str, sequence: int, now: float) -> None:
        self._ids[message_id] = (sequence, now)
        self._ids_by_age.append((now, message_id))

    def _new_subject(self, subject: str, sequence: int) -> None:
        self._by_subject[subject] = [sequence]
        for pattern, taken in self._taken.items():
            if matches(pattern, subject):
                taken.add(subject)

    def _delete_first(self, subject: str) -> None:
        """Delete the oldest message of a subject to keep a limit. Where the server cannot, it never answers."""
        if self._by_subject[subject][0] in self._rotten:
            raise FabricError(f"{subject}: not stored: no answer")
        self._drop(subject, 1)

    def _drop(self, subject: str, count: int) -> int:
        """Delete the first messages of a subject that can be deleted, at most so many."""
        sequences = self._by_subject[subject]
        if self._rotten and not self._rotten.isdisjoint(sequences):
            sequences.sort(key=self._rotten.__contains__)  # what cannot be deleted goes to the end for a moment
            count = min(count, sum(sequence not in self._rotten for sequence in sequences))
        gone, messages, journal = sequences[:count], self._messages, None if self.synced else self._journal
        for sequence in gone:
            message = messages.pop(sequence)
            self._bytes -= message.size + RECORD_BYTES + (HEADERS_RECORD_BYTES if message.header_bytes else 0)
            if journal is not None:
                journal.append(message)
        if count == len(sequences):
            del self._by_subject[subject]
        else:
            del sequences[:count]
            if self._rotten:
                sequences.sort()
        if len(self._order) > 2 * len(messages) + _FEW_DEAD:
            self._order = [sequence for sequence in self._order if sequence in messages]
            self._first_at = 0
        return len(gone)

    def _first(self) -> int:
        """The sequence of the oldest message; the log must hold one."""
        order, messages, place = self._order, self._messages, self._first_at
        while order[place] not in messages:
            place += 1
        self._first_at = place
        return order[place]

    def last(self, subject: str) -> VirtualMessage | None:
        """The last message of a subject."""
        sequences = self._by_subject.get(subject)
        return self.get(sequences[-1]) if sequences else None

    def get(self, sequence: int) -> VirtualMessage | None:
        """The message with that sequence, None when there is none."""
        return None if sequence in self._rotten else self._messages.get(sequence)

    def read(self, pattern: str, after: int, limit: int = 256, max_bytes: int = READ_BYTES) -> list[VirtualMessage]:
        """The next messages of a subject after a sequence, in order; one more than `max_bytes` hold, as the server."""
        if after >= self._last:
            return []
        found: list[VirtualMessage] = []
        room = max_bytes
        for message in self._from(pattern, after):
            if message.sequence in self._rotten:
                continue
            found.append(message)
            room -= message.size
            if room <= 0 or len(found) == limit:
                break
        return found

    def _from(self, pattern: str, after: int) -> Iterator[VirtualMessage]:
        messages = self._messages
        if is_literal(pattern):
            sequences = self._by_subject.get(pattern, ())
            for place in range(bisect_right(sequences, after), len(sequences)):
                yield messages[sequences[place]]
            return
        taken, order = self._subjects_of(pattern), self._order
        for place in range(bisect_right(order, after), len(order)):
            message = messages.get(order[place])
            if message is not None and message.subject in taken:
                yield message

    def _subjects_of(self, pattern: str) -> set[str]:
        """The subjects that the pattern takes; some of them may hold nothing any more."""
        taken = self._taken.get(pattern)
        if taken is None:
            taken = {subject for subject in self._by_subject if matches(pattern, subject)}
            self._taken[pattern] = taken
        return taken

    def newest(self, subject: str, wanted: Callable[[Any], bool]) -> Iterator[VirtualMessage]:
        """The last messages of a subject, the newest first, for as long as their data is wanted."""
        for sequence in reversed(self._by_subject.get(subject, ())):
            message = self._messages[sequence]
            if not wanted(message.data):
                return
            if sequence not in self._rotten:
                yield message

    def lasts(self, subjects: Iterable[str]) -> dict[str, VirtualMessage]:
        """The last message of each subject that has one."""
        return {subject: found for subject in subjects if (found := self.last(subject)) is not None}

    def subjects(self, pattern: str) -> dict[str, int]:
        """Subjects that hold messages, and how many."""
        return {subject: len(found) for subject, found in self._by_subject.items() if matches(pattern, subject)}

    def purge(self, pattern: str, below: int) -> int:
        """Delete the messages of a subject with a sequence below this one; returns how many."""
        subjects = [pattern] if is_literal(pattern) else sorted(self.subjects(pattern))
        purged = 0
        if pattern == ">" and below > self._last:  # the server compacts the log up to there, whatever it holds
            self._last = below - 1
            self._rotten.clear()
        for subject in subjects:
            sequences = self._by_subject.get(subject, ())
            count = bisect_left(sequences, below)
            if self._rotten:
                count -= sum(sequence in self._rotten for sequence in sequences[:count])
            if count:
                purged += self._drop(subject, count)
        return purged

    def remove(self, sequence: int) -> bool:
        """Delete one message; False when there is none with this sequence."""
        message = self.get(sequence)
        if message is None:
            return False
        sequences = self._by_subject[message.subject]
        sequences.remove(sequence)
        sequences.insert(0, sequence)
        self._drop(message.subject, 1)
        return True

    def info(self) -> VirtualLogInfo:
        """How much the log holds."""
        first = self._first() if self._messages else self._last + 1 if self._last else 0
        return VirtualLogInfo(len(self._messages), self._bytes, first, self._last)

    def change(self, log: Log) -> None:
        """Bring the log to other limits.

        As on the server, messages beyond a smaller `max_per_subject` are deleted, the oldest first; messages beyond a
        smaller `max_bytes` stay.
        """
        self.log = log
        self._keep_limits()

    def _keep_limits(self) -> None:
        """Delete the oldest messages of subjects that have too many."""
        if self.log.max_per_subject > 0:
            for subject, found in list(self._by_subject.items()):
                if len(found) > self.log.max_per_subject:
                    self._drop(subject, len(found) - self.log.max_per_subject)

    def sync(self) -> None:
        """Make everything durable that was done so far."""
        self._journal.clear()

    @property
    def unsynced(self) -> int:
        """How many changes (messages stored and messages deleted) a power failure may undo."""
        return len(self._journal)

    def power_failure(self, random: Random, *, removals_survive: bool = False, numbers_survive: bool = False) -> int:
        """Undo a random tail of what was not synced, newest first, and return how many changes that is.

        Sequences of lost messages are given again, unless `numbers_survive`: the server wrote its index, which knows
        them, but not the messages. Deleted messages come back with the tail that deleted them, unless
        `removals_survive`: a server that has deleted a whole file of messages does not find them again.
        """
        lost = random.randint(0, len(self._journal))
        self.lose(lost, removals_survive=removals_survive, numbers_survive=numbers_survive)
        return lost

    def lose(self, changes: int, *, removals_survive: bool = False, numbers_survive: bool = False) -> None:
        """Undo the last changes that were not synced, and start again; see `power_failure`."""
        journal, last = self._journal, self._last
        for change in reversed(journal[len(journal) - changes :]):
            if isinstance(change, int):
                self._messages.pop(change, None)
                self._last = change - 1
            elif not removals_survive:
                self._messages[change.sequence] = change
        if self._rotten:
            self._last = min(self._rotten) - 1
            self._rotten.clear()
        kept = sorted(each for each in self._messages.values() if each.sequence <= self._last)
        self._set(kept, last if numbers_survive else self._last)

    def restart(self) -> None:
        """Read the log again as a server that starts does: it knows only the ids of messages that are still stored."""
        self._set(sorted(self._messages.values()), self._last, self._rotten)
        self._keep_limits()

    def backup(self) -> LogBackup:
        """A copy of the log as it is; messages are shared, not copied."""
        return LogBackup(self.log, tuple(self._messages.values()), self._last, frozenset(self._rotten))

    def restore(self, backup: LogBackup) -> None:
        """Put the log back to what it was; its sequences go back too. The limits stay."""
        self._set(sorted(backup.messages), backup.last, backup.rotten)

    def wipe(self) -> None:
        """Lose everything, the last sequence too."""
        self._set((), 0)

    def exchange(self, other: SimulatedLog) -> None:
        """Exchange what two logs hold, as two disks that were swapped."""
        mine = self.backup()
        self.restore(other.backup())
        other.restore(mine)

    def rot(self, sequence: int) -> bool:
        """Damage the file of a message, so that the server's own checksum is wrong. False when there is none."""
        if self.get(sequence) is None:
            return False
        self._rotten.add(sequence)
        return True

    def flip(self, sequence: int) -> bool:
        """Damage a message where no checksum of the server sees it: it is read, and its data is `Unreadable`."""
        message = self._messages.get(sequence)
        if message is None or isinstance(message.data, Unreadable):
            return False
        self._messages[sequence] = message._replace(data=Unreadable(message.data))
        return True

    def flip_bit(self, sequence: int) -> bool:
        """Flip a bit in the middle of a message that is bytes; False when there is none."""
        message = self._messages.get(sequence)
        if message is None or not isinstance(message.data, bytes) or not message.data:
            return False
        data = bytearray(message.data)
        data[len(data) // 2] ^= 1
        self._messages[sequence] = message._replace(data=bytes(data))
        return True
