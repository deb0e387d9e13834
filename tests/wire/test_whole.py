"""Commits of which rows can no longer be read: what is missing is declared once, whatever part of it is asked for."""

import numpy as np
import pyarrow as pa

from headgate.relay.expiry import expire_messages
from headgate.wire.block import EXPIRED, Block, Commit, concat
from headgate.wire.ledger import Account, Tally
from headgate.wire.message import decode_block, encode_block, encode_json

SCHEMA = pa.schema([("x", pa.int64())])
MINE = 7


def block(after: int, upto: int, seqs: list[int], *commits: Commit, **more: object) -> Block:
    rows = pa.RecordBatch.from_pylist([{"x": seq} for seq in seqs], schema=SCHEMA)
    return Block("s", after, upto, commits, np.array(seqs, dtype=np.uint64), rows, **more)  # type: ignore[arg-type]


SOUND = Commit(0, 10, 1, 0)
DAMAGED = Commit(0, 10, 1, 0, whole={MINE: 6, 8: 2})
NEXT = Commit(10, 20, 1, 0)


def read(*blocks: Block, stop: int | None = None) -> Tally:
    """What a reader has counted; with `stop` it is started again from its acknowledgement behind so many blocks."""
    account = Account(Tally(MINE))
    for number, each in enumerate(blocks):
        if number == stop:
            account = Account(Tally.decode(account.tally.encode()))
        account.add(account.rest(each), 0, 0)
    return account.tally


def test_what_was_not_counted_when_the_commit_ends_has_expired() -> None:
    """The middle of the commit was asked for again when its rows were gone; the rest came as it was."""
    parts = block(0, 3, [1, 3], SOUND), block(3, 7, [], DAMAGED), block(7, 10, [8], SOUND)
    for stop in (None, 1, 2):
        tally = read(*parts, stop=stop)
        assert (tally.boundary, tally.delivered, tally.expired, tally.begun) == (10, 3, 3, None)


def test_what_was_given_up_on_the_way_is_not_expired_too() -> None:
    given_up = block(3, 7, [], DAMAGED, declared={MINE: {"overflow": 2}})
    tally = read(block(0, 3, [1], SOUND), given_up, block(7, 10, [8], SOUND))
    assert (tally.delivered, tally.reduced, tally.expired) == (2, {"overflow": 2}, 2)


def test_the_count_is_passed_on_wherever_blocks_are_cut_and_joined() -> None:
    whole = block(0, 10, [1, 3], DAMAGED)
    first, second = whole.until(4), whole.since(4)
    assert first.commits == second.commits == (DAMAGED,)
    tail = block(10, 20, [], NEXT)
    joined = concat([block(0, 4, [1, 3], SOUND), second, tail])
    assert [commit.whole for commit in joined.commits] == [DAMAGED.whole, {}]
    tally = read(joined)
    assert (tally.boundary, tally.delivered, tally.expired) == (20, 2, 4)
    assert joined.meant_for((8,))[0].whole == {8: 2}


def test_the_end_of_the_commit_may_be_in_a_block_that_does_not_name_it() -> None:
    rest = concat([block(7, 10, [], SOUND), block(10, 20, [11], NEXT)])
    assert [commit.upto for commit in rest.commits] == [20]
    tally = read(block(0, 3, [1, 3], SOUND), block(3, 7, [], DAMAGED), rest)
    assert (tally.boundary, tally.delivered, tally.expired) == (20, 3, 4)


def test_unread_messages_that_expire_settle_it_too() -> None:
    messages = block(0, 3, [1, 3], SOUND), block(3, 10, [5], DAMAGED), block(10, 15, [11, 12], NEXT)
    gone = expire_messages(messages, Tally(MINE))
    assert gone is not None
    assert (gone.declared, gone.begun) == ({MINE: {EXPIRED: 8}}, {MINE: 2})
    late = Commit(10, 20, 1, 0, whole={MINE: 5})
    assert read(gone, block(15, 20, [], late)).expired == 8 + 3
    # One who has the first message in hand hears of the others.
    assert read(messages[0], gone, block(15, 20, [], late)).expired == 6 + 3


def test_a_reader_at_its_next_site_takes_off_what_it_read_there_only() -> None:
    account = Account(Tally(MINE))
    account.add(block(0, 10, [1, 3], SOUND), 0, 0)
    acknowledged = Tally.decode(account.tally.encode())
    account.tally.stay, account.tally.entered = 1, {"delivered": 2}
    first, second = block(10, 15, [11], NEXT), block(15, 20, [16, 17], NEXT)
    account.add(first, 0, 0)
    assert acknowledged.stay == 0
    gone = expire_messages((first, second), Tally(MINE))
    assert gone is not None
    account.add(account.rest(gone), 0, 0)
    assert (account.tally.delivered, account.tally.expired) == (3, 2)


def test_it_travels_in_both_formats() -> None:
    sent = block(3, 7, [], DAMAGED, begun={MINE: 2})
    for data in (encode_block(sent), encode_json(sent)):
        found = decode_block(data, SCHEMA)
        assert (found.commits, found.begun) == (sent.commits, sent.begun)
