"""The poller's decisions: what to ask now, and what of an answer is new. No clock, no socket, no file.

An item is new when its key was not in any earlier answer of its feed (the last few thousand keys are remembered), and
so is an entry that could not be read: a bad entry is one dead letter, however often its feed is asked. The state is
plain data, so that a restart goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headgate.feeds.fetch import Fetched
from headgate.feeds.items import DeadLetter, Item
from headgate.feeds.listing import Feed
from headgate.feeds.parse import parse_feed
from headgate.feeds.schedule import Politeness

REMEMBERED = 10_000


@dataclass(slots=True)
class FeedState:
    """What is known of one feed."""

    due_s: float = 0.0
    etag: str | None = None
    modified: str | None = None
    failures: int = 0
    gone: bool = False
    keys: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """A feed to ask now, with the validators of its last answer."""

    feed: Feed
    etag: str | None
    modified: str | None


@dataclass(frozen=True, slots=True)
class Polled:
    """What an answer brought: new items, the oldest first, and dead letters. `failed` when it was no feed at all."""

    feed: str
    items: tuple[Item, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    unchanged: bool = False
    failed: bool = False

    @property
    def keys(self) -> list[str]:
        """What is remembered once it is published: its items, and of a feed the entries that could not be read."""
        letters = () if self.failed else self.dead
        return [item.key for item in self.items] + [letter.key for letter in letters]


@dataclass(slots=True)
class Counts:
    """What the poller did so far."""

    requests: int = 0
    unchanged: int = 0
    failures: int = 0
    items: int = 0
    dead: int = 0
    bytes: int = 0


class Poller:
    """Decides for a set of feeds. `asked` hosts are remembered so that one host is not asked twice in a row."""

    def __init__(self, feeds: Iterable[Feed], politeness: Politeness | None = None) -> None:
        self.feeds = {feed.name: feed for feed in feeds}
        self.politeness = politeness or Politeness()
        self.states = {name: FeedState() for name in self.feeds}
        self.hosts: dict[str, float] = {}
        self.counts = Counts()

    def due(self, now_s: float) -> list[FeedRequest]:
        """Feeds to ask now; of one host only one at a time, and not before its gap has passed."""
        found: list[FeedRequest] = []
        for name, feed in sorted(self.feeds.items(), key=lambda pair: self.states[pair[0]].due_s):
            state = self.states[name]
            if state.gone or state.due_s > now_s:
                continue
            if feed.host:
                if self.hosts.get(feed.host, 0.0) > now_s:
                    continue
                self.hosts[feed.host] = now_s + self.politeness.host_gap_s
            state.due_s = now_s + self.politeness.interval_s  # also keeps it from being asked twice at once
            found.append(FeedRequest(feed, state.etag, state.modified))
        return found

    def next_due(self) -> float | None:
        """When to look again; None when every feed is gone."""
        times = [
            max(state.due_s, self.hosts.get(self.feeds[name].host, 0.0) if self.feeds[name].host else 0.0)
            for name, state in self.states.items()
            if not state.gone
        ]
        return min(times, default=None)

    def take(self, request: FeedRequest, answer: Fetched, now_s: float) -> Polled:
        """What is new in an answer. Keys are remembered by `accept`, after the items are safe."""
        state, name = self.states[request.feed.name], request.feed.name
        self.counts.requests += 1
        self.counts.bytes += len(answer.body)
        if answer.status == 304:
            state.failures = 0
            self.counts.unchanged += 1
            return Polled(name, unchanged=True)
        if answer.status != 200:
            return self._failed(state, name, answer, now_s)
        parsed = parse_feed(name, answer.body)
        dead = parsed.dead
        if parsed.is_feed:
            state.failures = 0
            state.etag, state.modified = answer.etag, answer.modified
            dead = tuple(letter for letter in dead if letter.key not in state.keys)
        else:
            # Nothing could be read: ask again in full next time, and less often.
            state.failures += 1
            state.due_s = now_s + self.politeness.after_failure(state.failures, None)
            self.counts.failures += 1
        new = tuple(item for item in reversed(parsed.items) if item.key not in state.keys)
        self.counts.items += len(new)
        self.counts.dead += len(dead)
        return Polled(name, new, dead, failed=not parsed.is_feed)

    def _failed(self, state: FeedState, name: str, answer: Fetched, now_s: float) -> Polled:
        state.failures += 1
        state.gone = answer.status == 410
        state.due_s = now_s + self.politeness.after_failure(state.failures, answer.retry_after_s)
        self.counts.failures += 1
        self.counts.dead += 1
        return Polled(name, dead=(DeadLetter(name, answer.error or f"HTTP {answer.status}"),), failed=True)

    def accept(self, polled: Polled) -> None:
        """Remember the keys of what was published."""
        keys = self.states[polled.feed].keys
        keys.update(dict.fromkeys(polled.keys))
        for key in list(keys)[: max(0, len(keys) - REMEMBERED)]:
            del keys[key]

    def restore(self, states: Mapping[str, FeedState]) -> None:
        """Go on from saved states; feeds that are no longer listed are forgotten, new ones start fresh."""
        self.states |= {name: state for name, state in states.items() if name in self.states}
