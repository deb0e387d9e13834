"""A gateway in virtual time: one process that follows a site's inboxes, and readers inside of it that it feeds.

What decides is the product's: the memory, the machine that fills it, and which questions it answers. Readers share the
gateway's fate: when it is killed they are, and begin again with nothing but their logs and positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headgate.gateway.answers import UNKNOWN, MemoryAnswers
from headgate.gateway.follower import FollowMachine
from headgate.gateway.memory import SiteMemory
from headgate.protocol.kernel import Completed, Event, Machine
from headgate.protocol.port import Read, Stored
from headgate.virtual.fabric import SimulatedFabric
from headgate.virtual.process import Instance
from headgate.wire.logs import Logs
from headgate_studies.testing.world.codec import PlainCodec
from headgate_studies.testing.world.scenario import Scenario

_EACH: Final = 400
"""What a message whose data is no bytes takes in memory."""
_IDLE_S: Final = 15.0
_AT_ONCE_S: Final = 1e-6


def _all(messages: list[Stored]) -> list[Stored]:
    return messages


class SimulatedGateway:
    """The gateway of one site."""

    def __init__(self, fabric: SimulatedFabric, logs: Logs, site: str, scenario: Scenario) -> None:
        self.fabric = fabric
        self.logs = logs
        self.site = site
        self.memory = SiteMemory(scenario.gateway_messages * _EACH)
        self.machine = FollowMachine(site, self.memory, logs, 1 << 20, PlainCodec())
        self.instance: Instance
        self._waiting: dict[str, list[FedCarrier]] = {}
        self.wrong: Callable[[str], None] = lambda _: None
        """Told of a promise that was not kept."""
        self.served = 0
        self.passed_on = 0

    def attach(self, subject: str, carrier: FedCarrier) -> None:
        """Wake a reader by what comes on a subject."""
        self._waiting.setdefault(subject, []).append(carrier)
        if subject != self.logs.head:
            self.memory.watch(subject)

    def detach(self, subject: str, carrier: FedCarrier) -> None:
        """A reader has ended."""
        self._waiting[subject].remove(carrier)
        if subject != self.logs.head:
            self.memory.leave(subject)

    def arrived(self, instance: Instance, number: int, subjects: list[str]) -> None:
        """Something came into memory."""
        for subject in subjects:
            for carrier in list(self._waiting.get(subject, ())):
                carrier.hear()
        self.fabric.queue.at(self.fabric.queue.now + _AT_ONCE_S, instance.feed, Completed(number))


class FedCarrier:
    """Carries the commands of one reader: to memory where that knows, else to the server."""

    def __init__(self, gateway: SimulatedGateway) -> None:
        self.gateway = gateway
        self._fabric = fabric = gateway.fabric
        self.queue, self.network, self.wall_s, self.failed = fabric.queue, fabric.network, fabric.wall_s, fabric.failed
        self._instance: Instance | None = None
        self._open: dict[int, Any] = {}
        self._attached: list[str] = []
        self._answers = MemoryAnswers(gateway.memory, gateway.machine, gateway.logs, gateway.site, self._attach)

    @property
    def events(self) -> int:
        """How many events all processes have taken."""
        return self._fabric.events

    @events.setter
    def events(self, count: int) -> None:
        self._fabric.events = count

    def _attach(self, subject: str) -> None:
        self._attached.append(subject)
        self.gateway.attach(subject, self)

    def hear(self) -> None:
        """Something has come."""
        number = self._answers.hear()
        if number is not None and self._instance is not None:
            self._feed(Completed(number))

    def issue(self, instance: Instance, number: int, command: Any) -> None:
        """Answer a command from memory, or carry it on."""
        self._instance = instance
        if self._answers.waits(command):
            if not self._answers.listen(number):
                self._feed(Completed(number))
            else:
                sure = self.gateway.memory.seen is not None
                self.queue.at(self.queue.now + (_IDLE_S if sure else command.timeout_s), self._again, number)
            return
        found = self._answers.answer(command, _all)
        if found is not UNKNOWN:
            self.gateway.served += 1
            self._check(command, found)
            self._feed(Completed(number, found))
            return
        self.gateway.passed_on += 1
        self._open[number] = command
        self._fabric.issue(instance, number, command)

    def _check(self, command: Any, found: Any) -> None:
        """What memory answers is all that the inbox holds up to what memory has seen, and nothing that is not new."""
        if not isinstance(command, Read):
            return
        told = [stored.sequence for stored in found]
        upto = told[-1] if len(told) >= command.limit else self.gateway.memory.seen or 0
        stored = self._fabric.server.read(command.log, command.subject, command.after, limit=1 << 20)
        held = {each.sequence for each in stored if each.sequence <= upto}
        if told != sorted(set(told)) or min(told, default=1 << 62) <= command.after or not held <= set(told):
            self.gateway.wrong(
                f"memory answers {command.subject} after {command.after} with {told[:8]}, "
                f"the inbox holds {sorted(held)[:8]}"
            )

    def _again(self, number: int) -> None:
        if self._answers.listening == number:
            self.hear()

    def told(self, event: Completed) -> None:
        """A command was answered; those of the server are of interest to memory."""
        command = self._open.pop(event.number, None)
        if command is not None:
            self._answers.answered(command, event.value)

    def _feed(self, event: Completed) -> None:
        assert self._instance is not None
        self.queue.at(self.queue.now + _AT_ONCE_S, self._instance.feed, event)

    def forget(self, instance: Instance) -> None:
        """The reader has ended."""
        self._fabric.forget(instance)
        for subject in self._attached:
            self.gateway.detach(subject, self)
        self._attached = []


class FedInstance(Instance):
    """A reader inside of a gateway."""

    def __init__(
        self, gateway: SimulatedGateway, process: str, number: int, machine: Machine, consumer: Callable[..., None]
    ) -> None:
        self.carrier = FedCarrier(gateway)
        super().__init__(self.carrier, process, number, machine, consumer)

    def feed(self, event: Event | None) -> None:
        """Give it an event; what the server has answered is told to memory first."""
        if isinstance(event, Completed):
            self.carrier.told(event)
        super().feed(event)
