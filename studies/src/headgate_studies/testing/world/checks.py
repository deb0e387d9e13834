"""Checks at every step: what is appended joins what was there, acknowledgements go forward, everything is bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headgate.protocol.port import Ask
from headgate.protocol.quarantine import MOST
from headgate.protocol.records import RangeRequest
from headgate.relay.core import MOST_HELD
from headgate.relay.machine import RelayMachine
from headgate.relay.state import SiteState
from headgate.relay.tables import KEPT
from headgate.virtual.logs import SimulatedLog
from headgate.virtual.process import Instance
from headgate.virtual.server import SimulatedServer
from headgate.wire.block import Block
from headgate.wire.ledger import Tally
from headgate.wire.logs import Logs
from headgate_studies.testing.world.subscriber import Subscriber


class Checks:
    """`problem` is the first promise that was broken. Subjects in `spoilt` were damaged, so they may end anywhere.

    `damaged` are acknowledgements that could not be read, with the reader that had stored them: the next one has to say
    so, unless it is one that this reader had sent before. `went_back` are those that were damaged or put back once.
    """

    def __init__(self, subscribers: Mapping[str, Subscriber], max_rows: int) -> None:
        self.problem: str | None = None
        self.spoilt: set[str] = set()
        self._subscribers = subscribers
        self._max_rows = max_rows
        self._covered: dict[str, int] = {}
        self._acked: dict[str, int] = {}
        self.damaged: dict[str, str] = {}
        self.went_back: set[str] = set()
        self.shared: set[str] = set()  # subjects of inboxes that several subscriptions have read

    def fail(self, problem: str) -> None:
        """A promise is broken; the first one counts."""
        self.problem = self.problem or problem

    def appended(self, subject: str, data: Any, _: int) -> None:
        """Messages of an inbox join exactly; nobody writes over what was covered."""
        if subject.startswith("hg.ack."):
            self._acknowledged(subject, Tally.decode(data))
        if not isinstance(data, Block) or ".held." in subject:
            return
        before = self._covered.get(subject)
        if before is not None and data.upto != before and subject not in self.spoilt:
            overlaps = data.after < before
            # A shared inbox is not written to while nobody is in it; what its readers get has to join all the same.
            leaves_out = ".inbox." in subject and data.after > before and subject not in self.shared
            if overlaps or leaves_out:
                self.problem = self.problem or (
                    f"{subject}: a message for ({data.after}, {data.upto}] follows one that ends at {before}"
                )
        self._covered[subject] = data.upto

    def _acknowledged(self, subject: str, tally: Tally) -> None:
        """Acknowledgements go forward only, and never past what the consumer is done with."""
        before = self._acked.get(subject, 0)
        if subject in self.damaged and not tally.lost and tally.reader != self.damaged[subject]:
            self.problem = self.problem or f"{subject}: damaged, and acknowledged again without a word of it"
        mark, boundary = tally.mark, tally.boundary
        done = next((each.done for each in self._subscribers.values() if each.id == tally.subscription), 0)
        if boundary < before or (tally.starts is not None and mark > max(done, before, tally.starts)):
            self.problem = self.problem or (
                f"{subject}: acknowledged up to {mark} (boundary {boundary}) where the consumer is done "
                f"with {done} and the boundary {before} was acknowledged before"
            )
        self._acked[subject] = boundary

    def goes_back(self, subject: str, damaged: str | None = None) -> None:
        """What was acknowledged was put back to an earlier state, or was damaged after that reader had stored it."""
        self._acked.pop(subject, None)
        self.went_back.add(subject)
        if damaged is not None:
            self.damaged[subject] = damaged

    def look(self, relays: Iterable[Instance], logs: Iterable[SimulatedLog]) -> None:
        """Queues hold no more than their limits and what one block brings."""
        most = 2 * self._max_rows + 1000
        for relay in relays:
            state = getattr(relay.machine, "state", None)
            for problem in beyond_bounds(state) if isinstance(state, SiteState) else ():
                self.fail(f"{relay.process} {problem}")
            for key, output in state.core.outputs.items() if state is not None else ():
                if output.rows > most:
                    self.problem = self.problem or f"{key.token} holds {output.rows} rows, allowed are {most}"
        for log in logs:
            info = log.info()
            if info.bytes > log.log.max_bytes > 0:
                self.problem = self.problem or f"{log.log.name} holds {info.bytes} bytes of {log.log.max_bytes}"


def beyond_bounds(state: SiteState) -> Iterator[str]:
    """What a relay remembers that is more than it may: blocks behind gaps, versions, readers, damaged messages."""
    core, aside = state.core, state.port.quarantine.messages
    for stream in {key.stream for key in core.outputs}:
        if len(core.held(stream)) > MOST_HELD:
            yield f"holds {len(core.held(stream))} blocks of {stream} behind a gap, allowed are {MOST_HELD}"
    if state.tables.size > KEPT:
        yield f"remembers {state.tables.size} versions of the catalog, allowed are {KEPT}"
    if len(aside) > MOST:
        yield f"names {len(aside)} messages that it could not read, allowed are {MOST}"


def asked_in_vain(instance: Instance, ask: Ask, server: SimulatedServer, logs: Logs) -> str | None:
    """A relay asks for rows that it lacks: what of them lies in its own log, was read and is to be read no more.

    Whoever is asked may not have them any longer. A message of which rows were given up may have to be asked for, as
    half of what it declares cannot be told.
    """
    machine = instance.machine
    if not isinstance(machine, RelayMachine) or ".repair." not in ask.subject:
        return None
    request, core = RangeRequest.decode(ask.data), machine.state.core
    plain = request.child == machine.state.site and not (request.past or request.sent or request.beat)
    if not plain or request.after != core.coverage(request.stream):
        return None
    places = {each.place for each in machine.state.taken.get(request.stream, ()) if each.upto > request.after}
    held = {(block.after, block.upto) for block in core.held(request.stream)}
    for place in sorted(places):
        stored = server.get(logs.site(machine.state.site), place)
        block = None if stored is None else stored.data
        if not isinstance(block, Block) or block.after > request.after or block.declared:
            continue
        if (block.after, block.upto) not in held:
            return f"{machine.state.site} asks for ({request.after}, {request.upto}], which lies in its own log"
    return None
