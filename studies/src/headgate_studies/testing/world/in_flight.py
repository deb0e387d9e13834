"""Where the rows in flight really lie: counted message by message, and compared with what the ledger says.

From what a subscription has acknowledged, its rows are followed upwards: unread messages of its inboxes, the queue of
its site, what its site has got and not routed, the queues and logs of the sites above, and at last the root log. Each
row is counted where it is first met, as one that is there or as one that a message declares. Nothing of the product's
sums is used, so a row that is nowhere any more, or twice, shows while everything still runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from headgate.model import Stay, Subscription, Tree
from headgate.relay.core import Key
from headgate.relay.machine import RelayMachine
from headgate.virtual.logs import SimulatedLog
from headgate.virtual.process import Instance
from headgate.virtual.server import SimulatedServer
from headgate.wire.block import Block
from headgate.wire.ledger import Since, Tally
from headgate.wire.logs import Log, Logs
from headgate.wire.manifest import Manifest
from headgate.wire.part import Part
from headgate_studies.testing.world.oracle import Oracle
from headgate_studies.testing.world.subscriber import Subscriber

_MOST_KEPT: Final = 10_000


class Unsettled(Exception):  # noqa: N818 # no error: it cannot be said for now
    """What is in flight cannot be counted now: rows that a damaged commit lacks are settled by the reader only."""


class Lost(Exception):  # noqa: N818 # it is what was found
    """Rows behind a place lie nowhere."""


class Whereabouts:
    """Looks for the rows of subscriptions in everything that a world stores and holds."""

    def __init__(self, server: SimulatedServer, logs: Logs, oracle: Oracle, relays: dict[str, Instance]) -> None:
        self._server = server
        self._logs = logs
        self.oracle = oracle
        self._relays = relays
        self._parts: dict[str, dict[int, tuple[int, ...]]] = {}
        self._places: dict[tuple[int, int], tuple[int, frozenset[str]] | None] = {}
        self._counts: dict[tuple[int, int], tuple[Block, int]] = {}

    def committed(self, manifest: Manifest) -> None:
        """A batch was committed: remember where its rows are staged."""
        staged = tuple(part.log_sequence for part in manifest.parts if part.log_sequence)
        self._parts.setdefault(manifest.stream, {})[manifest.upto] = staged

    def count(self, subscriber: Subscriber, wanted: Subscription, tally: Tally, starts: int) -> int:
        """How many rows past the mark of a tally lie somewhere, there or declared, up to the last commit."""
        return _Search(self, subscriber, wanted, tally, starts).count()

    def owed(self, subscriber: Subscriber, after: int) -> int:
        """How many rows were matched for a subscription in the commits behind a place, by the oracle."""
        oracle, stream = self.oracle, subscriber.stream
        found = 0
        for commit in oracle.streams[stream].between(after, oracle.streams[stream].head):
            class_id = oracle.class_of(commit.version, subscriber.id)
            found += 0 if class_id is None else commit.count(class_id)
        return found

    def log(self, log: Log) -> SimulatedLog | None:
        """A log, None where it was not made yet."""
        return None if self._server.info(log) is None else self._server.log(log)

    def newest_tree(self, stream: str) -> Tree:
        """The tree of a stream by the newest plan."""
        plan = self.oracle.versions[max(self.oracle.versions)].plan
        assert plan is not None
        return plan.trees[stream]

    def stay_in(self, version: int, subscription: int) -> int | None:
        """In which of its stays a version serves a subscription, None where it does not."""
        found = self._place(version, subscription)
        return None if found is None else found[0]

    def passes(self, version: int, subscription: int, site: str) -> bool:
        """Whether a version sends the rows of a subscription over a link into a site."""
        found = self._place(version, subscription)
        return found is not None and site in found[1]

    def _place(self, version: int, subscription: int) -> tuple[int, frozenset[str]] | None:
        key = (version, subscription)
        if key not in self._places:
            snapshot = self.oracle.versions[version]
            names = [name for name, each in snapshot.subscription_ids.items() if each == subscription]
            self._places[key] = None
            assert snapshot.plan is not None
            for name in names:
                mine = snapshot.deployment.subscriptions[name]
                tree, site, path = snapshot.plan.trees[mine.stream], mine.site, set[str]()
                while site != tree.root and site not in path:
                    path.add(site)
                    site = tree.parents[site]
                self._places[key] = mine.stay, frozenset(path)
        return self._places[key]

    def rows(self, block: Block, after: int, subscription: int, *, mine: bool) -> int:
        """The rows of a block behind a place that are a subscription's: all of an inbox, its class of a link."""
        if mine or block.classes is None:
            return len(block.seqs) if after <= block.after else int((block.seqs > after).sum())
        key = (id(block), subscription)
        known = self._counts.get(key)
        if after <= block.after and known is not None and known[0] is block:
            return known[1]
        found = self._of_class(block, after, subscription)
        if after <= block.after:
            if len(self._counts) > _MOST_KEPT:
                self._counts.clear()
            self._counts[key] = block, found
        return found

    def _of_class(self, block: Block, after: int, subscription: int) -> int:
        """The rows of a link that are of the subscription's class and not taken out for it alone."""
        assert block.classes is not None
        class_id = self.oracle.class_of(block.version, subscription)
        plain = block.classes.plain()
        hits = np.flatnonzero(plain.numbers == class_id)
        seqs = block.seqs[np.searchsorted(plain.starts, hits, side="right") - 1]
        found = seqs[seqs > after]
        patch = block.patches.get(subscription)
        return len(found) if patch is None else len(np.setdiff1d(found, patch.without))

    def at_root(self, subscriber: Subscriber, after: int, upto: int) -> int:
        """The rows in (after, upto] of commits that the root log holds with all of their parts; `Lost` where not."""
        stream, found = subscriber.stream, 0
        log = self._server.log(self._logs.root(stream))
        kept = log.read(self._logs.commit(stream), 0, 1)
        first = kept[0].data if kept else None
        for commit in self.oracle.streams[stream].between(after, upto):
            seqs = self.oracle.rows(stream, subscriber.id, max(after, commit.after), min(upto, commit.upto),
                                     past=subscriber.past)  # fmt: skip
            if not seqs:
                continue
            if not isinstance(first, Manifest) or first.after > commit.after:
                raise Lost(f"rows of ({max(after, commit.after)}, {min(upto, commit.upto)}]")
            for place in self._parts[stream][commit.upto]:
                stored = log.get(place)
                if stored is None:
                    raise Lost(f"a part of ({commit.after}, {commit.upto}]")
                if not isinstance(stored.data, Part):
                    raise Unsettled
            found += len(seqs)
        return found

    def unread(self, stay: Stay, subscriber: Subscriber, place: int) -> Iterator[Block]:
        """What lies unread in an inbox, and what is queued for it, for one who reads it in a stay."""
        logs, mine = self._logs, stay.inbox_of(subscriber.id)
        inbox = self.log(logs.inbox(stay.site))
        stored = [] if inbox is None else inbox.read(logs.delivery(stay.site, *mine), place, 1 << 20, 1 << 40)
        found = [each.data for each in stored if isinstance(each.data, Block)]
        key = Key(subscriber.stream, subscription=mine[0], stay=mine[1])
        for block in (*found, *self._queued(stay.site, key)):
            if self.stay_in(block.version, subscriber.id) == stay.number:
                yield block

    def _queued(self, site: str, key: Key) -> Iterable[Block]:
        """What a relay has in a queue, and what it has decided about it."""
        relay, held = self._relays[site], self.log(self._logs.site(site))
        decided = None if held is None else held.last(self._logs.held(site, key.token))
        if decided is not None and isinstance(decided.data, Block):
            yield decided.data
        if relay.alive and isinstance(relay.machine, RelayMachine):
            output = relay.machine.state.core.outputs.get(key)
            yield from () if output is None else [each.block for each in output.queue]

    def above(self, subscriber: Subscriber, sites: Sequence[str], after: int) -> Iterator[Block]:
        """What is on its way over links, nearest first: in the logs of sites, and in the queues towards them."""
        for site in sites:
            log = self.log(self._logs.site(site))
            if log is None:
                continue
            for subject in sorted(log.subjects(self._logs.links_of(site, subscriber.stream))):
                late = [each.data for each in log.newest(subject, lambda data: _reaches(data, after))]
                for block in reversed(late):
                    if isinstance(block, Block) and self.passes(block.version, subscriber.id, site):
                        yield block
            for parent in self._relays:
                for block in self._queued(parent, Key(subscriber.stream, child=site)):
                    if self.passes(block.version, subscriber.id, site):
                        yield block


def _reaches(data: object, after: int) -> bool:
    return not isinstance(data, Block) or data.upto > after


class _Search:
    """The search for the rows of one subscription."""

    def __init__(
        self, where: Whereabouts, subscriber: Subscriber, wanted: Subscription, tally: Tally, starts: int
    ) -> None:
        self._where = where
        self._subscriber = subscriber
        self._wanted = wanted
        self._tally = tally
        self._at = starts if tally.starts is None else tally.mark
        self._found = 0
        if tally.begun is not None and tally.begun.whole is not None:
            raise Unsettled

    def count(self) -> int:
        """All rows behind the mark."""
        where, mine = self._where, self._subscriber
        head = where.oracle.streams[mine.stream].head
        for stay in self._wanted.stays:
            if stay.number >= self._tally.stay:
                self._take(where.unread(stay, mine, self._tally.place(stay.number)), own=stay)
        while self._at < head:
            sites = self._path()
            before, ahead = self._at, head
            for block in where.above(mine, sites, self._at):
                ahead = min(ahead, block.after) if block.after > self._at else ahead
                self._take((block,))
            if self._at == before:
                self._found += where.at_root(mine, self._at, ahead)
                self._at = ahead
        return self._found

    def _path(self) -> list[str]:
        """The sites that rows come through over links, the subscription's own first."""
        tree = self._where.newest_tree(self._subscriber.stream)
        site, path = self._wanted.site, list[str]()
        while site in tree.parents and site not in path:
            path.append(site)
            site = tree.parents[site]
        return path

    def _take(self, blocks: Iterable[Block], own: Stay | None = None) -> None:
        """Count what goes on from where the count stands."""
        mine = self._subscriber.id
        told = mine if own is None else own.inbox_of(mine)[0]
        for block in blocks:
            if block.upto <= self._at or block.after > self._at:
                continue
            if any(told in commit.whole for commit in block.commits) or told in block.begun:
                raise Unsettled
            declared = sum(block.declared.get(told, {}).values())
            if block.after < self._at and told in block.basis:
                declared -= self._counted(own) - sum(block.basis[told].values())
            elif declared and not block.exact_at(self._at):
                continue
            self._found += declared + self._where.rows(block, self._at, mine, mine=own is not None)
            self._at = block.upto

    def _counted(self, stay: Stay | None) -> int:
        """What is counted in a stay up to where the count stands."""
        if stay is None or stay.number != self._tally.stay:
            return self._found
        return counted(self._tally) - sum(self._tally.entered.values()) + self._found


def counted(tally: Tally) -> int:
    """Everything that a tally has counted, up to its mark."""
    return tally.delivered + sum(tally.reduced.values()) + tally.expired + counted_since(tally.since)


def counted_since(since: Since) -> int:
    """What was counted past the last boundary."""
    return since.delivered + sum(since.reduced.values()) + since.expired
