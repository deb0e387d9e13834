"""What routes know of a version without going through all subscriptions for every block."""

from __future__ import annotations

from headgate.model import Deployment, Plan, Schema, Site, Source, Stream, Subscription, Tree
from headgate.relay.core import key_of
from headgate.relay.routes import build_routes
from headgate.wire.snapshot import Snapshot

STREAM = Stream("s", Schema.of({"x": "int"}), Source("generator"), "root")
MINE = {
    "owner": Subscription("owner", "s", "leaf"),
    "second": Subscription("second", "s", "leaf", shared=(1, 0)),
    "moved": Subscription("moved", "s", "leaf", stay=2, shared=(1, 0)),
    "alone": Subscription("alone", "s", "leaf", start="earliest"),
    "above": Subscription("above", "s", "root"),
}
IDS = {name: number for number, name in enumerate(MINE, 1)}
SNAPSHOT = Snapshot(
    3,
    Deployment({"s": STREAM}, {"root": Site("root"), "leaf": Site("leaf")}, subscriptions=MINE),
    Plan({"s": Tree("s", "root", {"leaf": "root"})}),
    IDS,
    dict.fromkeys(IDS, 7),
)


def test_readers_of_an_inbox_are_those_of_the_version_in_their_stays() -> None:
    routes = build_routes(SNAPSHOT, "leaf", "s")
    assert routes is not None
    assert routes.readers == {(1, 0): {(1, 0), (2, 0), (3, 2)}, (4, 0): {(4, 0)}}
    keys = {(key.subscription, key.stay) for key in (key_of("s", each) for each in routes.inboxes)}
    assert keys == routes.readers.keys()


def test_who_wants_the_past_and_who_is_below_a_link() -> None:
    leaf, root = build_routes(SNAPSHOT, "leaf", "s"), build_routes(SNAPSHOT, "root", "s")
    assert leaf is not None
    assert root is not None
    assert [each.id for each in leaf.of_the_past] == [4]
    assert root.of_the_past == ()
    assert [each.receiver_ids for each in root.children] == [{1, 2, 3, 4}]
