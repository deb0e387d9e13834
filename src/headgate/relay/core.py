"""The I/O-free relay: blocks in, messages out, in coverage order and without a clock or a socket of its own."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Self

from headgate.model import Subscription
from headgate.reduction import FairDrain
from headgate.relay.due_inboxes import DueTimes
from headgate.relay.even_shedding import Evenly, Queue
from headgate.relay.output import Output, QueueLimits
from headgate.relay.routes import Child, Receiver, Routes
from headgate.relay.shared import SharedWork
from headgate.relay.split import split
from headgate.wire.block import Block


@dataclass(frozen=True, slots=True)
class Key:
    """An output by what it leads to: the site of a child, or the id of a subscription and its stay."""

    stream: str
    child: str | None = None
    subscription: int | None = None
    stay: int = 0

    @property
    def token(self) -> str:
        """The output as part of a subject; no name can hold the sign between its parts.

        >>> Key("a", child="b-to-c").token, Key("a", subscription=7, stay=2).token
        ('to~a~b-to-c', 'sub~a~7~2')
        """
        if self.child is not None:
            return f"to~{self.stream}~{self.child}"
        return f"sub~{self.stream}~{self.subscription}~{self.stay}"

    @classmethod
    def parse(cls, token: str) -> Self:
        """The output of a token.

        >>> Key.parse("to~a~b-to-c")
        Key(stream='a', child='b-to-c', subscription=None, stay=0)
        """
        kind, stream, *rest = token.split("~")
        if kind == "to":
            (child,) = rest
            return cls(stream, child=child)
        subscription, stay = map(int, rest)
        return cls(stream, subscription=subscription, stay=stay)


def key_of(stream: str, target: Child | Receiver) -> Key:
    """The key of the output that leads to a target."""
    if isinstance(target, Child):
        return Key(stream, child=target.site)
    subscription, stay = target.inbox
    return Key(stream, subscription=subscription, stay=stay)


def inbox_key(subscription: Subscription, identity: int) -> Key:
    """The output that a subscription is delivered by now, which others may share."""
    owner, stay = subscription.present.inbox_of(identity)
    return Key(subscription.stream, subscription=owner, stay=stay)


@dataclass(frozen=True, slots=True)
class Gap:
    """A range that did not arrive: ask for it before going on. `shown`: by a later block, else a site below says so."""

    stream: str
    after: int
    upto: int
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Send:
    """A message to publish on an output, expecting the output's last message to have this sequence.

    `charge` is the size at which it was let through; what it really takes is settled by `RelayCore.settle`.
    """

    key: Key
    block: Block
    expect: int
    charge: float = 0.0


@dataclass(frozen=True, slots=True)
class Room:
    """How many rows an output may send now, and how many bytes each is thought to take. `shared`: others want them.

    `narrow` says that it is not the site's upload, which others share, that holds the output up.
    """

    rows: int
    row_bytes: float = 0.0
    shared: bool = False
    narrow: bool = False


NO_ROOM: Final = Room(0)
_ASKS: Final = 100
MOST_HELD: Final = 1024
"""So many blocks of a stream are held behind a gap at most."""
_ANY: Final = 1 << 30
_AGAIN_S: Final = 0.1


@dataclass
class _Input:
    """What has come of a stream without a gap, and blocks past the first gap, in order.

    A site below may know of rows that this one should have sent it: `expected` is where they end.
    """

    coverage: int | None = None
    held: list[tuple[Block, Routes]] = field(default_factory=list)
    expected: int = 0

    def hold(self, block: Block, routes: Routes, most: int) -> None:
        """Keep a block for later; past the limit it is dropped, and asked for again when its turn comes."""
        if len(self.held) < most:
            insort(self.held, (block, routes), key=lambda each: each[0].after)


class RelayCore:
    """One site. Feed it blocks with `receive`, publish what `sends` gives, and report back."""

    def __init__(
        self, site: str, limits: QueueLimits | None = None, *, max_held: int = MOST_HELD, defer: bool = False
    ) -> None:
        """With `defer`, outputs leave long packs to the owner (see `Output`).

        It looks for them in `overfull` after everything that it gives the core, and then calls `release`.
        """
        self.site = site
        self.limits = limits or QueueLimits()
        self.outputs: dict[Key, Output] = {}
        self._inputs: dict[str, _Input] = {}
        self._links: dict[Key, None] = {}
        self._inboxes: DueTimes[Key] = DueTimes()
        self.shared = SharedWork()
        self._drain = FairDrain()
        self._contenders: dict[Key, Child | Receiver] = {}
        self._max_held = max_held
        self._evenly: Evenly[Key] | None = None
        self._lacking: dict[Key, float] = {}
        self._defer = defer
        self.overfull: list[Output] = []

    def restore(self, key: Key, coverage: int | None, sequence: int) -> Output:
        """Take up an output where its log ends. Called for each output before its first block."""
        output = self.outputs[key] = Output(self.limits, coverage, sequence, defer=self._defer, shared=self.shared)
        self.shared.pace(len(self.outputs))
        return output

    def coverage(self, stream: str) -> int | None:
        """The end of what has arrived without a gap."""
        found = self._inputs.get(stream)
        return found.coverage if found else None

    def begin(self, stream: str, coverage: int) -> None:
        """Say how far an input was received before its first block: what lies between is a gap.

        Without it the first block is where the input begins.
        """
        source = self._inputs.setdefault(stream, _Input())
        if source.coverage is None:
            source.coverage = coverage

    def gap(self, stream: str) -> Gap | None:
        """The first gap, if there is one; the outputs of blocks that are held behind it must stay."""
        found = self._inputs.get(stream)
        if found is None or found.coverage is None:
            return None
        if found.held:
            return Gap(stream, found.coverage, found.held[0][0].after)
        if found.expected > found.coverage:
            return Gap(stream, found.coverage, found.expected, shown=False)
        return None

    def expect(self, stream: str, upto: int) -> None:
        """Count what lies between the coverage of a stream that has begun and here as a gap, until it has come."""
        source = self._inputs[stream]
        source.expected = max(source.expected, upto)

    def let_go(self, stream: str, but: Collection[int]) -> None:
        """Drop the blocks that are held behind a gap, to be asked for again when their turn comes.

        The last stays, and so do those that end at one of the given places: their messages are still in the log.
        """
        found = self._inputs.get(stream)
        if found is not None:
            found.held[:-1] = [each for each in found.held[:-1] if each[0].upto in but]

    def held(self, stream: str) -> list[Block]:
        """The blocks of a stream that wait behind its first gap."""
        found = self._inputs.get(stream)
        return [] if found is None else [block for block, _ in found.held]

    def receive(self, block: Block, routes: Routes, now: float) -> Gap | None:
        """Take a block in. What was covered is dropped; a block past a gap is held, and the gap is returned."""
        source = self._inputs.setdefault(block.stream, _Input())
        if source.coverage is not None and block.upto <= source.coverage:
            return None
        if source.coverage is not None and block.after > source.coverage:
            source.hold(block, routes, self._max_held)
            return Gap(block.stream, source.coverage, source.held[0][0].after)
        if not self._continue(source, block, routes, now):
            return self.gap(block.stream)
        self._release(source, now)
        return None

    def cover(self, stream: str, upto: int, now: float) -> None:
        """Count a range as received that every output has passed, or that no output is owed: it need not be routed."""
        source = self._inputs.setdefault(stream, _Input())
        source.coverage = max(upto, source.coverage or 0)
        self._release(source, now)

    def _continue(self, source: _Input, block: Block, routes: Routes, now: float) -> bool:
        """Route the part of a block that is new; False where that part cannot be told, and has to be asked for."""
        if not self._exact(source, block, routes):
            source.coverage = max(source.coverage or 0, block.after)
            source.expected = max(source.expected, block.upto)
            return False
        self._route(block if source.coverage is None else block.since(source.coverage), routes, now)
        source.coverage = block.upto
        return True

    def _exact(self, source: _Input, block: Block, routes: Routes) -> bool:
        """Whether what the block declares is new to the site and to each of its outputs, or to none of them.

        The first half of it may have come from another site, before a restart or a change of parent.
        """
        if not block.declared:
            return True
        keys = (key_of(block.stream, target) for target in routes.targets)
        reached = [output.reach for key in keys if (output := self.outputs.get(key)) is not None]
        return all(place is None or block.exact_at(place) for place in (source.coverage, *reached))

    def release(self, now: float) -> None:
        """Go on with held blocks after packs that were left to the owner: see `overfull`."""
        for source in self._inputs.values():
            self._release(source, now)

    def _release(self, source: _Input, now: float) -> None:
        """Route held blocks that the coverage has reached, as long as no queue holds far too much for it."""
        while source.held and not self._bursting() and source.held[0][0].after <= (source.coverage or 0):
            block, routes = source.held.pop(0)
            if block.upto > (source.coverage or 0):
                self._continue(source, block, routes, now)

    def _bursting(self) -> bool:
        return any(output.bursting for output in self.overfull)

    def _route(self, block: Block, routes: Routes, now: float) -> None:
        for target, piece in split(block, routes):
            key = key_of(block.stream, target)
            self.offer(key, piece, target, now)

    def offer(self, key: Key, block: Block, target: Child | Receiver, now: float) -> None:
        """Put a block into the queue of an output: it is sent in its turn."""
        output = self.outputs.get(key)
        if output is None:
            raise LookupError(f"the output {key.token} of {self.site!r} was not restored before its first block")
        output.offer(block, target, now)
        if key.child is None:
            self._inboxes.add(key, output)
        else:
            self._links[key] = None
        if output.overfull and output not in self.overfull:
            self.overfull.append(output)

    def sends(self, now: float, room: Callable[[Key, Output], Room], inboxes: int = _ANY) -> Iterator[Send]:
        """Messages that are due on outputs that are not waiting for an answer, of inboxes at most so many.

        `room` says what an output may send now. Outputs that share a budget take turns, fair in bytes by the weights of
        the receivers behind them and inside strict priorities, or, where waiting is bounded by time, the one goes first
        whose rows have waited longest. Whoever takes a message from here pays for its `charge` before asking for the
        next.
        """
        sharing: dict[Key, float] = {}
        held: list[str] = []
        for key in self._turns(now):
            output = self.outputs[key]
            if output.busy is not None:
                held.append(key.token)
            elif not output.queue:
                if not output.packing:
                    self._links.pop(key)
            elif not output.due(now):
                held.append(key.token)  # asking for room would count as having something to send
            elif self._noted(key, found := room(key, output)) and output.due(now):
                charge = min(found.rows, max(1, output.rows)) * found.row_bytes
                if found.shared and self.limits.shed_after_s is None:
                    sharing[key] = charge
                else:
                    yield from self._send(key, found, now, charge)
            else:
                held.append(key.token)
        yield from self._in_turn(sharing, held, now, room)
        yield from self._to_inboxes(now, room, inboxes)

    def _to_inboxes(self, now: float, room: Callable[[Key, Output], Room], most: int) -> Iterator[Send]:
        """Messages of inboxes that are due; those that there is no room for are looked at again a little later."""
        self._inboxes.look(self.outputs)
        for key in islice(self._inboxes.due(now), most):
            output = self.outputs.get(key)
            if output is None or output.busy is not None or not output.due(now):
                if output is not None:
                    self._inboxes.add(key, output)
                continue
            found = room(key, output)
            if found.rows:
                self._inboxes.sent(key)
                yield from self._send(key, found, now, 0.0)
            else:
                self._inboxes.put(key, now + _AGAIN_S)

    def _in_turn(
        self, sharing: dict[Key, float], held: list[str], now: float, room: Callable[[Key, Output], Room]
    ) -> Iterator[Send]:
        """Messages of outputs that share a budget, in the order of the drain, while there is any left."""
        names = {key.token: key for key in sharing}
        for key in sharing:
            self._contend(key)
        while sharing:
            # Only who may send takes part: a turn gives credit, which is for bytes that are sent.
            rooms = {key: found for key in sharing if (found := room(key, self.outputs[key])).rows}
            name = self._drain.next({key.token: sharing[key] for key in rooms}, {*names, *held}) if rooms else None
            if name is None:
                return
            key = names[name]
            yield from self._send(key, rooms[key], now, sharing.pop(key))

    def _contend(self, key: Key) -> None:
        """Let an output take part in the sharing, by the receivers that it leads to now."""
        target = self.outputs[key].queue[-1].target
        if self._contenders.get(key) is not target:
            self._contenders[key] = target
            receivers = target.receivers if isinstance(target, Child) else (target,)
            weight = sum(receiver.subscription.weight for receiver in receivers)
            priority = max((receiver.subscription.priority for receiver in receivers), default=0)
            self._drain.add(key.token, max(weight, 1e-9), priority)

    def _send(self, key: Key, room: Room, now: float, charge: float) -> Iterator[Send]:
        output = self.outputs[key]
        block = output.next_message(now, room.rows)
        if block is not None:
            yield Send(key, block, output.sequence, charge)

    def settle(self, send: Send, size: float) -> None:
        """A message took so many bytes of a shared budget."""
        self._drain.charge(send.key.token, size - send.charge)

    def _turns(self, now: float) -> list[Key]:
        if self.limits.shed_after_s is None:
            return list(self._links)
        if self._evenly is None:
            self._evenly = Evenly(self.limits.shed_after_s)
        for key in self._links:
            self.outputs[key].waited(now)
        if self._evenly.due(now):
            self._thin(self._evenly, now)
        return sorted(self._links, key=lambda key: self.outputs[key].oldest)

    def _thin(self, evenly: Evenly[Key], now: float) -> None:
        """Give up what the controllers say of what has come since the last time, and move them."""
        links = {key: output for key, output in self.outputs.items() if key.child is not None}
        for key, output in links.items():
            output.thin_fresh(evenly.kept(key), now)
        queues = {
            key: Queue(output.waited(now), output.rows, output.went, self._lacking.get(key, 0.0))
            for key, output in links.items()
        }
        for key, part in evenly.look(queues, now).items():
            links[key].thin(part, now)

    def _noted(self, key: Key, room: Room) -> int:
        """The rows that an output may send; how often it lacks a budget of its own is kept, over the last asks."""
        if key.child is not None and self.limits.shed_after_s is not None:
            before = self._lacking.get(key, 0.0)
            self._lacking[key] = before + (room.narrow - before) / _ASKS
        return room.rows

    def wake_in(self, now: float, tick_s: float) -> float | None:
        """After how many seconds something may be due; None while nothing waits or all of it waits for answers."""
        waits = [
            max(output.due_at - now, tick_s)
            for key in self._links
            if (output := self.outputs[key]).busy is None and (output.queue or output.packing)
        ]
        self._inboxes.look(self.outputs)
        next_s = self._inboxes.next_at()
        if next_s is not None:
            waits.append(max(next_s - now, tick_s))
        return min(waits, default=None)

    def settled(self, stream: str) -> int | None:
        """The end of what no output needs from the site log any more, None when nothing is settled."""
        source = self._inputs.get(stream)
        came = None if source is None else source.coverage
        # An output with nothing to send needs nothing of what came, whether all of it is sent or nothing was for it.
        busy = [output for key, output in self.outputs.items() if key.stream == stream and output.needs(came)]
        marks = [output.settled for output in busy]
        known = [mark for mark in (*marks, came) if mark is not None]
        return None if not known or None in marks else min(known)

    def forget(self, key: Key) -> None:
        """Drop an output that no version will use again."""
        self.outputs.pop(key, None)
        self._links.pop(key, None)
        self._inboxes.forget(key)
        self.shared.pace(len(self.outputs))
        self._lacking.pop(key, None)
        if self._contenders.pop(key, None) is not None:
            self._drain.remove(key.token)
