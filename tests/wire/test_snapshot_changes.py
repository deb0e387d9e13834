"""Revisions that are published as changes of others: every one reads as if it were whole."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import Deployment, Schema, Site, Source, Stream, Subscription
from headgate.wire.snapshot import (
    Snapshot,
    SnapshotChange,
    SnapshotWriter,
    apply_changes,
    base_revision,
    cut_snapshot,
    join_parts,
    part_count,
)

STREAM = Stream("s", Schema.of({"x": "int"}), Source("generator"), "lab")


def snapshot(revision: int, wanted: dict[str, tuple[int, int, int]]) -> Snapshot:
    """A revision with some subscriptions: by name the id, the class and the bound of the filter."""
    wanted = dict(sorted(wanted.items()))
    found = {name: Subscription(name, "s", "lab", f"x > {bound}") for name, (_, _, bound) in wanted.items()}
    deployment = Deployment({"s": STREAM}, {"lab": Site("lab")}, subscriptions=found)
    ids = {name: identity for name, (identity, _, _) in wanted.items()}
    return Snapshot(revision, deployment, None, ids, {name: each for name, (_, each, _) in wanted.items()})


def many(count: int) -> dict[str, tuple[int, int, int]]:
    numbers = random.Random(3)
    return {f"n{k * 7919 % 100_003:06}": (k, k, numbers.randrange(10**9)) for k in range(count)}


def read(published: dict[int, bytes], revision: int) -> Snapshot:
    """A revision by what was published, from the last whole one on."""
    changes: list[SnapshotChange] = []
    while (base := base_revision(published[revision])) is not None:
        changes.insert(0, SnapshotChange.from_bytes(published[revision]))
        revision = base
    whole = Snapshot.from_bytes(published[revision])
    return apply_changes(whole, changes) if changes else whole


@st.composite
def histories(draw: st.DrawFn) -> list[Snapshot]:
    """Revisions that follow each other: subscriptions come, change, end, and come again under their old name."""
    wanted, next_id, made = many(25), 1000, []
    for revision in range(1, draw(st.integers(2, 12))):
        for name in draw(st.lists(st.sampled_from(sorted(wanted)), max_size=3, unique=True)):
            identity, group, bound = wanted.pop(name)
            happens = draw(st.sampled_from(["ends", "changes", "is classed", "is made again"]))
            if happens == "changes":
                wanted[name] = identity, group + 1, bound + 1
            elif happens == "is classed":
                wanted[name] = identity, group + 1, bound
            elif happens == "is made again":
                next_id += 1
                wanted[name] = next_id, group, bound
        for number in range(draw(st.integers(0, 2))):
            next_id += 1
            wanted[draw(st.sampled_from("amz")) + f"{revision}-{number}"] = next_id, next_id, next_id
        made.append(snapshot(revision, wanted))
    return made


@given(histories())
def test_every_revision_reads_as_if_it_were_whole(history: list[Snapshot]) -> None:
    writer, published = SnapshotWriter(), {}
    for each in history:
        published[each.revision] = writer.publication(each)
        writer.published(each)
    for each in history:
        found = read(published, each.revision)
        assert found == each
        assert list(found.deployment.subscriptions) == list(each.deployment.subscriptions)
        assert found.to_bytes() == each.to_bytes()


def test_what_is_written_grows_with_what_changes() -> None:
    base = snapshot(0, many(1000))
    writer, published, last = SnapshotWriter(), {}, base
    for revision in range(1, 200):
        other = Subscription("z", "s", "lab", f"x > {revision}")
        subscriptions = {**base.deployment.subscriptions, "z": other}
        last = replace(
            base,
            revision=revision,
            deployment=replace(base.deployment, subscriptions=subscriptions),
            subscription_ids={**base.subscription_ids, "z": 5000},
            class_ids={**base.class_ids, "z": 5000 + revision},
        )
        published[revision] = writer.publication(last)
        writer.published(last)
    sizes = {revision: len(data) for revision, data in published.items()}
    whole = [revision for revision, data in published.items() if base_revision(data) is None]
    assert whole[0] == 1
    assert 1 < len(whole) < 8
    assert max(b - a for a, b in itertools.pairwise(whole)) <= 129
    assert all(sum(sizes[each] for each in range(a + 1, b)) <= sizes[a] for a, b in itertools.pairwise(whole))
    assert all(size < sizes[1] / 20 for revision, size in sizes.items() if revision not in whole)
    assert read(published, 199) == last


def test_a_revision_that_could_not_be_published_is_nobodys_base() -> None:
    wanted, writer = many(200), SnapshotWriter()
    first = snapshot(1, wanted)
    data = {1: writer.publication(first)}
    writer.published(first)
    writer.publication(snapshot(2, {**wanted, "lost": (900, 900, 1)}))
    third = snapshot(3, {**wanted, "kept": (901, 901, 2)})
    data[3] = writer.publication(third)
    assert base_revision(data[3]) == 1
    assert read(data, 3) == third


def test_a_change_is_cut_and_joined_like_a_whole_one() -> None:
    wanted, writer = many(200), SnapshotWriter()
    first = snapshot(1, wanted)
    writer.publication(first)
    writer.published(first)
    data = writer.publication(snapshot(2, {**wanted, "b": (901, 901, 2)}))
    first_message, *parts = cut_snapshot(data, 100)
    assert part_count(first_message) == len(parts) > 1
    assert base_revision(first_message) == base_revision(data) == 1
    assert join_parts(first_message, parts) == data
    assert cut_snapshot(data, len(data)) == [data]


@pytest.mark.parametrize("data", [b"", b"\xfe\xff\xff\xff", b"\xfe\xff\xff\xff" + bytes(8) + b"\xff" * 30, bytes(40)])
def test_what_is_no_change_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, OSError, json.JSONDecodeError)):
        SnapshotChange.from_bytes(data)
