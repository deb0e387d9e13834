"""A group of the simulated world: its members ask its dealer for rows over bad connections, die, stall and come back.

The dealer is the product's machine. Members are modelled here: each works on the rows that it got and then asks for
more. What is checked: rows are owed and hold what was committed, no two members have a row at a time, a row whose
acknowledgement was answered is never dealt again, and nothing is acknowledged that no member was done with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from headgate.gateway.dealer import DEAL
from headgate.protocol.deals import Dealt, MemberCall
from headgate.virtual.process import Instance
from headgate.wire.ledger import Tally
from headgate_studies.testing.world.oracle import Oracle
from headgate_studies.testing.world.subscriber import VALUE, Subscriber

_REPEAT_S: Final = 1.5
_ROOM: Final = 5


@dataclass(eq=False)
class SimulatedMember:
    """One member: what it holds, and what it has done and not yet heard to be stored."""

    name: str
    session: int = 0
    turn: int = 0
    held: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    alive: bool = True
    until_s: float = 0.0
    """Until when it stands still."""
    lossy: float = 0.0
    hoards: bool = False
    """Whether it goes on asking and is never done with the first row that it gets."""


class SimulatedGroup:
    """The members of one group, and what they know together."""

    def __init__(
        self, subscriber: Subscriber, lease_s: float, oracle: Oracle, random: Random, later: Callable[..., None]
    ) -> None:
        self.subscriber = subscriber
        self.members = [SimulatedMember(f"m{number}") for number in range(3)]
        self.dealer: Instance | None = None
        self.now: Callable[[], float] = lambda: 0.0
        self.wrong: Callable[[str], None] = lambda _: None
        self._lease_s = lease_s
        self._oracle = oracle
        self._random = random
        self._later = later
        self._stored: set[int] = set()
        self._finished: set[int] = set()
        self._holders: dict[int, tuple[str, float, int]] = {}

    def begin(self) -> None:
        """All members ask for rows."""
        for member in self.members:
            self._ask(member)

    def come_back(self, member: SimulatedMember) -> None:
        """A member that was killed starts anew: it knows nothing."""
        if not member.alive and member in self.members:
            self.members[self.members.index(member)] = fresh = SimulatedMember(member.name, member.session + 1)
            self._ask(fresh)

    def heal(self) -> None:
        """Everybody is there, and hears everything."""
        for member in list(self.members):
            member.until_s = member.lossy = 0.0
            self.come_back(member)

    def leave(self, member: SimulatedMember) -> None:
        """A member says that it goes; what it holds is for others. It comes back after a while as another run."""
        member.turn += 1
        call = self._call(member, leave=True)
        member.alive = False
        self._later(self._random.random() * 0.1, self._arrives, member, call, True)

    def _call(self, member: SimulatedMember, *, leave: bool = False) -> MemberCall:
        return MemberCall(
            name=self.subscriber.name,
            member=member.name,
            session=str(member.session),
            turn=member.turn,
            room=_ROOM,
            done=list(member.done),
            wait_s=1.0,
            leave=leave,
        )

    def _ask(self, member: SimulatedMember) -> None:
        """Say what is done and ask for the next rows."""
        if not member.alive:
            return
        rest_s = member.until_s - self.now()
        if rest_s > 0:
            self._later(rest_s, self._ask, member)
            return
        member.held = member.held[1:] if member.hoards else member.held
        self._finished.update(member.held)
        member.done, member.held = [*member.done, *member.held], []
        member.turn += 1
        self._send(member, member.turn)

    def _send(self, member: SimulatedMember, turn: int) -> None:
        """Ask, and again while there is no answer."""
        if not member.alive or member.turn != turn or member.held:
            return
        if self._random.random() >= member.lossy:
            self._later(self._random.random() * 0.1, self._arrives, member, self._call(member))
        self._later(_REPEAT_S, self._send, member, turn)

    def _arrives(self, member: SimulatedMember, call: MemberCall, leaving: bool = False) -> None:
        dealer = self.dealer
        if dealer is None or not dealer.alive or not (member.alive or leaving):
            return
        held = [seq for seq, (who, _, _) in self._holders.items() if who.split()[0] == call.member]
        for seq in held:  # an earlier run of it, or one that leaves, has nothing any more
            if leaving or self._holders[seq][0] != f"{call.member} {call.session}":
                del self._holders[seq]
        dealer.ask(DEAL, call, lambda found: self._answered(member, call, dealer, found))

    def _answered(self, member: SimulatedMember, call: MemberCall, dealer: Instance, found: Dealt) -> None:
        """The dealer has answered: what it says is checked as it leaves."""
        if found.error:
            return
        if found.stored:
            self._stored.update(set(call.done) - set(found.lost))
        self._check(member, call, dealer, found)
        if self._random.random() >= member.lossy:
            self._later(self._random.random() * 0.1, self._got, member, call, found)

    def _check(self, member: SimulatedMember, call: MemberCall, dealer: Instance, found: Dealt) -> None:
        mine, now = self.subscriber, self.now()
        seqs = found.seqs.tolist()
        if seqs:
            owed = set(self._oracle.rows(mine.stream, mine.id, min(seqs) - 1, max(seqs)))
            truth = self._oracle.streams[mine.stream]
            if not set(seqs) <= owed or len(set(seqs)) < len(seqs):
                self.wrong(f"{mine.name}: {member.name} was dealt {seqs}, owed are {sorted(owed)[:8]}")
            elif found.rows is None or found.rows.column(VALUE).to_pylist() != truth.values(seqs):
                self.wrong(f"{mine.name}: {member.name} was dealt other values than were committed")
        # One that was replaced and has not heard of it deals what is in its memory; nothing of that is stored.
        for seq in seqs if dealer is self.dealer else ():
            if seq in self._stored:
                self.wrong(f"{mine.name}: row {seq} is dealt to {member.name}, and its acknowledgement was answered")
            who, until_s, number = self._holders.get(seq, ("", 0.0, 0))
            if number == dealer.number and who.split()[0] != member.name and until_s > now:
                self.wrong(f"{mine.name}: row {seq} is dealt to {member.name} while {who} has it until {until_s:.2f}")
            self._holders[seq] = f"{member.name} {call.session}", now + self._lease_s, dealer.number

    def _got(self, member: SimulatedMember, call: MemberCall, found: Dealt) -> None:
        """The answer has come."""
        if not member.alive or member.turn != call.turn or member.held:
            return
        if found.stored:
            member.done = [seq for seq in member.done if seq not in call.done]
        member.held = found.seqs.tolist()
        if not member.held:
            member.turn += 1
            self._send(member, member.turn)
        else:
            self._later(self._random.choice((0.01, 0.1, 0.6)), self._ask, member)

    def acknowledged(self, tally: Tally) -> None:
        """An acknowledgement of the group was stored: members are done with all of it, and with what lies beyond."""
        mine = self.subscriber
        if tally.starts is None:
            return
        done = sum(1 for seq in self._finished if tally.starts < seq <= tally.mark)
        if done < tally.delivered + tally.since.delivered:
            self.wrong(
                f"{mine.name}: {tally.delivered + tally.since.delivered} rows up to {tally.mark} are acknowledged, "
                f"members are done with {done}"
            )
        for first, last in tally.beyond:
            dealt = {seq for seq in self._holders if first <= seq <= last}
            if not dealt <= self._finished:
                self.wrong(
                    f"{mine.name}: rows {first} to {last} count as done, {sorted(dealt - self._finished)} is not"
                )
        mine.mark = mine.done = max(mine.mark or 0, tally.mark)

    def any_member(self, random: Random) -> SimulatedMember:
        """One of them."""
        return random.choice(self.members)


def told(groups: dict[str, SimulatedGroup], data: Any) -> None:
    """Tell the group whose acknowledgement was stored."""
    tally = Tally.read(data) if isinstance(data, bytes) else None
    for group in groups.values():
        if tally is not None and tally.subscription == group.subscriber.id:
            group.acknowledged(tally)
