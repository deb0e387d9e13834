"""Outputs of one site that share its upload: fair in bytes by weight, strict by priority, never over the budget."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.matching import ClassLists
from headgate.model import Deployment, Site, Subscription
from headgate.relay.budget import MESSAGE_S, Budgets
from headgate.relay.core import NO_ROOM, Key, RelayCore, Room, key_of
from headgate.relay.output import Output, QueueLimits
from headgate.relay.routes import Child, Receiver, Routes
from headgate.wire.block import Block, Commit
from headgate.wire.message import encode_block

SCHEMA = pa.schema([("x", pa.int64()), ("pad", pa.string())])
RATE = 20_000.0
PADS = {"a": 5, "b": 200, "c": 40}


def routes(weights: dict[str, float], priorities: dict[str, int]) -> Routes:
    children = []
    for number, site in enumerate(PADS, start=1):
        subscription = Subscription(site, "s", site, weight=weights[site], priority=priorities.get(site, 0))
        children.append(Child(site, (Receiver(number, number, subscription, SCHEMA),), SCHEMA))
    return Routes("root", "s", 1, None, SCHEMA, tuple(children), ())


def block(after: int, rows: int, rng: np.random.Generator) -> Block:
    """Rows for the three links in turn, of very different sizes."""
    ids = np.arange(rows) % len(PADS) + 1
    sizes = [list(PADS.values())[number - 1] for number in ids.tolist()]
    pads = ["".join(map(chr, rng.integers(40, 120, size).tolist())) for size in sizes]
    batch = pa.RecordBatch.from_pydict({"x": rng.integers(0, 1 << 60, rows), "pad": pads}, schema=SCHEMA)
    seqs = np.arange(after + 1, after + rows + 1, dtype=np.uint64)
    lists = ClassLists(np.arange(rows + 1), ids.astype(np.uint32))
    return Block("s", after, after + rows, (Commit(after, after + rows, 1, 0),), seqs, batch, lists)


def sent_bytes(table: Routes, seconds: float, rows_per_s: int) -> tuple[dict[str, int], dict[str, Output]]:
    """What each link sends in simulated time, with messages that are stored at once."""
    rng = np.random.default_rng(1)
    sites = {"root": Site("root", upload_bytes_per_s=RATE), **{site: Site(site) for site in PADS}}
    budgets = Budgets(Deployment({}, sites))
    core = RelayCore("root", QueueLimits(max_rows=4000, linger_s=0.0))
    for child in table.children:
        core.restore(key_of("s", child), None, 0)
    row_bytes: dict[Key, float] = {}
    sent = dict.fromkeys(PADS, 0)
    now, after = 0.0, 0

    def room(key: Key, _: Output) -> Room:
        assert key.child is not None
        if not budgets.ready("root", key.child, now):
            return NO_ROOM
        size = row_bytes.get(key, 64.0)
        return Room(max(1, int(RATE * MESSAGE_S / size)), size, shared=True)

    while now < seconds:
        if after < now * rows_per_s:
            core.receive(block(after, rows_per_s // 10, rng), table, now)
            after += rows_per_s // 10
        for send in core.sends(now, room):
            assert send.key.child is not None
            size = len(encode_block(send.block))
            budgets.spend("root", send.key.child, size, now)
            core.settle(send, size)
            row_bytes[send.key] = size / max(1, len(send.block.seqs))
            core.outputs[send.key].published(send.expect + 1)
            sent[send.key.child] += size
        now += 0.02
    return sent, {str(key.child): output for key, output in core.outputs.items()}


@pytest.mark.slow
def test_links_share_the_upload_in_bytes_by_the_weights_behind_them() -> None:
    seconds = 20.0
    sent, outputs = sent_bytes(routes({"a": 1.0, "b": 1.0, "c": 2.0}, {}), seconds, 1500)
    assert all(output.rows for output in outputs.values()), "all links have to be short of bandwidth"
    total = sum(sent.values())
    assert total == pytest.approx(RATE * seconds, rel=0.01)
    for site, share in {"a": 0.25, "b": 0.25, "c": 0.5}.items():
        assert sent[site] / total == pytest.approx(share, rel=0.05), sent


def test_a_higher_priority_is_served_in_full_first() -> None:
    seconds = 20.0
    sent, outputs = sent_bytes(routes(dict.fromkeys(PADS, 1.0), {"a": 1}), seconds, 300)
    assert outputs["a"].rows < 100, "no more than came in the last moment"
    assert outputs["b"].rows > 500
    assert sent["a"] < sent["b"], "the rest goes to the others"


def test_parents_share_a_download_by_bytes_whoever_asks_first() -> None:
    sites = {name: Site(name) for name in ("one", "two")} | {"far": Site("far", download_bytes_per_s=RATE)}
    budgets = Budgets(Deployment({}, sites))
    sent = {"one": 0, "two": 0}
    sizes = {"one": 900, "two": 300}
    for tick in range(3000):
        now = tick * 0.02
        for name, size in sizes.items():
            if (name == "one" or tick < 1500) and budgets.ready(name, "far", now):
                budgets.spend(name, "far", size, now)
                sent[name] += size
        if tick == 1499:
            assert sent["one"] == pytest.approx(sent["two"], rel=0.05)
    assert sum(sent.values()) == pytest.approx(RATE * 60, rel=0.02), "who is left has all of it"
