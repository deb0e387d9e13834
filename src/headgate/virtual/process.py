"""Processes in virtual time: machines whose commands are carried out in virtual time, late, twice or never.

A process can be killed between any two events, started again with nothing but its logs, paused, cut off, or replaced
while its old instance still runs. An answer can get lost after the command was carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from headgate.protocol.kernel import Answer, Asked, Event, Failed, Instant, Issued, Machine, WakeAt, Woken
from headgate.protocol.port import FabricError
from headgate.virtual.network import EventQueue, Scheduled, SimulatedNetwork

LOST_S: Final = 2.0
"""After so long a command whose answer is lost has failed."""


_WOKEN: Final = Woken()


class Carrier(Protocol):
    """Where the commands of processes go (`headgate.virtual.fabric`)."""

    queue: EventQueue
    network: SimulatedNetwork
    wall_s: float
    events: int
    failed: Callable[..., None]

    def issue(self, instance: Instance, number: int, command: Any) -> None:
        """Carry a command to where it is done."""
        ...

    def forget(self, instance: Instance) -> None:
        """An instance has ended."""
        ...


class Instance:
    """One run of a process: what it knew is gone with it."""

    def __init__(
        self, fabric: Carrier, process: str, number: int, machine: Machine, consumer: Callable[..., None] | None
    ) -> None:
        self.fabric = fabric
        self.process = process
        self.number = number
        self.machine = machine
        self.consumer = consumer
        self.alive = True
        self.paused = False
        self.left = False  # whether its consumer has ended its loop over it
        self.failure: Exception | None = None
        self._kept: deque[Event | None] = deque()
        self._timer: Scheduled | None = None
        self._asked: dict[int, Callable[[Any], None]] = {}
        self._questions = 0

    def instant(self) -> Instant:
        """The time as its host's clock shows it."""
        fabric = self.fabric
        now = fabric.queue.now
        wall_s = fabric.wall_s + now
        clock = fabric.network.clocks.get(self.process)
        return Instant(now, wall_s if clock is None else clock.time_s(wall_s))

    def feed(self, event: Event | None) -> None:
        """Give it an event, unless it is dead; while it is paused, events wait."""
        if not self.alive:
            return
        if self.paused:
            self._kept.append(event)
            return
        self.fabric.events += 1
        try:
            wanted = self.machine.handle(event, self.instant())
        except Exception as error:  # noqa: BLE001 - a machine that fails is a finding
            self.failure = error
            self.kill()
            self.fabric.failed(self, error)
            return
        for each in wanted:
            if isinstance(each, Issued):
                self.fabric.issue(self, each.number, each.command)
            elif isinstance(each, WakeAt):
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self.fabric.queue.at(each.monotonic_s, self.feed, _WOKEN)
            elif isinstance(each, Answer):
                asked = self._asked.pop(each.number, None)
                if asked is not None:
                    asked(each.data)

    def ask(self, service: str, data: Any, answered: Callable[[Any], None]) -> None:
        """Ask it for something."""
        self._questions += 1
        self._asked[self._questions] = answered
        self.feed(Asked(self._questions, service, data))

    def lost(self, number: int) -> None:
        """The answer to a command will never come; it is given up after a while."""
        error = FabricError("no answer: the connection was lost")
        self.fabric.queue.at(self.fabric.queue.now + LOST_S, self.feed, Failed(number, error))

    def pause(self) -> None:
        """Stop it for a while, as a debugger or a busy machine would."""
        self.paused = True

    def resume(self) -> None:
        """Let it go on with what came meanwhile."""
        self.paused = False
        while self._kept and self.alive and not self.paused:
            self.feed(self._kept.popleft())

    def kill(self) -> None:
        """End it between two events."""
        self.alive = False
        if self._timer is not None:
            self._timer.cancel()
        self.machine.close()
        self.fabric.forget(self)
