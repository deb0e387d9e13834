"""What a grant leaves of a subscription: exactly the rows of both filters, and never a word about a hidden column."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.filters.generate import Generator
from tests.filters.rows import CONTEXT, SCHEMA, table

from headgate.catalog import Catalog
from headgate.catalog.granting import (
    GrantError,
    allows,
    as_asked,
    check_grant,
    is_stopped,
    narrow,
    narrow_or_stop,
    stream_for,
)
from headgate.fabric.registry import User
from headgate.filters import Filter, context_types, intersection, parse_filter
from headgate.model import Deployment, Grant, Schema, Site, Source, Stream, Subscription
from headgate.service.grants import Granting
from headgate.wire import codec

ROWS = table(7, 300)
STREAM = Stream("s", SCHEMA, Source("nats"), "root", key=("i",))
FLEET = Stream(
    "fleet",
    Schema.of({"vehicle": "string", "speed": "double", "salary": "double", "tenant": "string", "note": "string"}),
    Source("nats"),
    "root",
    key=("vehicle",),
)


@pytest.mark.parametrize("seed", range(3))
def test_an_intersection_matches_the_rows_of_both(seed: int) -> None:
    generator = Generator(seed + 900)
    for _ in range(80):
        one, other = Filter.of(generator.boolean(2)), Filter.of(generator.boolean(1))
        both = intersection(one, other)
        expected = one.evaluate(ROWS, CONTEXT) & other.evaluate(ROWS, CONTEXT)
        assert (both.evaluate(ROWS, CONTEXT) == expected).all(), (one.text, other.text, both.text)
        assert parse_filter(both.text, SCHEMA, context_types(CONTEXT)) == both


@pytest.mark.parametrize("seed", range(4))
def test_a_subscription_gets_the_rows_and_columns_of_both_and_no_others(seed: int) -> None:
    generator, chance = Generator(seed + 950), random.Random(seed)
    narrowed = refused = 0
    for number in range(60):
        where, rows = Filter.of(generator.boolean(2)), Filter.of(generator.boolean(1))
        if rows.parameters:
            continue
        columns = tuple(chance.sample(SCHEMA.names, chance.randint(1, len(SCHEMA.names))))
        grant = Grant(rows.text, columns)
        select = tuple(chance.sample(SCHEMA.names, 3)) if number % 2 else None
        asked = Subscription("mine", "s", "root", where=where.text, select=select, context=CONTEXT)
        named = where.columns | set(select or ())
        if not named <= set(columns):
            refused += 1
            with pytest.raises(GrantError) as failed:
                narrow(asked, STREAM, grant)
            said = str(failed.value)
            assert not [name for name in set(SCHEMA.names) - set(columns) - named if f"'{name}'" in said], said
            stopped = narrow_or_stop(asked, STREAM, grant)
            left = parse_filter(stopped.where, SCHEMA, context_types(CONTEXT)).evaluate(ROWS, CONTEXT)
            expected = where.evaluate(ROWS, CONTEXT) & rows.evaluate(ROWS, CONTEXT)
            readable = where.columns <= set(columns) and (select is None or set(select) & set(columns))
            assert (left == (expected if readable else expected & False)).all()
            assert is_stopped(stopped) == (not readable)
            assert set(stopped.select or SCHEMA.names) <= set(columns)
            assert as_asked(stopped) == asked
            continue
        found = narrow(asked, STREAM, grant)
        narrowed += 1
        matched = parse_filter(found.where, SCHEMA, context_types(CONTEXT)).evaluate(ROWS, CONTEXT)
        expected = where.evaluate(ROWS, CONTEXT) & rows.evaluate(ROWS, CONTEXT)
        assert (matched == expected).all(), (where.text, rows.text, found.where)
        assert set(found.select or SCHEMA.names) == set(select or SCHEMA.names) & set(columns)
        assert as_asked(found) == asked
        stored = codec.decode_subscription("mine", codec.encode_subscription(found))
        assert stored == found
    assert narrowed > 3
    assert refused > 3


def test_a_hidden_column_is_refused_in_the_words_of_one_that_does_not_exist() -> None:
    grant = Grant("tenant = 'a'", ("vehicle", "speed"))
    policy = {"levels": [{"when": "> 100 rows", "do": "CONFLATE BY salary"}]}
    for changes in (
        {"where": "{} > 3"},
        {"where": "speed > 1 AND {} IS NULL"},
        {"select": ("speed", "{}")},
        {"where": "speed > (CASE WHEN {} > 1 THEN 1 ELSE 2 END)"},
    ):
        said = []
        for column in ("salary", "salarz"):
            values = {
                key: tuple(each.format(column) for each in value) if key == "select" else value.format(column)
                for key, value in changes.items()
            }
            with pytest.raises(GrantError) as failed:
                narrow(Subscription("mine", "fleet", "root", **values), FLEET, grant)
            said.append(str(failed.value).replace(column, "X"))
        assert said[0] == said[1]
        assert "tenant" not in said[0]
    with pytest.raises(GrantError):
        narrow(Subscription("mine", "fleet", "root", policy=policy), FLEET, grant)


def test_a_key_a_time_and_a_grid_are_known_only_with_their_columns() -> None:
    assert stream_for(FLEET, Grant("true", ("speed",))).key == ()
    assert stream_for(FLEET, Grant("true", ("speed", "vehicle"))).key == ("vehicle",)
    assert stream_for(FLEET, Grant("speed > 1")) == FLEET
    grid = {name: {"column": each, "bounds": [0, 8], "size": 8} for name, each in (("x", "speed"), ("y", "salary"))}
    gridded = Stream("g", FLEET.schema, Source("nats"), "root", options={"grid": {**grid, "block": 4}})
    assert "grid" in stream_for(gridded, Grant("true", ("speed", "salary"))).options
    assert "grid" not in stream_for(gridded, Grant("true", ("speed", "note"))).options


def test_words_mean_a_column_that_is_shown() -> None:
    asked = Subscription("mine", "fleet", "root", where="urgent", profile="keywords")
    found = narrow(asked, FLEET, Grant("true", ("note", "speed")))
    assert found.profile == "relational"
    assert parse_filter(found.where, FLEET.schema).columns == {"note"}
    assert as_asked(found) == asked


def test_a_grant_has_to_fit_its_stream() -> None:
    assert check_grant(Grant("TRUE", tuple(FLEET.schema.names)), FLEET) == Grant()
    assert check_grant(Grant("Speed>1", ("note", "note")), FLEET) == Grant("speed > 1", ("note",))
    for wrong in (Grant("true", ("salarz",)), Grant("salarz > 1"), Grant("speed > $limit"), Grant("true", ())):
        with pytest.raises(GrantError):
            check_grant(wrong, FLEET)


def test_what_a_wider_grant_allows_is_seen() -> None:
    wide, narrow_ = Grant("speed > 1", ("speed", "note")), Grant("speed > 3", ("speed",))
    assert allows(wide, narrow_, FLEET)
    assert allows(Grant(), wide, FLEET)
    assert not allows(narrow_, wide, FLEET)
    assert not allows(wide, Grant("speed > 3"), FLEET)
    assert not allows(Grant("speed > 1"), Grant("tenant = 'a'"), FLEET)


def test_a_region_needs_the_columns_that_places_are_told_by() -> None:
    grid = {name: {"column": each, "bounds": [0, 8], "size": 8} for name, each in (("x", "speed"), ("y", "salary"))}
    gridded = Stream("g", FLEET.schema, Source("nats"), "root", options={"grid": {**grid, "block": 4}})
    region = {"box": {"x": [1, 4], "y": [1, 4]}}
    for wish in ({"region": region}, {"resolution": {"space": "1/2"}}):
        asked = Subscription("mine", "g", "root", **wish)  # type: ignore[arg-type]
        assert narrow(asked, gridded, Grant("true", ("speed", "salary"))).select == ("speed", "salary")
        plain = Stream("g", FLEET.schema.select(["speed", "note"]), Source("nats"), "root")
        hidden = Grant("true", ("speed", "note"))
        with pytest.raises(GrantError) as refused:
            narrow(asked, gridded, hidden)
        with pytest.raises(GrantError) as nowhere:  # in the words of a stream that has no grid
            narrow(asked, plain, Grant("speed IS NULL OR true", ("speed", "note")))
        assert str(refused.value) == str(nowhere.value)
        assert is_stopped(narrow_or_stop(asked, gridded, hidden))


def test_subscriptions_of_a_file_are_narrowed_at_a_start_and_widened_again(tmp_path: Path) -> None:
    streams = {"fleet": FLEET}
    filed = Subscription("hers", "fleet", "root", where="speed > 1", owner="ada")
    deployment = Deployment(streams, {"root": Site("root")}, subscriptions={"hers": filed})
    users = {"ada": User("ada", "U1", 0, subscribes=("fleet",))}
    granting = Granting(lambda: users)
    with Catalog.open(f"sqlite:///{tmp_path / 'catalog.db'}") as catalog:
        catalog.apply(deployment)
        granting.settle_all(catalog)
        assert catalog.head() == 1  # nothing to do
        users["ada"] = users["ada"].granted("fleet", Grant("tenant = 'a'", ("speed",)))
        granting.settle_all(catalog)
        found = catalog.snapshot().deployment.subscriptions["hers"]
        assert parse_filter(found.where, FLEET.schema).columns == {"speed", "tenant"}
        assert found.select == ("speed",)
        assert as_asked(found) == filed
        catalog.apply(replace(deployment, subscriptions={"hers": replace(filed, where="salary > 1")}))
        granting.settle_all(catalog)
        assert is_stopped(catalog.snapshot().deployment.subscriptions["hers"])
        head = catalog.head()
        granting.settle_all(catalog)
        assert catalog.head() == head
        users["ada"] = users["ada"].without_grant("fleet")
        granting.settle_all(catalog)
        assert is_stopped(catalog.snapshot().deployment.subscriptions["hers"])
        assert stream_for(FLEET, users["ada"].grant("fleet")).schema.names == ()
        users["ada"] = users["ada"].granted("fleet", Grant())
        granting.settle_all(catalog)
        assert catalog.snapshot().deployment.subscriptions["hers"] == replace(filed, where="salary > 1")
