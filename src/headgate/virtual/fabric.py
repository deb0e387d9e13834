"""The fabric in virtual time: carries commands to the server and answers back, over connections that may be bad."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import inf
from random import Random
from typing import Any, Final

from headgate.protocol import port
from headgate.protocol.kernel import Completed, Failed
from headgate.protocol.port import FabricError, GoneError, TooLargeError
from headgate.virtual.network import EventQueue, SimulatedNetwork
from headgate.virtual.process import LOST_S, Instance
from headgate.virtual.server import SimulatedServer
from headgate.virtual.subjects import matches
from headgate.wire.block import Block
from headgate.wire.logs import Log, Logs
from headgate.wire.sealed import read_number
from headgate.wire.snapshot import SnapshotChange, apply_changes

SERVER: Final = "server"
_POLL_S: Final = 1.0
_TABLE_S: Final = 0.1
_OVERHEAD: Final = 64
_AT_ONCE_S: Final = 0.05
_ASKED_AGAIN: Final = frozenset({port.Next, port.Listen, port.NeedTable})  # until they are answered


class _Waiting:
    """A reader that waits for the next message, or for a hint."""

    __slots__ = ("command", "done", "instance", "number")

    def __init__(self, instance: Instance, number: int, command: Any) -> None:
        self.instance = instance
        self.number = number
        self.command = command
        self.done = False


class SimulatedFabric:
    """One server, many processes. `appended` is told of every message that was stored.

    `size_of` says how many bytes a message takes, `work_s` how long the work that a machine hands off takes at most.
    `answer_size` says how many bytes an answer takes on a link with a bandwidth; by default all take the same.
    """

    def __init__(
        self,
        server: SimulatedServer,
        logs: Logs,
        random: Random,
        size_of: Callable[[Any], int] = len,
        work_s: float = 0.0,
    ) -> None:
        self.server = server
        self.logs = logs
        self.random = random
        self.size_of = size_of
        self.work_s = work_s
        self.queue = EventQueue()
        self.network = SimulatedNetwork(random)
        self.wall_s = 1.8e9
        self.events = 0
        self.hint_loss = 0.0
        self.max_block = 1 << 30
        self.answer_size: Callable[[Any], int] = lambda _: 0
        self.appended: Callable[[str, Any, int], None] = lambda *_: None
        self.purging: Callable[[Log, str], None] = lambda *_: None
        self.decided: Callable[[Instance, port.Purge], None] = lambda *_: None
        self.asking: Callable[[Instance, port.Ask], None] = lambda *_: None
        self.failed: Callable[[Instance, Exception], None] = lambda *_: None
        self._services: dict[str, list[Instance]] = {}
        self._waiting: list[_Waiting] = []
        self._hints: dict[int, tuple[set[str], bool]] = {}

    def serve(self, subject: str, instance: Instance) -> None:
        """Let an instance answer on a subject."""
        self._services.setdefault(subject, []).append(instance)

    def forget(self, instance: Instance) -> None:
        """An instance has ended."""
        for serving in self._services.values():
            if instance in serving:
                serving.remove(instance)
        self._waiting = [each for each in self._waiting if each.instance is not instance]
        self._hints.pop(id(instance), None)

    def place_of(self, command: Any) -> str:
        """Where a command is done, by its name in the network: at the server, unless somebody knows better."""
        del command
        return SERVER

    def issue(self, instance: Instance, number: int, command: Any) -> None:
        """Carry a command to where it is done."""
        now, kind = self.queue.now, type(command)
        if kind is port.HandOver:
            assert instance.consumer is not None
            instance.consumer(instance, number, command.item)
        elif kind is port.Computation:
            done_s = now + self.random.random() * self.work_s
            self.queue.at(done_s, instance.feed, Completed(number, command.run()))
        else:
            if kind is port.Purge:
                self.decided(instance, command)
            elif kind is port.Ask:
                self.asking(instance, command)
            size = self.size_of(command.data) if kind is port.Append else _OVERHEAD
            arrives_s = self.network.send(instance.process, self.place_of(command), size, now)
            if arrives_s is not None:
                self.queue.at(arrives_s, self._execute, instance, number, command)
            elif kind in _ASKED_AGAIN:
                self.queue.at(now + LOST_S, self.issue, instance, number, command)
            else:
                instance.lost(number)

    def _execute(self, instance: Instance, number: int, command: Any) -> None:
        """Do at the server what a command says."""
        kind = type(command)
        if kind is port.Next or kind is port.Listen:
            self._wait(_Waiting(instance, number, command))
        elif kind is port.Ask:
            self._ask(instance, number, command)
        elif kind is port.NeedTable:
            self._table(instance, number, command.version)
        else:
            try:
                value = self._do(command)
            except FabricError as error:
                self.reply(instance, Failed(number, error), self.place_of(command))
            else:
                self.reply(instance, Completed(number, value), self.place_of(command))

    def reply(self, instance: Instance, event: Completed | Failed, place: str = SERVER) -> None:
        """Carry an answer back from where a command was done."""
        size = self._size_back(instance, event.value, place) if isinstance(event, Completed) else _OVERHEAD
        arrives_s = self.network.send(place, instance.process, size, self.queue.now)
        if arrives_s is None:
            instance.lost(event.number)
        else:
            self.queue.at(arrives_s, instance.feed, event)

    def _size_back(self, instance: Instance, value: Any, place: str = SERVER) -> int:
        """How many bytes an answer takes; they are counted only where it matters."""
        bounded = self.network.link(place, instance.process).rate_bytes_per_s < inf
        return _OVERHEAD + self.answer_size(value) if bounded else _OVERHEAD

    def _fitting(self, instance: Instance, found: list[Any]) -> list[Any]:
        """As many of the next messages as a link carries in a short time, as each comes when it has crossed it."""
        link = self.network.link(SERVER, instance.process)
        if link.rate_bytes_per_s == inf:
            return found
        sizes = itertools.accumulate(self.answer_size(each) for each in found)
        return [
            each for each, size in zip(found, sizes, strict=True) if size <= link.rate_bytes_per_s * _AT_ONCE_S
        ] or (found[:1])

    def _do(self, command: Any) -> Any:
        server = self.server
        match command:
            case port.Last(log, subject):
                return server.last(log, subject)
            case port.Read(log, subject, after, limit):
                return server.read(log, subject, after, limit=limit)
            case port.Append(subject, data, expect, replace):
                return self.publish(subject, data, expect=expect, replace=replace)
            case port.Get(log, sequence):
                return server.get(log, sequence)
            case port.Purge(log, subject, below):
                self.purging(log, subject)
                return server.purge(log, subject, below)
            case port.Lasts(log, subjects):
                return server.lasts(log, subjects)
            case port.Subjects(log, pattern):
                return server.subjects(log, pattern)
            case port.Names(subject):
                return server.names(subject)
            case port.Ensure(log):
                return server.ensure(log)
            case port.Info(log):
                info = server.info(log)
                return None if info is None else port.LogInfo(info.bytes, info.messages)
            case _:
                raise TypeError(f"nobody can carry out {command!r}")

    def publish(
        self,
        subject: str,
        data: Any,
        *,
        expect: int | None = None,
        replace: bool = False,
        message_id: str | None = None,
    ) -> int:
        """Append at the server, and let those know who wait for it."""
        now = self.wall_s + self.queue.now
        if isinstance(data, Block) and self.size_of(data) > self.max_block:
            raise TooLargeError(f"{subject}: a block of {self.size_of(data)} bytes is too large")
        size = self.size_of(data)
        sequence = self.server.publish(
            subject, data, size=size, expect=expect, replace=replace, message_id=message_id, now=now
        )
        self.appended(subject, data, sequence)
        for waiting in [each for each in self._waiting if _concerns(each.command, subject)]:
            if self.random.random() >= self.hint_loss:
                self._look(waiting)
        for key, (subjects, _) in self._hints.items():
            if subject in subjects:
                self._hints[key] = (subjects, True)
        return sequence

    def _wait(self, waiting: _Waiting) -> None:
        """Answer a reader as soon as there is something, and look now and then without a hint."""
        command = waiting.command
        if isinstance(command, port.Listen):
            known, hinted = self._hints.get(id(waiting.instance), (set(), False))
            fresh = not known.issuperset(command.subjects)
            self._hints[id(waiting.instance)] = (known | set(command.subjects), False)
            if fresh or hinted:
                self._finish(waiting, None)
                return
            self._waiting.append(waiting)
            self.queue.at(self.queue.now + command.timeout_s, self._heard, waiting)
            return
        self._waiting.append(waiting)
        self._look(waiting)

    def _look(self, waiting: _Waiting) -> None:
        """Answer a reader if there is something for it."""
        if waiting.done or not waiting.instance.alive:
            return
        command = waiting.command
        if isinstance(command, port.Listen):
            self._heard(waiting)
            return
        try:
            found = self.server.read(command.log, command.subject, command.after, limit=command.limit)
        except FabricError:
            found = []
        if found:
            self._finish(waiting, self._fitting(waiting.instance, found))
        else:
            self.queue.at(self.queue.now + _POLL_S, self._look, waiting)

    def _heard(self, waiting: _Waiting) -> None:
        if not waiting.done:
            known, _ = self._hints.get(id(waiting.instance), (set(), False))
            self._hints[id(waiting.instance)] = (known, False)
            self._finish(waiting, None)

    def _finish(self, waiting: _Waiting, value: Any) -> None:
        waiting.done = True
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        if waiting.instance.alive:
            # Reading again after a lost answer is what a real connection does: the reader asks until it hears.
            size = self._size_back(waiting.instance, value)
            arrives_s = self.network.send(SERVER, waiting.instance.process, size, self.queue.now)
            if arrives_s is None:
                self.queue.at(self.queue.now + _POLL_S, self._wait, _Waiting(*_again(waiting)))
            else:
                self.queue.at(arrives_s, waiting.instance.feed, Completed(waiting.number, value))

    def _ask(self, instance: Instance, number: int, command: port.Ask) -> None:
        """Carry a question to everybody who serves it; the first answer counts."""
        answered = False

        def answer(data: Any) -> None:
            nonlocal answered
            if not answered:
                answered = True
                self.reply(instance, Completed(number, data))

        def give_up() -> None:
            nonlocal answered
            if not answered:
                answered = True
                instance.feed(Failed(number, FabricError(f"{command.subject} does not answer")))

        for serving in list(self._services.get(command.subject, ())):
            arrives_s = self.network.send(SERVER, serving.process, _OVERHEAD, self.queue.now)
            if arrives_s is not None:
                self.queue.at(arrives_s, serving.ask, command.subject, command.data, answer)
        wait_s = command.timeout_s if self._services.get(command.subject) else 0.01
        self.queue.at(self.queue.now + wait_s, give_up)

    def _table(self, instance: Instance, number: int, version: int) -> None:
        """Answer with a version of the catalog as soon as it is there."""
        if not instance.alive:
            return
        stored = self.last_or_none(self.logs.tables, self.logs.table(version))
        head = self.last_or_none(self.logs.state, self.logs.head)
        if stored is None and (head is None or read_number(head.data) < version):
            self.queue.at(self.queue.now + _TABLE_S, self._table, instance, number, version)
            return
        arrives_s = self.network.send(SERVER, instance.process, _OVERHEAD, self.queue.now)
        if arrives_s is None:
            self.queue.at(self.queue.now + LOST_S, self._table, instance, number, version)
        elif (snapshot := self._composed(version)) is not None:
            self.queue.at(arrives_s, instance.feed, Completed(number, snapshot))
        else:
            self.queue.at(arrives_s, instance.feed, Failed(number, GoneError(version)))

    def _composed(self, version: int) -> Any:
        """A version of which all is there that it is a change of, None when that is not so."""
        changes: list[SnapshotChange] = []
        while True:
            stored = self.last_or_none(self.logs.tables, self.logs.table(version))
            if stored is None:
                return None
            if not isinstance(stored.data, SnapshotChange):
                return apply_changes(stored.data, changes) if changes else stored.data
            changes.insert(0, stored.data)
            version = stored.data.base

    def last_or_none(self, log: Log, subject: str) -> Any:
        """The last message of a subject, None also where there is no log."""
        try:
            return self.server.last(log, subject)
        except FabricError:
            return None


def _again(waiting: _Waiting) -> tuple[Instance, int, Any]:
    return waiting.instance, waiting.number, waiting.command


def _concerns(command: Any, subject: str) -> bool:
    """Whether a reader waits for a subject."""
    if isinstance(command, port.Listen):
        return subject in command.subjects
    return matches(command.subject, subject)
