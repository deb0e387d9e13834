from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from headgate.wire.block import Block, Commit
from headgate.wire.ledger import Account, Tally
from headgate.wire.manifest import Manifest, PartRef, decode_manifest, encode_manifest
from headgate.wire.sums import Matched

EMPTY = pa.schema([("x", pa.int64())])


def _manifest(batch: int, after: int, rows: int, counts: dict[int, int], **more: int) -> Manifest:
    ids = np.array(sorted(counts), dtype=np.uint64)
    values = np.array([counts[i] for i in sorted(counts)], dtype=np.uint64)
    return Manifest("s", "line", batch, 1, after, (PartRef(batch + 1, rows, rows),), ids, values, **more)


def _block(after: int, upto: int, seqs: list[int], end: int | None = None, **declared: dict[str, int]) -> Block:
    rows = pa.RecordBatch.from_arrays([pa.array(seqs, type=pa.int64())], schema=EMPTY)
    return Block(
        "s",
        after,
        upto,
        (Commit(after, end or upto, 1, 1000, 20, shed=2),),
        np.array(seqs, dtype=np.uint64),
        rows,
        None,
        {int(k[1:]): v for k, v in declared.items()},
    )


def _books() -> Matched:
    books = Matched("s")
    books.add(_manifest(0, 0, 10, {7: 4}, dead=1, shed=2), {1: 7, 2: 8})
    books.add(_manifest(1, 10, 5, {7: 3, 8: 2}), {1: 7, 2: 8})
    return books


def test_a_subscriber_that_got_everything_has_no_difference() -> None:
    account = Account(Tally(1))
    account.add(_block(0, 10, [1, 2, 3, 4]), 1, 1100)
    account.add(_block(10, 15, [11, 12], _1={"overflow": 1}), 2, 1200)
    (line, other) = _books().entries([account.tally])
    assert (line.matched, line.delivered, line.reduced, line.in_flight, line.difference) == (
        7, 6, {"overflow": 1}, 0, 0,
    )  # fmt: skip
    assert (other.matched, other.in_flight, other.difference) == (2, 2, 0)
    assert account.tally.shed == 4


def test_rows_past_the_acknowledged_boundary_are_in_flight() -> None:
    account = Account(Tally(1))
    account.add(_block(0, 10, [1, 2, 3, 4]), 1, 1100)
    account.add(_block(10, 12, [11], end=15), 2, 1200)
    line = _books().entries([account.tally])[0]
    assert (line.boundary, line.delivered, line.in_flight, line.difference) == (10, 4, 3, 0)


@pytest.mark.parametrize(("seqs", "difference"), [([1, 2, 3], 1), ([1, 2, 3, 4, 4], -1)])
def test_a_lost_or_doubled_row_is_a_difference(seqs: list[int], difference: int) -> None:
    account = Account(Tally(1))
    account.add(_block(0, 10, seqs), 1, 1100)
    assert _books().entries([account.tally])[0].difference == difference


def test_an_account_refuses_a_gap() -> None:
    account = Account(Tally(1))
    account.add(_block(0, 10, []), 1, 1100)
    with pytest.raises(ValueError, match="does not continue"):
        account.add(_block(11, 15, []), 2, 1200)


def test_a_subscription_is_counted_from_the_manifest_that_first_served_it() -> None:
    books = Matched("s")
    books.add(_manifest(0, 0, 10, {7: 4}), {1: 7})
    books.add(_manifest(1, 10, 5, {7: 3}), {1: 7, 2: 7})
    late = books.entries([])[1]
    assert (late.subscription, late.starts, late.matched) == (2, 10, 3)


def test_a_changed_subscription_goes_on_under_its_new_class() -> None:
    books = Matched("s")
    books.add(_manifest(0, 0, 10, {7: 4, 8: 1}), {1: 7})
    books.add(_manifest(1, 10, 5, {7: 3, 8: 2}), {1: 8})
    assert books.entries([])[0].matched == 6


def test_folding_and_storing_change_no_sum() -> None:
    books = _books()
    books.fold(10)
    again = Matched.decode(books.encode(), "s")
    assert again.mark == 10
    assert again.matched(1, 10) == 4
    assert again.matched(1) == 7
    again.add(_manifest(1, 10, 5, {7: 3}), {1: 7})
    assert again.matched(1) == 7


def test_a_subscription_that_starts_earlier_is_counted_from_the_manifests_before_it() -> None:
    books = _books()
    books.fold(15)
    books.add_history(9, [(_manifest(0, 0, 10, {7: 4}), 4), (_manifest(1, 10, 5, {7: 3, 8: 2}), 3)])
    books.add(_manifest(2, 15, 5, {7: 1}), {1: 7, 2: 8, 9: 7})
    account = Account(Tally(9))
    account.add(_block(0, 10, [1, 2, 3, 4]), 1, 1100)
    line = next(each for each in books.entries([account.tally]) if each.subscription == 9)
    assert (line.starts, line.matched, line.delivered, line.in_flight, line.difference) == (0, 8, 4, 4, 0)
    assert books.head == 20


def test_sums_of_a_subscription_that_nobody_reads_stay_small_and_exact_where_commits_were_not_joined() -> None:
    books = Matched("s")
    for batch in range(400):
        books.add(_manifest(batch, 10 * batch, 10, {7: 3, 8: 1, 9: 5}), {1: 7, 2: 8})
    whole = len(books.encode())
    books.limit(200)
    assert sum(1 + len(each.counts) for each in books.recent) <= 200
    assert len(Matched.decode(books.encode(), "s").encode()) < whole / 4
    ends = {each.upto for each in books.recent}
    for batch in range(400):
        upto = 10 * (batch + 1)
        right = Tally(1, 0, upto, delivered=3 * (batch + 1), mark=upto)
        line = books.entries([right], only=[1])[0]
        assert (line.matched, line.difference, line.in_flight) == (1200, 0, 1200 - right.delivered)
        if upto in ends:
            wrong = Tally(1, 0, upto, delivered=right.delivered - 1, mark=upto)
            assert books.entries([wrong], only=[1])[0].difference == 1
    assert books.entries([Tally(1, 0, 10, delivered=1200, mark=10)])[0].difference < 0
    books.fold(books.head)
    assert (books.matched(1), books.matched(2), books.recent) == (1200, 400, [])


def test_who_is_served_no_more_is_matched_no_more() -> None:
    books = Matched("s")
    books.add(_manifest(0, 0, 10, {7: 4}), {1: 7, 2: 7})
    books.add(_manifest(1, 10, 5, {7: 3}), {1: 7})
    books.add(_manifest(2, 15, 5, {7: 2, 8: 1}), {1: 7, 2: 8})
    assert (books.matched(1), books.matched(2)) == (9, 5)
    books.fold(15)
    assert (books.matched(1), books.matched(2), books.matched(2, 15)) == (9, 5, 4)


def test_a_new_lineage_counts_its_batches_anew() -> None:
    books = _books()
    fresh = replace(_manifest(0, 15, 4, {7: 2}), lineage="other")
    books.add(fresh, {1: 7})
    books.add(fresh, {1: 7})
    books.add(_manifest(1, 10, 5, {7: 3}), {1: 7})
    assert (books.head, books.matched(1), books.rows_in) == (19, 9, 22)


def test_a_missing_manifest_is_refused() -> None:
    books = Matched("s")
    books.add(_manifest(0, 0, 10, {}), {})
    with pytest.raises(ValueError, match="does not continue"):
        books.add(_manifest(2, 15, 5, {}), {})


def test_tallies_and_manifests_come_back_from_bytes() -> None:
    account = Account(Tally(1))
    account.add(_block(0, 10, [1, 2]), 4, 1100)
    assert Tally.decode(account.tally.encode()) == account.tally
    manifest = _manifest(3, 40, 9, {2: 5, 90: 1}, dead=3)
    found = decode_manifest(encode_manifest(manifest))
    assert (found.upto, found.rows_in, found.bases()) == (49, 12, [40])
    assert found.matched(np.array([90, 2, 5], dtype=np.uint64)).tolist() == [1, 5, 0]
