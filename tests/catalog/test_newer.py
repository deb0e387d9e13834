"""A revision that is read from the one before it is the one that is read as a whole, whatever was changed between."""

import json
import random
from dataclasses import replace

import pytest

from headgate.catalog import Catalog, parse_deployment
from headgate.model import Plan, Subscription, Tree
from headgate.wire.snapshot import Snapshot, SnapshotWriter

DEPLOYMENT = """
streams: {fleet: {root: root, source: {format: nats}, schema: {speed: double, vehicle: string}}}
sites: {root: {}, leaf: {}, edge: {}}
plan: {fleet: {leaf: root, edge: root}}
subscriptions:
  all: {stream: fleet, site: leaf}
"""


def _whole(catalog: Catalog) -> Snapshot:
    """The current revision as somebody reads it who knows none."""
    other = Catalog(catalog._engine)  # the same database, without what was read before
    return other.snapshot()


def _sub(name: str, number: int) -> Subscription:
    return Subscription(name, "fleet", ("leaf", "edge")[number % 2], f"speed > {number}")


@pytest.mark.parametrize("seed", range(3))
def test_every_revision_is_the_same_as_read_as_a_whole(seed: int) -> None:
    draw, writer = random.Random(seed), SnapshotWriter()
    with Catalog.open("sqlite://", keep=6) as catalog:
        catalog.apply(parse_deployment(DEPLOYMENT, "x.yaml"))
        for step in range(40):
            names = sorted((catalog.snapshot() if draw.random() < 0.8 else _whole(catalog)).subscription_ids)
            choice, name = draw.random(), draw.choice(names) if names else ""
            with catalog.edit(f"step {step}") as edit:
                if choice < 0.4 or not names:
                    edit.subscribe(
                        *(_sub(f"s{step}-{number}", draw.randrange(5)) for number in range(draw.randrange(1, 4)))
                    )
                elif choice < 0.55:
                    edit.unsubscribe(name)
                    if draw.random() < 0.5:
                        edit.subscribe(_sub(name, draw.randrange(5)))
                elif choice < 0.7:
                    edit.change(_sub(name, draw.randrange(5)))
                elif choice < 0.85:
                    edit.move(name, draw.choice(["leaf", "edge"]))
                else:
                    parents = {"leaf": "root", "edge": draw.choice(["root", "leaf"])}
                    edit.set_plan(Plan({"fleet": Tree("fleet", "root", parents)}))
                under_way = edit.snapshot()
            found = _whole(catalog)
            assert replace(under_way, identity=found.identity) == found  # the mark is given when it is made
            if draw.random() < 0.6:  # else some revisions are passed over, sometimes more than are kept
                assert catalog.snapshot() == found
                assert writer.to_json(catalog.snapshot()) == found.to_json()
            assert Snapshot.from_json(found.to_json()) == found
            assert list(json.loads(found.to_json())) == sorted(json.loads(found.to_json()))


def _undone(catalog: Catalog) -> None:
    with catalog.edit("undone") as edit:
        edit.subscribe(_sub("gone", 1))
        assert "gone" in edit.snapshot().subscription_ids
        raise ZeroDivisionError


def test_an_undone_change_is_not_remembered() -> None:
    with Catalog.open("sqlite://") as catalog:
        catalog.apply(parse_deployment(DEPLOYMENT, "x.yaml"))
        before = catalog.snapshot()
        with pytest.raises(ZeroDivisionError):
            _undone(catalog)
        assert catalog.snapshot() == before
        catalog.subscribe(_sub("other", 2))
        assert catalog.snapshot() == _whole(catalog)
        assert "gone" not in catalog.snapshot().subscription_ids
