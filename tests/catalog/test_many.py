"""Many subscriptions in one change: each is what it would be alone, however many are read and checked together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headgate.catalog import Catalog, CatalogError, Edit, parse_subscription, parse_subscriptions
from headgate.catalog import change as changes
from headgate.catalog import request as requests
from headgate.errors import HeadgateError
from headgate.model import Column, Deployment, Schema, Site, Source, Stream, Subscription

SCHEMA = Schema((Column("n", pa.int64()), Column("speed", pa.float64()), Column("kind", pa.string())))
DEPLOYMENT = Deployment(
    {"wind": Stream("wind", SCHEMA, Source("nats"), "root")}, {"root": Site("root"), "oslo": Site("oslo")}
)
PLAIN = {"stream": "wind", "site": "oslo", "where": "speed > 3"}
VALUED = {**PLAIN, "where": "speed > $low"}
DOCUMENTS = {
    "a": PLAIN,
    "b": PLAIN,
    "other": {**PLAIN, "where": "speed > 4"},
    "c": {**VALUED, "context": {"low": 1.5}},
    "d": {**VALUED, "context": {"low": 2.5}},
    "whole": {**VALUED, "context": {"low": 2}},
    "listed": {**PLAIN, "where": "array_contains($kinds, kind)", "context": {"kinds": ["x"]}},
    "longer": {**PLAIN, "where": "array_contains($kinds, kind)", "context": {"kinds": ["x", "y"]}},
    "large": {**VALUED, "context": {"low": 10**18}},
    "paused": {**PLAIN, "paused": True},
}


def test_subscriptions_read_together_are_those_read_alone() -> None:
    together = parse_subscriptions(DOCUMENTS, DEPLOYMENT)
    assert together == {name: parse_subscription(name, each, DEPLOYMENT) for name, each in DOCUMENTS.items()}
    assert [type(together[name][0].context["low"]) for name in ("c", "whole", "large")] == [float, int, float]


def test_what_differs_in_names_and_numbers_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    alone = requests.parse_subscription
    monkeypatch.setattr(requests, "parse_subscription", lambda name, *more: read.append(name) or alone(name, *more))
    parse_subscriptions(DOCUMENTS, DEPLOYMENT)
    assert {"b", "d"}.isdisjoint(read)
    assert {"a", "other", "c", "whole", "listed", "longer", "large", "paused"} <= {*read}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({**VALUED, "context": {"low": "x"}}, "where"),
        ({**VALUED, "context": {}}, "low"),
        ({**VALUED, "context": {"low": 1.5, "lwo": 1.5}}, "nothing refers to the context value 'lwo'"),
        ({**PLAIN, "site": "olso"}, "unknown site 'olso'"),
        ({**PLAIN, "context_from": "wrong"}, "cannot follow itself"),
    ],
)
def test_a_wrong_one_among_sound_ones_is_refused_by_its_name(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(HeadgateError, match="wrong") as refused:
        parse_subscriptions({**DOCUMENTS, "wrong": wrong}, DEPLOYMENT)
    assert said in str(refused.value)


def _made(catalog: Catalog, *subscriptions: Subscription, together: bool) -> dict[str, tuple[int, Subscription]]:
    catalog.apply(DEPLOYMENT)
    if together:
        with catalog.edit("many") as edit:
            edit.subscribe(*subscriptions)
    else:
        for each in subscriptions:
            catalog.subscribe(each)
    found = catalog.snapshot()
    return {name: (found.class_ids[name], each) for name, each in found.deployment.subscriptions.items()}


def test_subscriptions_made_together_are_those_made_alone() -> None:
    wanted = [each for found in parse_subscriptions(DOCUMENTS, DEPLOYMENT).values() for each in found]
    wanted.append(Subscription("weighty", "wind", "oslo", "speed > 3", weight=2.0))
    with Catalog.open("sqlite://") as one, Catalog.open("sqlite://") as other:
        alone, together = _made(one, *wanted, together=False), _made(other, *wanted, together=True)
    assert together == alone
    first = next(iter(together))
    assert together["b"][1].shared is not None
    assert together["b"][1].shared == together["weighty"][1].shared
    assert together[first][1].shared is None
    assert together["c"][0] != together["d"][0]


def test_those_that_are_alike_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []
    check = changes.check_subscription
    monkeypatch.setattr(
        changes, "check_subscription", lambda each, *more: checked.append(each.name) or check(each, *more)
    )
    alike = [Subscription(f"s{number}", "wind", "oslo", "speed > 3") for number in range(20)]
    valued = [
        Subscription(f"v{number}", "wind", "oslo", "speed > $low", context={"low": float(number)})
        for number in range(20)
    ]
    with Catalog.open("sqlite://") as catalog:
        made = _made(catalog, *alike, *valued, together=True)
    assert checked == ["s0", "v0"]
    assert len({class_id for class_id, _ in made.values()}) == 21


def test_one_with_a_value_that_cannot_be_stored_is_refused_among_sound_ones() -> None:
    sound = Subscription("sound", "wind", "oslo", "speed > $low", context={"low": 1.0})
    wrong = Subscription("wrong", "wind", "oslo", "speed > $low", context={"low": float("nan")})
    with Catalog.open("sqlite://") as catalog:
        with pytest.raises(CatalogError, match=r"'wrong'.*cannot be stored"):
            _made(catalog, sound, wrong, together=True)
        assert not catalog.snapshot().subscription_ids


def _undone(edit: Edit) -> None:
    edit.subscribe(Subscription("d", "wind", "oslo"))
    edit.snapshot()
    edit.unsubscribe("nobody")


def test_a_revision_is_not_read_again_by_who_made_it() -> None:
    """What a change read last of itself is the revision, unless it went on changing, or another came between."""
    with Catalog.open("sqlite://") as catalog:
        catalog.apply(DEPLOYMENT)
        with catalog.edit("seen") as edit:
            edit.subscribe(Subscription("a", "wind", "oslo"))
            seen = edit.snapshot()
        found = catalog.snapshot()
        assert found.deployment is seen.deployment
        assert found.identity.mark == catalog.mark(found.revision)
        with catalog.edit("changed since") as edit:
            edit.subscribe(Subscription("b", "wind", "oslo"))
            edit.snapshot()
            edit.unsubscribe("a")
        assert [*catalog.snapshot().subscription_ids] == ["b"]
        with catalog.edit("seen") as edit:
            edit.subscribe(Subscription("c", "wind", "oslo"))
            edit.snapshot()
        catalog.unsubscribe("b")
        assert [*catalog.snapshot().subscription_ids] == ["c"]
        with pytest.raises(CatalogError), catalog.edit("undone") as edit:
            _undone(edit)
        assert [*catalog.snapshot().subscription_ids] == ["c"]
