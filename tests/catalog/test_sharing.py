"""Which inboxes subscriptions share in the catalog, and when one begins another stay."""

from dataclasses import replace

import pytest

from headgate.catalog import Catalog
from headgate.model import Deployment, Subscription


def live(name: str, **fields: object) -> Subscription:
    return replace(Subscription(name, "weather", "lyon", where="wind < 3"), **fields)  # type: ignore[arg-type]


def found(catalog: Catalog) -> dict[str, tuple[int, tuple[int, int] | None]]:
    subscriptions = catalog.snapshot().deployment.subscriptions
    return {name: (each.stay, each.shared) for name, each in subscriptions.items() if name in "abcd"}


def number(catalog: Catalog, name: str) -> int:
    return catalog.snapshot().subscription_ids[name]


def test_who_wants_the_same_reads_the_inbox_of_the_first(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    catalog.subscribe(live("a"))
    with catalog.edit("more") as edit:
        edit.subscribe(live("b"), live("c", site="oslo"), live("d", weight=2.0))
    inbox = (number(catalog, "a"), 0)
    assert found(catalog) == {"a": (0, None), "b": (0, inbox), "c": (0, None), "d": (0, inbox)}


def test_subscriptions_of_one_change_share_too(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    with catalog.edit("many") as edit:
        edit.subscribe(live("a"), live("b"), live("c"))
    inbox = (number(catalog, "a"), 0)
    assert found(catalog) == {"a": (0, None), "b": (0, inbox), "c": (0, inbox)}


@pytest.mark.parametrize(
    "fields",
    [
        {"where": "wind < 4"},
        {"select": ("wind",)},
        {"format": "json"},
        {"priority": 1},
        {"policy": {"max_rows": 10}},
        {"start": "earliest"},
        {"expires_s": 10.0},
        {"owner": "ann"},
        {"every_s": 2.0},
        {"at_most_rows_per_s": 5.0},
        {"average_s": 5.0},
        {"site": "oslo"},
    ],
)
def test_who_wants_something_else_has_an_inbox_of_its_own(
    catalog: Catalog, deployment: Deployment, fields: dict[str, object]
) -> None:
    catalog.apply(deployment)
    catalog.subscribe(live("a"))
    catalog.subscribe(live("b", **fields))
    assert found(catalog) == {"a": (0, None), "b": (0, None)}


def test_a_change_begins_another_stay_only_where_others_read_the_inbox(
    catalog: Catalog, deployment: Deployment
) -> None:
    catalog.apply(deployment)
    for name in "ab":
        catalog.subscribe(live(name))
    catalog.subscribe(live("c", site="oslo"))
    inbox = (number(catalog, "a"), 0)
    catalog.change(live("c", site="oslo", where="wind < 5"))
    catalog.change(live("b", weight=3.0))
    assert found(catalog) == {"a": (0, None), "b": (0, inbox), "c": (0, None)}
    catalog.change(live("a", where="wind < 5"))
    assert found(catalog)["a"] == (1, None)
    assert [stay.number for stay in catalog.snapshot().deployment.subscriptions["a"].left] == [0]
    catalog.change(live("b", where="wind < 5"))
    assert found(catalog)["b"] == (1, (inbox[0], 1))
    assert catalog.snapshot().deployment.subscriptions["b"].left[0].shared == inbox


def test_who_moves_finds_others_there(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    for name in "ab":
        catalog.subscribe(live(name))
    catalog.subscribe(live("c", site="oslo"))
    with catalog.edit("move") as edit:
        edit.move("b", "oslo")
    assert found(catalog)["b"] == (1, (number(catalog, "c"), 0))


def test_those_who_are_parted_share_another_inbox(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    for name in "abcd":
        catalog.subscribe(live(name))
    inbox = (number(catalog, "a"), 0)
    with catalog.edit("part") as edit:
        edit.part({"a": 0, "c": 0})
    assert found(catalog) == {"a": (1, None), "b": (0, inbox), "c": (1, (inbox[0], 1)), "d": (0, inbox)}
