"""Values that a subscriber sets while it runs are bounded as those it subscribed with."""

import asyncio

import pytest

from headgate.errors import HeadgateError
from headgate.filters import FilterError
from headgate.model import Deployment, Schema, Site, Source, Stream, Subscription
from headgate.service.contexts import Contexts
from headgate.wire.context import decode_context, encode_context
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


@pytest.fixture
def numbers():
    where = "n > $low AND n < $high"
    mine = {f"p{k}": Subscription(f"p{k}", "events", "root", where, context={"low": 1, "high": 9.5}) for k in range(3)}
    found = Contexts(Log(), None)
    deployment = Deployment({"events": STREAM}, {"root": Site("root")}, subscriptions=mine)
    ids = {name: number for number, name in enumerate(mine)}
    found.snapshot = Snapshot(1, deployment, class_ids={**ids, "p2": 1}, subscription_ids=ids)
    return found


def test_numbers_that_stay_of_their_type_are_set_without_reading_the_filter(numbers, monkeypatch):
    monkeypatch.setattr("headgate.service.contexts.template_of", lambda subscription: pytest.fail("it was read"))
    assert asyncio.run(numbers.set({"p0": {"low": 4, "high": 8.0}})) == 1
    assert numbers.current("p0") == {"low": 4, "high": 8.0}
    [(_, update)] = numbers._fabric.published
    assert decode_context(update) == {0: ({"low": 1, "high": 9.5}, {"low": 4, "high": 8.0})}


@pytest.mark.parametrize(
    ("name", "values"), [("p0", {"low": 4.5}), ("p0", {"low": True}), ("p1", {"low": 4}), ("p2", {"low": 4})]
)
def test_another_type_and_a_class_of_two_need_the_catalog(numbers, name, values):
    assert asyncio.run(numbers.set({name: values})) is None
    assert numbers._fabric.published == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**70])
def test_numbers_that_cannot_be_stored_are_refused(numbers, value):
    key = "low" if isinstance(value, int) else "high"
    with pytest.raises(HeadgateError, match="cannot be stored"):
        asyncio.run(numbers.set({"p0": {key: value}}))


def test_updates_of_classes_with_other_names_keep_their_order():
    changes = {5: ({"x": 1}, {"x": 2}), 3: ({"y": "a"}, {"y": "b", "z": None}), 4: ({"x": 0}, {"x": [1.5, 2]})}
    found = decode_context(encode_context(changes))
    assert found == changes
    assert list(found) == [5, 3, 4]
