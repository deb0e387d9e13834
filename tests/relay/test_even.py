"""A site that sheds evenly: with `shed_after` every link and class loses the same part, as the planner's model says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from headgate.matching import ClassLists
from headgate.model import Deployment, Link, Links, Site, Subscription
from headgate.relay.budget import MESSAGE_S, Bucket, Budgets
from headgate.relay.core import Key, RelayCore, Room, key_of
from headgate.relay.output import Output, QueueLimits
from headgate.relay.routes import Child, Receiver, Routes
from headgate.wire.block import Block, Commit, concat

SCHEMA = pa.schema([("x", pa.int64())])
RATE = 500
SETTLED_S = 10
SHARE = {1: 1.0, 2: 0.04, 3: 0.1}  # part of the rows that each class takes


def _receiver(identity: int, class_id: int, policy: dict[str, object] | None = None) -> Receiver:
    return Receiver(identity, class_id, Subscription(f"r{identity}", "s", "x", policy=policy), SCHEMA)


NEWEST = _receiver(5, 1, {"levels": [{"latest": 1}]})
CHILDREN = (
    Child("large", (_receiver(1, 1), _receiver(2, 2)), SCHEMA),
    Child("middle", (_receiver(3, 3),), SCHEMA),
    Child("small", (_receiver(4, 2),), SCHEMA),
)


def _block(head: int, rng: np.random.Generator) -> Block:
    lists = [[name for name, share in SHARE.items() if rng.random() < share] for _ in range(RATE)]
    seqs = np.arange(head + 1, head + RATE + 1, dtype=np.uint64)
    rows = pa.record_batch([pa.array(seqs.astype(np.int64))], schema=SCHEMA)
    return Block("s", head, head + RATE, (Commit(head, head + RATE, 1, 0),), seqs, rows, ClassLists.of(lists))


def _run(
    limits: QueueLimits,
    part: float,
    seconds: int,
    children: tuple[Child, ...] = CHILDREN,
    settled_s: float = SETTLED_S,
    own: Mapping[str, float] | None = None,
    waits: list[float] | None = None,
) -> dict[int, float]:
    """The part of its rows that each receiver loses when one upload takes `part` of what comes, once it has settled.

    Blocks come each second, up to half a second late. `own` are the rates of links with a budget of their own, in rows
    a second; `waits` gets how long rows have waited of late, at every message. Everything is accounted for, from the
    first row to the last.
    """
    routes = Routes("root", "s", 1, None, SCHEMA, children, ())
    core = RelayCore("root", limits)
    for child in children:
        core.restore(key_of("s", child), None, 0)
    needed = RATE * sum(max(SHARE[each.class_id] for each in child.receivers) for child in children)
    bucket = Bucket(needed * part)
    links = {site: Bucket(rate) for site, rate in (own or {}).items()}
    blocks, due = 0, 0.0
    rng = np.random.default_rng(7)
    came: Counter[int] = Counter()
    got: Counter[int] = Counter()
    lost: Counter[int] = Counter()
    steady = {each.id: np.zeros(2) for child in children for each in child.receivers}
    sequence = 0
    below = {child.site: child.receivers for child in children}
    for tick in range((seconds + 10) * 50):
        now = tick * 0.02
        if now >= due and blocks < seconds:
            block, blocks = _block(RATE * blocks, rng), blocks + 1
            due = blocks + rng.uniform(0.0, 0.5)
            assert block.classes is not None
            for child in children:
                for each in child.receivers:
                    came[each.id] += int((block.classes.ids == each.class_id).sum())
            core.receive(block, routes, now)

        def room(key: Key, output: Output, now: float = now) -> Room:
            assert key.child is not None
            link = links.get(key.child, bucket)
            rate = min(bucket.rate_bytes_per_s, link.rate_bytes_per_s)
            if bucket.ready(now) and link.ready(now):
                return Room(max(1, int(rate * MESSAGE_S)), 1.0, shared=True)
            return Room(0, narrow=not link.ready(now) and link is not bucket)

        for send in core.sends(now, room):
            sequence += 1
            assert send.block.classes is not None
            assert send.key.child is not None
            if waits is not None and settled_s < now < seconds:
                waits.append(core.outputs[send.key].waited(now))
            for budget in {id(each): each for each in (bucket, links.get(send.key.child, bucket))}.values():
                budget.spend(len(send.block.seqs), now)
            for each in below[send.key.child]:
                found = int((send.block.classes.ids == each.class_id).sum())
                given_up = sum(send.block.declared.get(each.id, {}).values())
                got[each.id] += found
                lost[each.id] += given_up
                if settled_s < now < seconds:
                    steady[each.id] += np.array([found, given_up])
            core.outputs[send.key].published(sequence)
    assert {each: got[each] + lost[each] for each in came} == dict(came)
    return {each: float(found[1] / found.sum()) for each, found in steady.items()}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("part", "settled_s", "off"), [(0.5, 15, 0.03), (0.9, 60, 0.02), (0.15, 15, 0.04)])
def test_links_and_classes_lose_the_same_part(part: float, settled_s: float, off: float) -> None:
    waits: list[float] = []
    lost = _run(QueueLimits(shed_after_s=2.0), part, 160, settled_s=settled_s, waits=waits)
    assert lost == pytest.approx(dict.fromkeys(lost, 1.0 - part), abs=off)
    # Rows wait for about as long as is allowed: by the controller, not only by cuts of what is far too much, which
    # leave waits of 5 to 7 s. At seven times the upload it is still learning.
    assert 1.0 < float(np.median(waits[-len(waits) // 4 :])) < (3.0 if part >= 0.5 else 4.0)


@pytest.mark.slow
def test_a_narrower_link_loses_more_and_the_others_what_the_upload_makes_them_lose() -> None:
    # 500, 50 and 20 rows a second come; the middle link takes 15 of them, the upload three quarters of what is left.
    lost = _run(QueueLimits(shed_after_s=2.0), 0.75 * 535 / 570, 120, settled_s=40, own={"middle": 15.0})
    assert lost[3] == pytest.approx(0.7, abs=0.05)
    assert [lost[each] for each in (1, 2, 4)] == pytest.approx([0.25] * 3, abs=0.05)


def test_nothing_is_lost_where_everything_fits() -> None:
    assert set(_run(QueueLimits(shed_after_s=2.0), 1.1, 20).values()) == {0.0}


def test_without_it_the_small_lose_nothing() -> None:
    lost = _run(QueueLimits(max_rows=500), 0.6, 20)
    assert lost[1] > 0.3
    assert lost[2] == lost[4] == 0.0


@pytest.mark.slow
def test_other_policies_still_choose_the_rows() -> None:
    lost = _run(QueueLimits(shed_after_s=2.0), 0.5, 60, (Child("large", (NEWEST,), SCHEMA),))
    assert lost[5] == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("seed", range(2))
def test_what_is_given_up_while_a_message_is_under_way_is_declared_once(seed: int) -> None:
    chance = np.random.default_rng(seed)
    target = CHILDREN[0]
    output = Output(QueueLimits(max_rows=3, linger_s=0.0, idle_s=0.0))
    came = got = declared = 0

    def mine(block: Block) -> int:
        """Rows of the first receiver; others may be for the second one alone."""
        assert block.classes is not None
        return int((block.classes.ids == 1).sum())

    for step in range(60):
        block = _block(RATE * step, chance)
        output.offer(block, target, float(step))
        came += mine(block)
        if chance.random() < 0.6 and output.busy is not None:
            output.published(step + 1)
        send = output.next_message(step + 0.5, 10) if output.busy is None else None
        if send is not None:
            got += mine(send)
            declared += sum(send.declared.get(1, {}).values())
    while output.queue:
        if output.busy is not None:
            output.published(100 + came)
        send = output.next_message(1000.0, 10)
        if send is not None:
            got += mine(send)
            declared += sum(send.declared.get(1, {}).values())
    assert got + declared == came


def test_a_message_ends_where_a_commit_does_now_and_then() -> None:
    # Blocks as another relay sends them: each holds the end of one commit and the beginning of the next.
    output = Output(QueueLimits(linger_s=0.0, idle_s=0.0))
    whole = [_block(RATE * number, np.random.default_rng(number)) for number in range(40)]
    ended, rows = [], 0
    for number, (first, second) in enumerate(pairwise(whole)):
        middle = RATE * number + RATE // 2
        output.offer(concat([first.since(middle), second.until(middle + RATE)]), CHILDREN[0], float(number))
        while (send := output.next_message(number + 0.5, 10**6)) is not None:
            ended.append(send.at_boundary)
            rows += len(send.seqs)
            output.published(len(ended))
    gaps = np.diff([-1, *np.flatnonzero(ended)])
    assert len(gaps) >= 4
    assert gaps.max() <= 9
    assert rows == 39 * RATE


def test_a_link_is_narrow_where_it_and_not_the_upload_is_spent() -> None:
    ends = frozenset(("a", "b"))
    links = Links(0.0, {ends: Link(ends, 0.0, 1000.0)})
    sites = {"a": Site("a", upload_bytes_per_s=1000.0), "b": Site("b"), "c": Site("c")}
    budgets = Budgets(Deployment({}, sites, links=links))
    budgets.spend("a", "c", 500.0, 0.0)
    assert [budgets.narrow("a", child, 0.1) for child in "bc"] == [False, False]
    assert not budgets.ready("a", "b", 0.1)
    budgets.spend("a", "b", 500.0, 0.1)
    assert [budgets.narrow("a", child, 0.2) for child in "bc"] == [True, False]


def test_what_is_thinned_again_and_again_goes_out_commit_by_commit_and_not_piece_by_piece() -> None:
    """Small pieces would each be a message of a few rows, which takes a link's turn and leaves it empty."""
    routes = Routes("root", "s", 1, None, SCHEMA, CHILDREN[:1], ())
    core = RelayCore("root", QueueLimits(shed_after_s=2.0))
    core.restore(key_of("s", CHILDREN[0]), None, 0)
    output = core.outputs[key_of("s", CHILDREN[0])]
    output.reducer.piece_rows = 16
    rng, came = np.random.default_rng(7), 0
    for number in range(4):
        block = _block(RATE * number, rng)
        assert block.classes is not None
        came += int(np.isin(block.classes.ids, (1, 2)).sum())
        core.receive(block, routes, 0.1 * number)
        for _ in range(3):
            output.thin(0.6, 0.1 * number)
    pieces = len(output.queue)
    messages = []
    while (message := output.next_message(10.0, 400)) is not None:
        messages.append(message)
        output.published(len(messages))
    assert pieces > 50
    assert len(messages) == 4
    for message in messages:  # whatever is declared belongs to the one commit that the message ends
        assert message.declared
        assert len(message.commits) == 1
        assert message.at_boundary
    gone = sum(sum(declared.values()) for each in messages for declared in each.declared.values())
    kept = sum(len(each.classes.ids) for each in messages if each.classes is not None)
    assert gone + kept == came
