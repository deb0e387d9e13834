"""Values of the model come back from their JSON as they were, and equal values have equal bytes."""

import json
import string

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import (
    Admission,
    Column,
    Deployment,
    Link,
    Links,
    Plan,
    Quality,
    QualityTable,
    Schema,
    Site,
    Source,
    Stream,
    Subscription,
    Tree,
    parse_type,
)
from headgate.wire import codec
from headgate.wire.snapshot import Snapshot

names = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=6)
texts = st.text(max_size=12)
numbers = st.floats(0, 1e12, allow_nan=False)
shares = st.floats(0, 1, allow_nan=False)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
mappings = st.dictionaries(texts, documents, max_size=3)
kinds = st.sampled_from(["double", "timestamp", "decimal(9,2)", "array<map<string,int>>", "struct<a:int,B:date>"])
columns = st.builds(Column, names, kinds.map(parse_type), st.none() | texts)
schemas = st.lists(columns, min_size=1, max_size=4, unique_by=lambda column: column.name).map(
    lambda found: Schema(tuple(found))
)
qualities = st.builds(
    Quality,
    shares,
    numbers,
    st.none() | shares,
    st.none() | st.just(QualityTable("linear", (0.0, 0.5), (1.0, 3.0), ((1.0, 0.5), (0.25, 0.0)))),
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    sites = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    site = st.sampled_from(sites)
    streams = {
        name: Stream(
            name,
            draw(schemas),
            Source(draw(names), draw(st.dictionaries(names, texts, max_size=2))),
            draw(site),
            tuple(draw(st.lists(names, max_size=2))),
            draw(st.none() | names),
            draw(numbers),
            Admission(draw(names), draw(st.none() | numbers), draw(mappings)),
            draw(mappings),
        )
        for name in draw(st.lists(names, min_size=1, max_size=3, unique=True))
    }
    subscriptions = {
        name: Subscription(
            name,
            draw(st.sampled_from(sorted(streams))),
            draw(site),
            draw(texts),
            draw(st.none() | st.lists(names, min_size=1, max_size=3).map(tuple)),
            draw(names),
            *(draw(st.none() | mappings) for _ in range(2)),
            draw(qualities),
            draw(st.none() | mappings),
            draw(mappings),
            draw(numbers),
            expires_s=draw(st.none() | numbers),
        )
        for name in draw(st.lists(names, max_size=3, unique=True))
    }
    pairs = [frozenset((one, other)) for one in sites for other in sites if one < other]
    links = Links(
        draw(numbers),
        {
            ends: Link(ends, draw(numbers), draw(st.none() | numbers), follow=draw(st.booleans()))
            for ends in pairs
            if draw(st.booleans())
        },
        only_listed=draw(st.booleans()),
    )
    plan = None
    if draw(st.booleans()):
        rest = {name: [found for found in sites if found != stream.root] for name, stream in streams.items()}
        plan = Plan(
            {name: Tree(name, streams[name].root, dict.fromkeys(rest[name], streams[name].root)) for name in rest}
        )
    deployment = Deployment(
        streams,
        {
            name: Site(
                name, *(draw(st.none() | numbers) for _ in range(2)), draw(st.none() | st.tuples(numbers, numbers))
            )
            for name in sites
        },
        links,
        subscriptions,
        plan,
        draw(st.none() | texts),
        tuple(draw(st.lists(texts, max_size=2))),
        draw(mappings),
    )
    ids = {name: number for number, name in enumerate(subscriptions, 1)}
    return Snapshot(draw(st.integers(0, 2**60)), deployment, plan, ids, dict.fromkeys(ids, 7))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(snapshots())
def test_a_snapshot_comes_back(snapshot: Snapshot) -> None:
    text = snapshot.to_json()
    assert Snapshot.from_json(text) == snapshot
    assert Snapshot.from_json(text.encode()).to_json() == text
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False) == text


def test_the_order_of_making_does_not_show() -> None:
    one = Subscription("a", "s", "x", context={"p": 1, "q": {"m": 1, "n": 2}})
    other = Subscription("a", "s", "x", context={"q": {"n": 2, "m": 1}, "p": 1})
    assert codec.dumps(codec.encode_subscription(one)) == codec.dumps(codec.encode_subscription(other))


def test_what_has_its_default_is_left_out() -> None:
    assert codec.encode_subscription(Subscription("a", "s", "x")) == {"stream": "s", "site": "x"}
    assert codec.encode_site(Site("x")) == {}
