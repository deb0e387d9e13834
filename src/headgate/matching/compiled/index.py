"""The compiled index over boxes: match batches and single rows, change boxes in place, keep itself in shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from sys import getrefcount

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching.compiled.boxes import Attribute, Boxes
from headgate.matching.compiled.change import add_boxes, find_slots, remove_boxes
from headgate.matching.compiled.coding import Codes, Flags, Keys, encode_rows, make_coder
from headgate.matching.compiled.keys import column_keys
from headgate.matching.compiled.labels import Labels
from headgate.matching.compiled.moving import change_ranges
from headgate.matching.compiled.ordering import find_sets, order_rows, write_ids
from headgate.matching.compiled.packing import Integers
from headgate.matching.compiled.search import make_work, match_rows
from headgate.matching.compiled.tree import (
    LANES,
    LIVE,
    MISPLACED,
    MOVED,
    REPEATED,
    BoxTree,
    arrays_of,
    build_tree,
    summarise,
    tree_of,
)
from headgate.matching.hiding import Span
from headgate.matching.index import MatchingError
from headgate.matching.lists import ClassLists, Ids

REPACK_SHARE = 1 / 8
TIGHTEN_SHARE = 1
# Tightening costs as much for so many boxes as one row of a batch gains by it when every box has changed once.
TIGHTEN_GAIN = 20
GROWTH = 0.25
# Changes a kernel takes at once: more of them share leaves, fewer of them fit into the cache.
BULK = 1 << 17
MAX_ROOMS, MAX_ROOM_BYTES = 2, 1 << 27
# Rows with the same codes are looked for when so many rows of a batch have at least an eighth that repeat others.
SAMPLED = 512


class BoxIndex:
    """An exact index of boxes over keyed attributes; see `tree` for its form and `packing` for how it is built."""

    __slots__ = ("_attributes", "_changed", "_labels", "_rooms", "_sample", "_tree", "_widened")

    def __init__(self, attributes: Sequence[Attribute], tree: BoxTree, labels: Mapping[str, Labels]) -> None:
        self._attributes = tuple(attributes)
        self._tree = tree
        self._labels = dict(labels)
        self._changed = self._widened = 0
        self._sample: Codes | None = None
        self._rooms: list[Ids] = []

    @classmethod
    def build(
        cls,
        attributes: Sequence[Attribute],
        boxes: Boxes,
        labels: Mapping[str, Labels] | None = None,
        sample: pa.RecordBatch | None = None,
        spare: float = 1 / 64,
    ) -> BoxIndex:
        """An index of boxes; a sample of rows lets it split where rows fall. At least one attribute is needed."""
        if not attributes or boxes.nulls.shape[1] != len(attributes):
            raise ValueError(f"boxes have {boxes.nulls.shape[1]} attributes, {len(attributes)} are named")
        floating = np.array([attribute.floating for attribute in attributes], np.uint8)
        coder = make_coder(boxes.exact, boxes.nulls, floating)
        index = cls(attributes, build_tree(boxes.ids[:0], boxes.exact[:0], boxes.nulls[:0], coder), labels or {})
        codes = None if sample is None else index._encode(sample)[0]
        index._tree = build_tree(boxes.ids, boxes.exact, boxes.nulls, coder, codes, spare)
        index._sample = codes
        return index

    @property
    def tree(self) -> BoxTree:
        """The arrays; kernels and files read them."""
        return self._tree

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The columns that boxes constrain, in the order of the arrays."""
        return self._attributes

    @property
    def labels(self) -> Mapping[str, Labels]:
        """The dictionaries of string attributes."""
        return self._labels

    @property
    def classes(self) -> Ids:
        """The ids it knows, ascending."""
        return np.unique(self._tree.slot_ids[self._slots()])

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(array.nbytes for array in arrays_of(self._tree).values())

    @property
    def moved(self) -> int:
        """Boxes that changes have taken from one leaf to another since the index was packed."""
        return int(self._tree.state[MOVED])

    @property
    def widened(self) -> int:
        """Changes since the last `tighten` that stayed where they were."""
        return self._widened

    @property
    def changed(self) -> int:
        """Changes since its bounds were last tight."""
        return self._changed

    def __len__(self) -> int:
        return int(self._tree.state[LIVE])

    def _slots(self) -> Integers:
        """Slots in use."""
        lanes = self._tree.lane_slots
        used = np.unpackbits(self._tree.used.view(np.uint8), bitorder="little").astype(bool)
        return np.sort(lanes[used]).astype(np.int64)

    def boxes(self) -> Boxes:
        """Every box it holds, by slot."""
        slots = self._slots()
        tree = self._tree
        places = tree.places[slots].astype(np.int64)
        lower = tree.blocks[places >> 5, :, places & 31][:, 0::2]
        upper = tree.blocks[places >> 5, :, places & 31][:, 1::2]
        nulls = np.where(lower > 0, 0, np.where(upper == 0, 1, 2)).astype(np.uint8)
        return Boxes(tree.slot_ids[slots], tree.exact[slots], nulls)

    def _encode(self, batch: pa.RecordBatch) -> tuple[Codes, Keys]:
        count = len(self._attributes)
        keys = np.empty((count, batch.num_rows), np.int64)
        valid: Flags = np.empty((count, batch.num_rows), np.uint8)
        for k, attribute in enumerate(self._attributes):
            column = batch.column(attribute.name)
            keys[k], valid[k] = column_keys(column, attribute.type, self._labels.get(attribute.name))
        codes = np.empty((batch.num_rows, count), np.uint16)
        encode_rows(self._tree.coder, keys, valid, codes)
        return codes, keys

    def _order(self, codes: Codes) -> Integers:
        """Rows in the order in which they are looked up."""
        order = np.empty(len(codes), np.int64)
        order_rows(codes, self._tree.splits, len(self._tree.used), order)
        return order

    def match(
        self,
        batch: pa.RecordBatch,
        threads: int = 1,
        *,
        adapt: bool = True,
        plain: bool = False,
        spans: Sequence[Span] = (),
    ) -> ClassLists:
        """The ids of the boxes that contain each row, on that many threads; `adapt`: tightened first if that pays.

        The lists name boxes by their places in the tree, which the walk meets in order, so that nothing is sorted.
        They name them by id where a class has several boxes, and where there are fewer matches than places: a table of
        names costs more than it saves then. `plain` lists have no sets either. Where there are `spans`, which are all
        of the batch, the rows of each are matched without the boxes of the classes that are hidden from it.
        """
        codes, keys = self._encode(batch)
        rows = len(codes)
        if rows == 0 or len(self) == 0:
            return ClassLists.empty(rows)
        if adapt:
            self._adapt(rows)
        exact = not self._tree.coder.inexact.any()
        keys = np.empty((rows, 0), np.int64) if exact else np.ascontiguousarray(keys.T)
        sets = None
        if exact and not spans and _repetitive(codes[:SAMPLED]):
            sets, chosen = _sets(codes)
            codes, keys = codes[chosen], keys[chosen]
        order = self._order(codes)
        if spans:
            order, lists = self._search_spans(spans, codes, keys, order)
        else:
            lists = self._search_all(codes, keys, order, threads)
        walked = np.empty(len(order), np.int64)
        walked[order] = np.arange(len(order))
        return self._named(lists, walked if sets is None else walked[sets], plain)

    def _named(self, found: ClassLists, sets: Integers, plain: bool) -> ClassLists:
        """Lists of places as lists of classes; `sets` is where in the walk each row's list was written."""
        tree = self._tree
        if not (plain or tree.state[REPEATED]) and len(found.numbers) >= len(tree.lane_ids):
            return ClassLists(found.starts, found.numbers, tree.lane_ids.copy(), sets)
        shared = not plain and found.rows < len(sets)
        wanted = np.arange(found.rows) if shared else sets
        work, offsets = make_work(tree), np.zeros(len(wanted) + 1, np.int64)
        ids = np.empty(int(found.set_sizes()[wanted].sum()), np.uint32)
        write_ids(tree, found.numbers, found.starts, wanted, offsets, ids, work.spare, work.heads)
        return ClassLists(offsets, ids[: offsets[-1]], None, sets if shared else None)

    def _room(self, rows: int) -> Ids:
        """A buffer for the matches of so many rows: one of an earlier batch whose lists are gone, or a new one."""
        for _ in range(len(self._rooms)):
            try:
                room = self._rooms.pop(0)
            except IndexError:
                break
            if getrefcount(room) == 2:  # this name and the call's: no list is a view of it any more
                return room
            self._rooms.append(room)
        return np.empty(max(64 * rows, 1 << 16), np.uint32)

    def _search(self, codes: Codes, keys: Keys, out: Ids, order: Integers) -> ClassLists:
        """The places of rows in order, in a buffer that grows until all fit and is used again by later batches."""
        tree, work = self._tree, make_work(self._tree)
        starts = np.zeros(len(order) + 1, np.int64)
        place = match_rows(tree, codes, keys, order, 0, out, starts, work)
        while place < len(order):
            grown = np.empty(2 * len(out) + len(tree.lane_ids) + 2 * LANES, np.uint32)
            grown[: starts[place]] = out[: starts[place]]
            out = grown
            place = match_rows(tree, codes, keys, order, place, out, starts, work)
        if len(self._rooms) < MAX_ROOMS and out.nbytes <= MAX_ROOM_BYTES:
            self._rooms.append(out)
        return ClassLists(starts, out[: starts[-1]])

    def _search_all(self, codes: Codes, keys: Keys, order: Integers, threads: int) -> ClassLists:
        """The places of rows in order, on that many threads."""
        parts = np.array_split(order, threads) if threads > 1 else [order]
        rooms = [self._room(len(part)) for part in parts]
        search = partial(self._search, codes, keys)
        if threads > 1:
            with ThreadPoolExecutor(threads) as pool:
                return ClassLists.concat(list(pool.map(search, rooms, parts)))
        return search(rooms[0], order)

    def _search_spans(
        self, spans: Sequence[Span], codes: Codes, keys: Keys, order: Integers
    ) -> tuple[Integers, ClassLists]:
        """Rows in order within each span, and their places, without the boxes that are hidden from it."""
        orders = [order[(order >= span.start) & (order < span.stop)] for span in spans]
        found = []
        for span, mine in zip(spans, orders, strict=True):
            with self._hidden(span.hidden):
                found.append(self._search(codes, keys, np.empty(max(64 * len(mine), 1 << 16), np.uint32), mine))
        return np.concatenate(orders), ClassLists.concat(found)

    @contextmanager
    def _hidden(self, ids: Ids) -> Iterator[None]:
        """Let no row meet the boxes of some classes; their places get a range that has no rows, and then their own."""
        tree = self._tree
        slots = self._slots() if len(ids) else np.empty(0, np.int64)
        places = tree.places[slots[np.isin(tree.slot_ids[slots], ids)]].astype(np.int64)
        leaves, lanes = places >> 5, places & 31
        lower, upper = tree.blocks[leaves, 0, lanes], tree.blocks[leaves, 1, lanes]
        tree.blocks[leaves, 0, lanes], tree.blocks[leaves, 1, lanes] = 65535, 0
        try:
            yield
        finally:
            tree.blocks[leaves, 0, lanes], tree.blocks[leaves, 1, lanes] = lower, upper

    def change(
        self,
        ids: npt.NDArray[np.uint32],
        attributes: npt.NDArray[np.int64],
        lows: Keys,
        highs: Keys,
        *,
        move: bool = True,
    ) -> None:
        """Give one attribute of each named class a new closed range of keys, in the order given.

        With `move` False boxes stay in their leaves and widen them: changes get cheaper, later matches dearer.

        An unknown id, a class of several boxes or a reversed range is refused, and then nothing is changed.
        """
        ids, attributes, lows, highs = _flat(ids, np.uint32), _flat(attributes), _flat(lows), _flat(highs)
        slots = np.empty(len(ids), np.int64)
        unknown = find_slots(self._tree, ids, slots)
        if unknown >= 0:
            raise MatchingError(f"class {ids[unknown]} is not in the index", hint="add it first")
        if (lows > highs).any():
            place = int(np.argmax(lows > highs))
            raise MatchingError(f"the new range of class {ids[place]} is reversed", hint="give the lower bound first")
        for start in range(0, len(ids), BULK):
            part = slice(start, start + BULK)
            change_ranges(self._tree, slots[part], attributes[part], lows[part], highs[part], move)
        self._widened += 0 if move else len(ids)
        self._changed += len(ids)
        self._maintain()

    def add(self, boxes: Boxes) -> None:
        """Add boxes; grows the arrays when they are full."""
        added = add_boxes(self._tree, boxes.ids, boxes.exact, boxes.nulls)
        if added < len(boxes):
            held = self.boxes()
            together = Boxes(
                np.concatenate([held.ids, boxes.ids[added:]]),
                np.concatenate([held.exact, boxes.exact[added:]]),
                np.concatenate([held.nulls, boxes.nulls[added:]]),
            )
            self._rebuild(together, GROWTH)
            return
        self._changed += added
        self._worn()

    def remove(self, ids: npt.NDArray[np.uint32]) -> int:
        """Remove classes with all their boxes; returns how many boxes went. Unknown ids are ignored."""
        return int(remove_boxes(self._tree, _flat(ids, np.uint32)))

    def adopt_labels(self, labels: Mapping[str, Labels]) -> None:
        """Use dictionaries that were grown from the ones it has."""
        self._labels.update(labels)

    def copy(self) -> BoxIndex:
        """An independent index of the same boxes."""
        arrays = {name: array.copy() for name, array in arrays_of(self._tree).items()}
        return BoxIndex(self._attributes, tree_of(arrays), self._labels)

    def repack(self) -> None:
        """Build again from the boxes it holds: best shape, exact codes."""
        self._rebuild(self.boxes(), 1 / 64)

    def tighten(self) -> None:
        """Make bounding boxes tight again after changes; much cheaper than `repack`."""
        summarise(self._tree.blocks, self._tree.levels, self._tree.used)
        self._changed = self._widened = 0

    def _adapt(self, rows: int) -> None:
        """Tighten before a batch if its rows gain more than that takes.

        So the index adapts to the ratio of messages to updates (AGILE, section 4.1 of the filter paper): it is kept
        tight where rows are many, and left loose where updates are.
        """
        count = max(1, len(self))
        if rows * TIGHTEN_GAIN * min(self._changed, count) > count * count:
            self.tighten()

    def _worn(self) -> bool:
        """Build again when too many boxes lie where nobody would look first; whether it was."""
        worn = bool(self._tree.state[MISPLACED] > REPACK_SHARE * max(1, len(self)) + 64)
        if worn:
            self.repack()
        return worn

    def _maintain(self) -> None:
        if not self._worn() and self._changed > TIGHTEN_SHARE * max(1, len(self)) + 1024:
            self.tighten()

    def _rebuild(self, boxes: Boxes, spare: float) -> None:
        coder = make_coder(boxes.exact, boxes.nulls, self._tree.coder.floating)
        self._tree = build_tree(boxes.ids, boxes.exact, boxes.nulls, coder, None, spare)
        self._changed = self._widened = 0


def _flat(values: npt.ArrayLike, dtype: type[np.generic] = np.int64) -> np.ndarray:
    return np.ascontiguousarray(values, dtype)


def _sets(codes: Codes) -> tuple[Integers, Integers]:
    """The set of each row, where rows with the same codes have the same, and a row of each set."""
    sets, chosen = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
    table = np.full(2 << len(codes).bit_length(), -1, np.int32)
    return sets, chosen[: find_sets(codes, table, sets, chosen)]


def _repetitive(codes: Codes) -> bool:
    """Whether many rows have the codes of another one."""
    return len(codes) > 1 and len(_sets(codes)[1]) <= len(codes) * 7 // 8
