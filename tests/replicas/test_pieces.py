"""What sites that serve parts are made of: cells, tiles, coverage, what is held, and messages as bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.grid import DzSet, GridError, layout_of
from headgate.grid.predicate import grid_predicate
from headgate.grid.serving import Demand, Parts
from headgate.grid.serving import messages as m
from headgate.grid.serving.coverage import CellCoverage
from headgate.grid.serving.served_grid import ServedGrid
from headgate.grid.serving.shelf import HeldPart, HeldRows, Shelf
from headgate.grid.serving.tiling import Tile, heir_of, partition_of, split_for
from headgate.model import Schema, Source, Stream, Subscription
from headgate.protocol.serving import ServingLetter, decode_serving, encode_serving, pack_rows, unpack_rows
from headgate.replicas.load import FillingPart, SendingLoad
from headgate.wire.frame import WireError

SCHEMA = Schema.of({"i": "int", "j": "int", "step": "int", "v": "double"})
STREAM = Stream(
    "wind",
    SCHEMA,
    "root",
    Source("nats", {}),
    options={
        "grid": {
            "x": {"column": "i", "size": 20},
            "y": {"column": "j", "size": 12},
            "block": 4,
            "time": {"tick": "step", "block": 8},
        }
    },
)
GRID = ServedGrid(layout_of(STREAM))
quick = settings(deadline=None, max_examples=40, derandomize=True)


def field(steps: int) -> pa.RecordBatch:
    j, i = np.divmod(np.tile(np.arange(240), steps), 20)
    return pa.RecordBatch.from_pydict(
        {"i": i, "j": j, "step": np.repeat(np.arange(steps), 240), "v": np.arange(240.0 * steps)}, SCHEMA.arrow
    )


@quick
@given(st.data())
def test_every_row_of_a_query_lies_in_its_cells(data):
    left, bottom = data.draw(st.integers(0, 18)), data.draw(st.integers(0, 10))
    box = {"x": [left, data.draw(st.integers(left + 1, 19))], "y": [bottom, data.draw(st.integers(bottom + 1, 11))]}
    share = data.draw(st.sampled_from(["1/4", "1/2", "3/8", "1"]))
    asked = Subscription("q", "wind", "", region={"box": box}, resolution={"space": share, "time": share})
    predicate = grid_predicate(asked, STREAM, layout=GRID.layout)
    rows = field(8)
    parts = GRID.query(1, predicate.region, predicate.resolution)
    cells = DzSet.from_expressions(GRID.space, parts.codes, parts.lengths)
    wanted = GRID.codes(rows)[predicate.evaluate(rows, {})]
    assert DzSet.from_cells(GRID.space, np.unique(wanted)) <= cells


@quick
@given(st.lists(st.booleans(), min_size=1, max_size=14), st.randoms(use_true_random=False))
def test_joins_and_leaves_always_leave_the_whole_grid_to_somebody(steps, random):
    """A site joins or leaves in any order: the tiles are disjoint and cover the grid, also as regions of documents."""
    tiles = {"s0": GRID.whole}
    for number, joins in enumerate(steps, 1):
        if joins or len(tiles) == 1:
            name, stays, given_away = split_for(tiles)
            tiles |= {name: stays, f"s{number}": given_away}
        else:
            leaving = random.choice(sorted(tiles))
            heir, both = heir_of(tiles, leaving)
            gone = tiles.pop(leaving)
            if both is None:
                tiles[f"{heir}.{number}"] = gone
            else:
                tiles[heir] = both
        assert sum(tile.area for tile in tiles.values()) == GRID.whole.area
        partition_of(GRID.space, list(tiles.items()))
        for tile in tiles.values():
            assert GRID.tile(GRID.region(tile)) == tile


def test_rows_belong_to_the_tile_whose_region_has_them():
    rows, codes = field(1), GRID.codes(field(1))
    halves = GRID.whole.halves()
    partition = partition_of(GRID.space, [("a", halves[0]), ("b", halves[1])])
    for site, tile in zip("ab", halves, strict=True):
        asked = Subscription("q", "wind", "", region=GRID.region(tile))
        inside = grid_predicate(asked, STREAM, layout=GRID.layout).evaluate(rows, {})
        bounds = partition.cells(site).bounds
        assert [bool(((bounds[:, 0] <= c) & (c < bounds[:, 1])).any()) for c in codes] == inside.tolist()


def test_parts_that_leave_a_hole_or_cut_cells_are_refused():
    with pytest.raises(ValueError, match="nobody serves column 8"):
        partition_of(GRID.space, [("a", Tile(0, 0, 8, 8))])
    with pytest.raises(GridError, match="does not run along"):
        GRID.tile({"box": {"x": [-0.5, 3.2]}})
    with pytest.raises(GridError, match="is a box"):
        GRID.tile({"circle": {"around": [1, 1], "radius": 3}})


@quick
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 9)), max_size=20))
def test_coverage_is_what_was_marked_last(marks):
    have, oracle = CellCoverage(), [-1] * 81
    for start, size, upto in marks:
        have.mark(start, start + size, upto)
        oracle[start : start + size] = [upto] * size
    found = [upto for low, high, upto in have.pieces(0, 81) for _ in range(low, high)]
    assert found == oracle
    assert have.least(3, 30) == min(oracle[3:30])


@quick
@given(st.data())
def test_what_is_read_piece_by_piece_is_what_was_held(data):
    """Rows added in ranges and read in turns, from any place on, are every row of the cells once."""
    part = HeldPart(DzSet.from_cells(GRID.space, np.arange(0, 1 << 12)))
    shelf = Shelf(10_000)
    shelf.parts["own"] = part
    rows, at, kept = field(8), data.draw(st.integers(0, 5)), []
    begin = at
    while at < 400:
        to = at + data.draw(st.integers(1, 120))
        seqs = np.arange(at + 1, to + 1)
        piece = rows.slice(at, to - at)
        codes = GRID.codes(piece)
        part.add(data.draw(st.integers(begin, at)), to, HeldRows(piece, seqs, codes))
        kept += [int(s) for s, c in zip(seqs, codes, strict=True) if 0 <= c < 1 << 11]
        at = to
    place = data.draw(st.sampled_from([-1, begin, begin + 30]))
    got, after = [], place
    while (answer := shelf.read(0, 1 << 11, after, 50)) is not None and answer.upto > after:
        got += [int(s) for each in answer.found for s in each.seqs]
        after = answer.upto
    assert got == [seq for seq in kept if seq > place]
    assert after == at


def test_a_part_that_trims_says_from_where_on_it_has_rows():
    part = HeldPart(DzSet.whole(GRID.space))
    for at in range(0, 960, 240):
        rows = field(4).slice(at, 240)
        part.add(at, at + 240, HeldRows(rows, np.arange(at + 1, at + 241), GRID.codes(rows)))
    part.trim(500)
    assert (part.after, part.upto, part.count) == (480, 960, 480)
    answer = part.read(0, GRID.space.cells, 100, 10_000)
    assert (answer.after, answer.upto) == (480, 960)
    # A range that does not follow makes it begin anew, and an earlier one that meets it is taken in front.
    part.add(2000, 2000, HeldRows(field(1).slice(0, 0), np.empty(0, np.int64), np.empty(0, np.int64)))
    assert (part.after, part.count) == (2000, 0)
    rows = field(1)
    part.precede(1700, 2000, [HeldRows(rows, np.arange(1701, 1941), GRID.codes(rows))])
    assert (part.after, part.count) == (1700, 240)


def test_messages_of_the_engine_come_back_as_they_went():
    demand = Demand(7, (0, 0, 0, 0), (4, 4, 2, 1))
    parts = Parts(demand, np.array([0, 64]), np.array([5, 6]))
    region = m.ServedRegion(3, 64, 6, ("a", "b"))
    query = m.Query(parts, frozenset({"a"}), ("b",), 1.5)
    for message in (query, m.Replica("a", region, (parts,), 4), m.Release("b", 3, (parts,), (("c", region),))):
        letter = ServingLetter("wind", 9, "a", 1, None, message)
        again = decode_serving(encode_serving(letter), ServingLetter)
        assert encode_serving(again) == encode_serving(letter)
        assert type(again.message) is type(message)
    with pytest.raises(WireError):
        decode_serving(b"\x93\x06\xc7nothing")
    rows = field(2)
    assert unpack_rows(*pack_rows(rows), SCHEMA.arrow).equals(rows)


def test_bandwidth_becomes_cells_by_what_rows_cost():
    load = SendingLoad(10_000.0)
    load.send(1.0, 5_000, 50, replica=False)
    assert load.wait_s(1.0) == pytest.approx(0.5)
    assert load.look(1.0, 64) is None
    for second, known in ((2.0, None), (3.0, None), (4.0, 50)):  # 2 rows a cell and second, 100 bytes each
        load.arrived_rows += 128
        assert load.look(second, 64) == known
    load.arrived_rows += 128
    assert load.look(5.0, 64) is None, "nothing has changed"
    assert load.look(6.0, 0) is None, "no part is read steadily"


def test_rows_that_were_kept_for_a_part_are_no_rate():
    filling = FillingPart()
    assert [filling.take(at - 0.01, at) for at in (1.0, 1.02, 1.5)] == [False, False, False]
    assert filling.take(1.5, 2.0), "it was waited for"
    assert filling.take(2.0, 2.01), "a burst of a stream is what it makes"
    endless = FillingPart()
    assert not any(endless.take(at, at) for at in np.arange(0.0, 10.0, 0.1))
    assert endless.take(10.0, 10.0), "what comes without a pause for so long is what the stream makes"
