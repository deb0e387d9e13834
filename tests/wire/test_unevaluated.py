"""Rows that were not looked at for a subscription are told to it alone, once, through every cut and join."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.relay.expiry import expire_messages
from headgate.wire.block import Block, Commit, concat
from headgate.wire.ledger import Account, Tally
from headgate.wire.message import decode_block, encode_block, encode_json

SCHEMA = pa.schema([("x", pa.int64())])
MINE, OTHER = 7, 8
FIRST = Commit(0, 10, 1, 0, unevaluated={MINE: 4, OTHER: 9})
SECOND = Commit(10, 20, 1, 0, unevaluated={MINE: 3})


def block(after: int, upto: int, seqs: list[int], *commits: Commit) -> Block:
    rows = pa.RecordBatch.from_pylist([{"x": seq} for seq in seqs], schema=SCHEMA)
    return Block("s", after, upto, commits, np.array(seqs, dtype=np.uint64), rows)


WHOLE = block(0, 20, [2, 15], FIRST, SECOND)


def counted(*blocks: Block) -> int:
    account = Account(Tally(MINE))
    for each in blocks:
        account.add(account.rest(each), 0, 0)
    return Tally.decode(account.tally.encode()).unevaluated


@pytest.mark.parametrize("place", [4, 10, 12, 19])
def test_it_is_counted_once_wherever_a_block_is_cut(place: int) -> None:
    assert counted(WHOLE.until(place), WHOLE.since(place)) == 7
    assert counted(concat([WHOLE.until(place), WHOLE.since(place)])) == 7


def test_commits_without_rows_pass_it_on_to_the_next() -> None:
    joined = concat([block(0, 10, [], FIRST), block(10, 20, [15], SECOND)])
    assert [commit.unevaluated for commit in joined.commits] == [{MINE: 7, OTHER: 9}]
    assert counted(joined) == 7


def test_others_do_not_hear_of_it() -> None:
    assert [dict(commit.unevaluated) for commit in WHOLE.meant_for((OTHER,))] == [{OTHER: 9}, {}]


def test_it_survives_both_forms_of_a_message() -> None:
    for encode in (encode_block, lambda each: encode_json(each)):
        found = decode_block(encode(WHOLE), SCHEMA)
        assert [commit.unevaluated for commit in found.commits] == [FIRST.unevaluated, SECOND.unevaluated]


def test_messages_that_expire_unread_still_tell_it() -> None:
    expired = expire_messages([WHOLE], Tally(MINE, starts=0))
    assert expired is not None
    assert counted(expired) == 7
