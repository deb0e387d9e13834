"""A world of relays in memory: logs that fence, refuse and lose answers, so that the core meets every fault."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.model import Subscription
from headgate.relay.core import Gap, Key, RelayCore, Room, key_of
from headgate.relay.output import QueueLimits
from headgate.relay.routes import Child, Receiver, Routes
from headgate.wire.block import Block, Commit
from headgate.wire.message import block_range, decode_block, encode_block

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.string())])
STREAM = "s"
PARENTS = {"a": "root", "b": "a", "c": "a"}
# Receiver id -> (site, class id, columns)
RECEIVERS = {1: ("root", 2, ["x"]), 2: ("a", 3, ["x", "y"]), 3: ("b", 2, ["x"]), 4: ("b", 5, ["y"]), 5: ("c", 3, ["y"])}


@dataclass
class Log:
    """One log of a site: messages by subject, with a limit per inbox."""

    messages: list[tuple[int, str, bytes]] = field(default_factory=list)
    sequence: int = 0
    limit: int = 10**9

    def last(self, subject: str) -> tuple[int, bytes] | None:
        found = [(seq, data) for seq, name, data in self.messages if name == subject]
        return found[-1] if found else None

    def append(self, subject: str, data: bytes, expect: int) -> int | None:
        """The sequence, None when the subject is full; a wrong expectation raises."""
        tail = self.last(subject)
        if (tail[0] if tail else 0) != expect:
            raise PermissionError(subject)
        if sum(name == subject for _, name, _ in self.messages) >= self.limit:
            return None
        self.sequence += 1
        self.messages.append((self.sequence, subject, data))
        return self.sequence


def receiver(identity: int) -> Receiver:
    site, class_id, columns = RECEIVERS[identity]
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    return Receiver(identity, class_id, Subscription(f"r{identity}", STREAM, site), schema)


def below(site: str) -> list[str]:
    return [site, *(found for child, parent in PARENTS.items() if parent == site for found in below(child))]


def routes(site: str) -> Routes:
    children = []
    for child, parent in PARENTS.items():
        if parent == site:
            found = tuple(receiver(i) for i, (place, _, _) in RECEIVERS.items() if place in below(child))
            children.append(Child(child, found, SCHEMA))
    local = tuple(receiver(i) for i, (place, _, _) in RECEIVERS.items() if place == site)
    return Routes(site, STREAM, 1, PARENTS.get(site), SCHEMA, tuple(children), local)


class World:
    """Four sites in two levels; every step is chosen by the seed."""

    def __init__(self, seed: int, *, limits: QueueLimits, inbox_limit: int = 10**9) -> None:
        self.random = random.Random(seed)
        self.limits = limits
        self.root_log: list[Block] = []
        self.logs = {site: Log() for site in ("root", *PARENTS)}
        self.inboxes = {identity: Log(limit=inbox_limit) for identity in RECEIVERS}
        self.cores = {site: RelayCore(site, limits) for site in self.logs}
        self.read = dict.fromkeys(self.logs, 0)
        self.head = 0
        self.now = 0.0
        self.crashes = self.lost_answers = self.repairs = self.refusals = 0

    def commit(self) -> None:
        """The root commits a micro-batch of 0 to 12 rows."""
        rows = self.random.randint(1, 12)
        seqs = range(self.head + 1, self.head + rows + 1)
        lists = [[c for c in (2, 3, 5) if seq % c == 0] for seq in seqs]
        kept = [i for i, found in enumerate(lists) if found]
        numbers = [seqs[i] for i in kept]
        block = Block(
            STREAM,
            self.head,
            self.head + rows,
            (Commit(self.head, self.head + rows, 1, 0),),
            np.array(numbers, dtype=np.uint64),
            pa.RecordBatch.from_pylist([{"x": n, "y": f"r{n}"} for n in numbers], schema=SCHEMA),
            ClassLists.of([lists[i] for i in kept]),
        )
        self.root_log.append(block)
        self.head += rows

    def log_and_subject(self, site: str, key: Key) -> tuple[Log, str]:
        if key.child is not None:
            return self.logs[key.child], f"in.{site}"
        assert key.subscription is not None
        return self.inboxes[key.subscription], "inbox"

    def restore(self, site: str) -> None:
        core = self.cores[site]
        for target in (*routes(site).children, *routes(site).local):
            key = key_of(STREAM, target)
            if key not in core.outputs:
                log, subject = self.log_and_subject(site, key)
                tail = log.last(subject)
                core.restore(key, block_range(tail[1])[1] if tail else None, tail[0] if tail else 0)

    def input(self, site: str) -> Block | None:
        """The next block of a site's log."""
        if site == "root":
            if self.read[site] >= len(self.root_log):
                return None
            self.read[site] += 1
            return self.root_log[self.read[site] - 1]
        waiting = [entry for entry in self.logs[site].messages if entry[0] > self.read[site]]
        if not waiting:
            return None
        self.read[site] = waiting[0][0]
        return decode_block(waiting[0][2], SCHEMA)

    def receive(self, site: str) -> bool:
        block = self.input(site)
        if block is None:
            return False
        self.restore(site)
        gap = self.cores[site].receive(block, routes(site), self.now)
        if gap is not None:
            self.repair(site, gap)
        return True

    def repair(self, site: str, gap: Gap) -> None:
        """Answer a gap from the root log, as the last resort of the repair protocol does."""
        from headgate.relay.split import for_child

        self.repairs += 1
        parent = routes(PARENTS[site])
        (child,) = [each for each in parent.children if each.site == site]
        for block in self.root_log:
            if block.upto > gap.after and block.after < gap.upto:
                self.cores[site].receive(for_child(block, child), routes(site), self.now)

    def publish(self, site: str, *, faulty: bool) -> bool:
        core = self.cores[site]
        sent = False
        for send in core.sends(self.now, lambda key, output: Room(self.random.randint(1, 9))):
            sent = True
            log, subject = self.log_and_subject(site, send.key)
            output = core.outputs[send.key]
            data = encode_block(send.block)
            if faulty and self.random.random() < 0.05:
                self.crash(site)
                return True
            try:
                sequence = log.append(subject, data, send.expect)
            except PermissionError:
                tail = log.last(subject)
                assert tail is not None
                output.resume(block_range(tail[1])[1], tail[0])
                continue
            if faulty and self.random.random() < 0.05:
                self.crash(site)
                return True
            if sequence is None:
                self.refusals += 1
                output.refused()
            elif faulty and self.random.random() < 0.1:
                self.lost_answers += 1
                output.resume(send.block.after if send.expect else None, send.expect)
            else:
                output.published(sequence)
        return sent

    def crash(self, site: str) -> None:
        """The relay forgets everything that is not in a log."""
        self.crashes += 1
        self.cores[site] = RelayCore(site, self.limits)
        self.read[site] = 0

    def lose_link_message(self) -> None:
        """A message vanishes from a site log behind everybody's back."""
        site = self.random.choice(list(PARENTS))
        messages = self.logs[site].messages
        if len(messages) > 2:
            del messages[self.random.randrange(len(messages) - 1)]

    def drain(self) -> None:
        """Let everything that is under way arrive."""
        for log in self.inboxes.values():
            log.limit = 10**9
        for _ in range(10_000):
            self.now += 1.0
            moved = [self.receive(site) for site in self.logs]
            moved += [self.publish(site, faulty=False) for site in self.logs]
            if not any(moved):
                return
        raise AssertionError("the world does not come to rest")

    def delivered(self, identity: int) -> tuple[list[int], dict[str, int]]:
        """What lies in an inbox: row numbers and declared losses; coverage has to be adjacent up to the head."""
        schema = receiver(identity).schema
        reach, numbers, given_up = 0, [], {}
        for _, _, data in self.inboxes[identity].messages:
            block = decode_block(data, schema)
            assert block.after == reach, (identity, block.after, reach)
            reach = block.upto
            numbers.extend(block.seqs.tolist())
            for reason, count in block.declared.get(identity, {}).items():
                given_up[reason] = given_up.get(reason, 0) + count
        assert reach == self.head, (identity, reach, self.head)
        return numbers, given_up

    def matched(self, identity: int) -> list[int]:
        class_id = RECEIVERS[identity][1]
        return [seq for seq in range(1, self.head + 1) if seq % class_id == 0]
