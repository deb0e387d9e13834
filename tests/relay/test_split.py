from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.matching import ClassLists
from headgate.model import Schema, Subscription
from headgate.relay.routes import Child, Receiver
from headgate.relay.split import for_child, for_local
from headgate.wire.block import Block, Commit

SCHEMA = Schema.of(
    {
        "a": "bigint",
        "b": "string",
        "c": "array<string>",
        "d": "map<string,double>",
        "e": "struct<x:double,y:boolean>",
        "f": "decimal(9,2)",
        "g": "timestamp",
        "h": "boolean",
    }
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Block, tuple[Receiver, ...]]:
    count = draw(st.integers(0, 15))
    values = {
        "a": 1,
        "b": "x",
        "c": ["p", None],
        "d": [("k", 1.5)],
        "e": {"x": 2.0, "y": None},
        "f": 1,
        "g": 5,
        "h": True,
    }
    rows = [
        {name: (None if draw(st.booleans()) and i % 3 == 0 else value) for name, value in values.items()}
        for i in range(count)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA.arrow)
    lists = ClassLists.of([draw(st.sets(st.integers(0, 5), max_size=4)) for _ in range(count)])
    block = Block(
        "s", 0, max(count, 1), (Commit(0, max(count, 1), 1, 0),), np.arange(1, count + 1, dtype=np.uint64), batch, lists
    )
    receivers = []
    for identity in range(draw(st.integers(1, 6))):
        names = draw(st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True))
        receivers.append(
            Receiver(
                identity, draw(st.integers(0, 5)), Subscription(str(identity), "s", "x"), SCHEMA.select(names).arrow
            )
        )
    return block, tuple(receivers)


def _expected(block: Block, receiver: Receiver) -> pa.RecordBatch:
    assert block.classes is not None
    mine = [row for row in range(len(block.seqs)) if receiver.class_id in block.classes.row(row).tolist()]
    return block.rows.take(pa.array(mine, pa.int64())).select(receiver.schema.names)


@given(cases())
def test_inboxes_get_their_rows_and_columns_straight_or_through_a_link(
    case: tuple[Block, tuple[Receiver, ...]],
) -> None:
    block, receivers = case
    names = {name for receiver in receivers for name in receiver.schema.names}
    child = Child("x", receivers, SCHEMA.select([name for name in SCHEMA.names if name in names]).arrow)
    for source in (block, for_child(block, child)):
        found = {receiver.id: piece for receiver, piece in for_local(source, receivers)}
        for receiver in receivers:
            piece = found[receiver.id]
            expected = _expected(block, receiver)
            assert piece.rows.equals(expected)
            assert (piece.after, piece.upto) == (block.after, block.upto)


def test_a_link_carries_no_value_that_nobody_below_asked_for() -> None:
    rows = pa.RecordBatch.from_pylist(
        [{"a": i, "b": f"text {i}"} for i in range(4)], schema=SCHEMA.select(["a", "b"]).arrow
    )
    block = Block(
        "s", 0, 4, (Commit(0, 4, 1, 0),), np.arange(1, 5, dtype=np.uint64), rows, ClassLists.of([[1], [1, 2], [1], [2]])
    )
    narrow = Receiver(1, 1, Subscription("n", "s", "x"), SCHEMA.select(["a"]).arrow)
    wide = Receiver(2, 2, Subscription("w", "s", "x"), SCHEMA.select(["a", "b"]).arrow)
    sent = for_child(block, Child("x", (narrow, wide), rows.schema))
    assert sent.rows.column("b").to_pylist() == [None, "text 1", None, "text 3"]
