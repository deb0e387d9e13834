"""Values that a subscriber sets while it runs are bounded as those it subscribed with."""

import asyncio

import pytest

from headgate.filters import FilterError
from headgate.model import Deployment, Schema, Site, Source, Stream, Subscription
from headgate.service.contexts import Contexts
from headgate.wire.snapshot import Snapshot

STREAM = Stream("events", Schema.of({"n": "int", "s": "string"}), Source("rate", {}), "root")
WHERE = " OR ".join(f"(array_contains($many, s) AND n = {number})" for number in range(200))


class Log:
    """The root log of a stream as far as updates are concerned: keeps what was published."""

    def __init__(self):
        self.logs = self
        self.published = []

    def context(self, stream):
        return f"context.{stream}"

    async def publish(self, subject, update):
        self.published.append((subject, update))
        return len(self.published)


@pytest.fixture
def contexts():
    mine = Subscription("mine", "events", "root", where=WHERE, context={"many": ["a"]})
    found = Contexts(Log(), None)
    deployment = Deployment({"events": STREAM}, {"root": Site("root")}, subscriptions={"mine": mine})
    found.snapshot = Snapshot(1, deployment, class_ids={"mine": 1}, subscription_ids={"mine": 1})
    return found


def deep(levels):
    found = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([f"k{number}" for number in range(4_000)], "us a row, at most 20"),
        (["a"] * 4_097, "4,097 values, at most 4,096"),
        ("a" * 4_097, "4,097 long, at most 4,096"),
        (deep(50_000), "nested 41 deep, at most 40"),
    ],
)
def test_what_is_too_much_is_refused_and_nothing_is_set(contexts, values, says):
    with pytest.raises(FilterError, match=says):
        asyncio.run(contexts.set({"mine": {"many": values}}))
    assert contexts.current("mine") == {"many": ["a"]}
    assert contexts._fabric.published == []


def test_a_list_may_grow_as_long_as_the_filter_stays_cheap(contexts):
    asyncio.run(contexts.set({"mine": {"many": [f"k{number}" for number in range(500)]}}))
    assert len(contexts.current("mine")["many"]) == 500
    assert len(contexts._fabric.published) == 1
