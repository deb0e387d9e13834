"""The catalog's changes: revisions, ids, classes, refusals, and what a restart with the same file leaves alone."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from headgate.catalog import Catalog, CatalogError, tables
from headgate.catalog.database import open_database
from headgate.model import Deployment, Plan, Schema, Site, Subscription, Tree
from headgate.wire.identity import Identity
from headgate.wire.snapshot import Snapshot

TREES = Plan(
    {"weather": Tree("weather", "oslo", {"paris": "oslo"}), "ticks": Tree("ticks", "paris", {"lyon": "paris"})}
)


def live(name: str = "calm", **fields: object) -> Subscription:
    return replace(Subscription(name, "weather", "lyon", where="wind < 3"), **fields)  # type: ignore[arg-type]


def test_an_empty_catalog(catalog: Catalog) -> None:
    assert catalog.head() == 0
    empty = catalog.snapshot()
    assert empty == Snapshot(0, Deployment({}, {}), identity=Identity(empty.identity.deployment))
    assert len(empty.identity.deployment) == 16


def test_apply_gives_back_the_deployment(catalog: Catalog, deployment: Deployment) -> None:
    assert catalog.apply(deployment) == 1
    snapshot = catalog.snapshot()
    assert snapshot.deployment == deployment
    assert snapshot.subscription_ids.keys() == snapshot.class_ids.keys() == deployment.subscriptions.keys()


def test_applying_the_same_again_changes_nothing(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    assert catalog.apply(deployment) == catalog.head() == 1


def test_every_change_is_one_revision(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    assert catalog.subscribe(live()) == 2
    assert catalog.change(live(where="wind < 4")) == 3
    assert catalog.set_context("storms", {"limit": 20.0}) == 4
    assert catalog.set_plan(TREES) == 5
    assert catalog.unsubscribe("calm") == 6
    assert catalog.head() == 6


def test_what_changes_nothing_makes_no_revision(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    catalog.subscribe(live())
    catalog.set_plan(TREES)
    assert catalog.change(live()) == 3
    assert catalog.set_context("storms", {"limit": 12.5}) == 3
    assert catalog.set_plan(TREES) == 3


def test_every_recent_revision_can_be_read_again(catalog: Catalog, deployment: Deployment) -> None:
    seen = [catalog.snapshot()]
    for step in (
        lambda: catalog.apply(deployment),
        lambda: catalog.subscribe(live()),
        lambda: catalog.set_plan(TREES),
        lambda: catalog.change(live(where="wind < 9", site="oslo")),
        lambda: catalog.unsubscribe("calm"),
        lambda: catalog.subscribe(live()),
        lambda: catalog.apply(replace(deployment, objective="maximise quality")),
        lambda: catalog.unsubscribe("storms"),
    ):
        step()
        seen.append(catalog.snapshot())
    for snapshot in seen:
        assert catalog.snapshot(snapshot.revision) == snapshot
        assert Snapshot.from_json(snapshot.to_json()) == snapshot
        assert Snapshot.from_json(snapshot.to_json()).to_json() == snapshot.to_json()


def test_old_revisions_are_forgotten(url: str, deployment: Deployment) -> None:
    with Catalog.open(url, keep=3) as catalog:
        catalog.apply(deployment)
        for limit in range(8):
            catalog.set_context("storms", {"limit": float(limit)})
        assert catalog.snapshot(6).deployment.subscriptions["storms"].context == {"limit": 4.0}
        for revision in (5, 10, -1):
            with pytest.raises(CatalogError, match="revisions 6 to 9 are"):
                catalog.snapshot(revision)
    engine = open_database(url)
    with engine.connect() as connection:
        assert connection.scalars(sa.select(tables.revision.c.revision).order_by("revision")).all() == [6, 7, 8, 9]
        assert connection.scalar(sa.select(sa.func.count()).select_from(tables.subscription_version)) == 1 + 4
    engine.dispose()


def test_what_was_done_live_survives_a_restart_with_the_same_file(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    catalog.subscribe(live())
    catalog.set_context("storms", {"limit": 20.0})
    catalog.unsubscribe("prices")
    catalog.set_plan(TREES)
    before = catalog.snapshot()
    assert catalog.apply(deployment) == before.revision
    assert catalog.snapshot() == before


def test_a_changed_file_changes_only_what_it_says_differently(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    catalog.subscribe(live())
    catalog.set_context("storms", {"limit": 20.0})
    new = replace(deployment, subscriptions={"storms": deployment.subscriptions["storms"]})
    catalog.apply(new)
    found = catalog.snapshot().deployment.subscriptions
    assert found.keys() == {"storms", "calm"}
    assert found["storms"].context == {"limit": 20.0}
    storms = replace(deployment.subscriptions["storms"], weight=5.0)
    catalog.apply(replace(deployment, subscriptions={"storms": storms}))
    assert catalog.snapshot().deployment.subscriptions["storms"] == storms


def test_the_file_takes_over_a_live_name(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    catalog.subscribe(live())
    number = catalog.snapshot().subscription_ids["calm"]
    subscriptions = {**deployment.subscriptions, "calm": live(where="wind < 1")}
    catalog.apply(replace(deployment, subscriptions=subscriptions))
    assert catalog.snapshot().subscription_ids["calm"] == number
    catalog.apply(deployment)
    assert "calm" not in catalog.snapshot().deployment.subscriptions


def test_a_name_that_comes_back_gets_a_new_id(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    used = set(catalog.snapshot().subscription_ids.values())
    for _ in range(3):
        catalog.subscribe(live())
        number = catalog.snapshot().subscription_ids["calm"]
        assert number not in used
        used.add(number)
        catalog.unsubscribe("calm")


def test_a_change_keeps_the_id_but_another_stream_is_another_life(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    before = catalog.snapshot().subscription_ids["prices"]
    catalog.change(replace(deployment.subscriptions["prices"], where="price > 3"))
    assert catalog.snapshot().subscription_ids["prices"] == before
    catalog.change(replace(deployment.subscriptions["prices"], stream="weather"))
    assert catalog.snapshot().subscription_ids["prices"] > before


def test_equal_classes_share_an_id(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    catalog.subscribe(live("a", where="wind<3"))
    catalog.subscribe(live("b", where="wind  <  3", site="oslo", select=("wind",), format="json", weight=3.0))
    catalog.subscribe(live("c", where="wind < 3", context={"unused": 1}))
    catalog.subscribe(live("other-filter", where="wind < 4"))
    catalog.subscribe(live("other-resolution", where="wind < 3", resolution={"time": 0.5}))
    catalog.subscribe(live("other-region", where="wind < 3", region={"box": [0, 0, 9, 9]}))
    catalog.subscribe(live("resolution-as-text", where="wind < 3", resolution={"space": "1", "time": "2/4"}))
    catalog.subscribe(live("bound", where="wind < $v", context={"v": 3.0}))
    catalog.subscribe(live("bound-again", where="wind < $v", context={"v": 3.0, "unused": 2}))
    catalog.subscribe(live("bound-otherwise", where="wind < $v", context={"v": 4.0}))
    ids = catalog.snapshot().class_ids
    assert ids["a"] == ids["b"] == ids["c"]
    assert ids["other-resolution"] == ids["resolution-as-text"]
    distinct = [
        "bound-again",
        "a",
        "other-filter",
        "other-resolution",
        "other-region",
        "bound",
        "bound-otherwise",
        "storms",
        "prices",
    ]
    assert len({ids[name] for name in distinct}) == len(distinct)


def test_a_class_id_is_kept_for_the_same_class_and_never_for_another(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    catalog.subscribe(live())
    first = catalog.snapshot().class_ids["calm"]
    catalog.unsubscribe("calm")
    catalog.subscribe(live("other", where="wind < 1"))
    assert catalog.snapshot().class_ids["other"] != first
    catalog.subscribe(live())
    assert catalog.snapshot().class_ids["calm"] == first


def test_a_context_change_moves_to_another_class(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    before = catalog.snapshot()
    catalog.set_context("storms", {"limit": 1.0})
    after = catalog.snapshot()
    assert after.class_ids["storms"] != before.class_ids["storms"]
    assert after.subscription_ids == before.subscription_ids
    catalog.set_context("storms", {"limit": 12.5})
    assert catalog.snapshot().class_ids == before.class_ids


@pytest.mark.parametrize(
    ("subscription", "message"),
    [
        (live("storms"), "there is already a subscription 'storms'"),
        (live("two words"), "subscription 'two words': 'two words' is not a name"),
        (live("line\n"), "subscription 'line\\n': 'line\\n' is not a name"),
        (live(stream="wether"), "subscription 'calm': stream: unknown stream 'wether' (did you mean 'weather'?)"),
        (live(site="lyom"), "subscription 'calm': site: unknown site 'lyom' (did you mean 'lyon'?)"),
        (live(select=("wnd",)), "subscription 'calm': select[0]: unknown column 'wnd' (did you mean 'wind'?)"),
        (live(where="wnd < 3"), "subscription 'calm': where: unknown column 'wnd', at character 1 of 'wnd < 3'"),
        (live(profile="keyword"), "subscription 'calm': profile: unknown profile 'keyword'"),
        (live(context={"x": float("nan")}), "subscription 'calm': context.x: 'x' has a value that cannot be stored"),
        (live(context={"x": object()}), "subscription 'calm': context.x: 'x' has a value that cannot be stored"),
    ],
)
def test_a_wrong_subscription_is_refused_and_nothing_is_kept(
    catalog: Catalog, deployment: Deployment, subscription: Subscription, message: str
) -> None:
    catalog.apply(deployment)
    before = catalog.snapshot()
    with pytest.raises(CatalogError) as caught:
        catalog.subscribe(subscription)
    assert str(caught.value).startswith(message)
    assert catalog.snapshot() == before


def test_unknown_subscriptions_are_named_with_the_nearest(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    expected = r"unknown subscription 'stroms' \(did you mean 'storms'\?\)"
    with pytest.raises(CatalogError, match=expected):
        catalog.unsubscribe("stroms")
    with pytest.raises(CatalogError, match=expected):
        catalog.set_context("stroms", {})
    with pytest.raises(CatalogError, match=expected):
        catalog.change(live("stroms"))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (Tree("wether", "oslo"), "unknown stream 'wether'"),
        (Tree("weather", "paris"), "starts at 'paris', but the stream's root is 'oslo'"),
        (Tree("weather", "oslo", {"leon": "oslo"}), "unknown site 'leon'"),
    ],
)
def test_a_wrong_plan_is_refused(catalog: Catalog, deployment: Deployment, tree: Tree, message: str) -> None:
    catalog.apply(deployment)
    with pytest.raises(CatalogError, match=message):
        catalog.set_plan(Plan({tree.stream: tree}))
    assert catalog.head() == 1


def test_a_file_cannot_take_a_site_or_stream_from_a_live_subscription(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    catalog.subscribe(live())
    without = {name: site for name, site in deployment.sites.items() if name != "lyon"}
    file = {"storms": deployment.subscriptions["storms"]}
    with pytest.raises(CatalogError, match="subscription 'calm': site: unknown site 'lyon'"):
        catalog.apply(replace(deployment, sites=without, subscriptions=file))
    assert catalog.head() == 2


def test_trees_that_no_longer_fit_are_dropped(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    catalog.set_plan(TREES)
    moved = replace(deployment.streams["weather"], root="lyon")
    catalog.apply(replace(deployment, streams={**deployment.streams, "weather": moved}))
    plan = catalog.snapshot().plan
    assert plan is not None
    assert plan.trees.keys() == {"ticks"}


def test_a_schema_that_changes_is_checked_against_every_filter(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    catalog.subscribe(live())
    narrow = replace(deployment.streams["weather"], schema=Schema.of({"station": "string", "at": "timestamp"}))
    with pytest.raises(CatalogError, match="where: unknown column 'wind'"):
        catalog.apply(replace(deployment, streams={**deployment.streams, "weather": narrow}, subscriptions={}))


def test_it_is_there_after_reopening(url: str, deployment: Deployment) -> None:
    with Catalog.open(url) as catalog:
        catalog.apply(deployment)
        before = catalog.snapshot()
    with Catalog.open(url) as catalog:
        assert catalog.snapshot() == before


def test_a_failed_change_leaves_the_catalog_usable(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    site = Site("lyon", upload_bytes_per_s=float("inf"))
    with pytest.raises(ValueError, match="not JSON compliant"):
        catalog.apply(replace(deployment, sites={**deployment.sites, "lyon": site}))
    assert catalog.subscribe(live()) == 2


def test_an_edit_is_one_revision_or_nothing(catalog: Catalog, deployment: Deployment) -> None:
    catalog.apply(deployment)
    with catalog.edit("several") as edit:
        assert (edit.made, edit.revision) == (False, 1)
        edit.subscribe(live())
        edit.change(live(where="wind < 4"))
        edit.set_plan(TREES)
        during = edit.snapshot()
        identity = edit.identity(live().name)
    after = catalog.snapshot()
    assert during == replace(after, identity=during.identity)  # a revision gets its mark when it is made
    assert (edit.revision, catalog.head(), during.revision) == (2, 2, 2)
    assert during.subscription_ids[live().name] == identity
    assert during.deployment.subscriptions[live().name].where == "wind < 4"
    with pytest.raises(CatalogError, match="unknown subscription"):
        _end_one_and_move_another(catalog)
    assert catalog.snapshot() == after
    with catalog.edit("nothing") as edit:
        edit.change(live(where="wind < 4"))
    assert (edit.made, edit.revision, catalog.head()) == (False, 2, 2)


def test_answers_are_kept_with_what_they_changed(
    catalog: Catalog, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.catalog.edit.KEPT_REQUESTS", 3)
    catalog.apply(deployment)
    assert catalog.answer("r0") is None
    with pytest.raises(CatalogError):
        _answer_and_fail(catalog)
    assert catalog.answer("r0") is None
    for number in range(4):
        with catalog.edit("nothing") as edit:
            edit.answered(f"r{number}", {"revision": number})
    # The last 3 are kept.
    assert [catalog.answer(f"r{number}") for number in range(4)] == [None, *({"revision": n} for n in (1, 2, 3))]


def _end_one_and_move_another(catalog: Catalog) -> None:
    with catalog.edit("several more") as edit:
        edit.unsubscribe(live().name)
        edit.move("nobody", "lyon")


def _answer_and_fail(catalog: Catalog) -> None:
    with catalog.edit("undone") as edit:
        edit.answered("r0", {"revision": 1})
        edit.unsubscribe("nobody")
