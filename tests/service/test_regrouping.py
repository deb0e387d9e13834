"""Who gets another inbox when others do not read the one that they share."""

from headgate.model import Deployment, Plan, Subscription
from headgate.service.regrouping import parted
from headgate.wire.snapshot import Snapshot

INBOX = "sub~t~1~0"


def snapshot(*names: str) -> Snapshot:
    """Subscriptions at one site, of which all read the inbox of the first."""
    ids = {name: number for number, name in enumerate(names, 1)}
    made = {name: Subscription(name, "t", "s", shared=None if name == names[0] else (1, 0)) for name in names}
    return Snapshot(1, Deployment({}, {}, subscriptions=made), Plan({}), ids, dict.fromkeys(names, 1))


def test_those_who_are_ahead_go_together() -> None:
    assert parted(snapshot("a", "b", "c"), {("s", INBOX): frozenset({1, 3})}) == [["a", "c"]]


def test_nobody_goes_where_nobody_would_be_left() -> None:
    assert parted(snapshot("a", "b"), {("s", INBOX): frozenset({1, 2})}) == []


def test_an_old_report_parts_nobody_again() -> None:
    """The subscription that is ahead has gone to another inbox since."""
    assert parted(snapshot("a", "b"), {("s", "sub~t~7~0"): frozenset({1})}) == []
    assert parted(snapshot("a", "b"), {("other", INBOX): frozenset({1})}) == []
    assert parted(snapshot("a", "b"), {("s", INBOX): frozenset({9})}) == []
