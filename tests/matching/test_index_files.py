"""Snapshots and deltas: the same rows after a round trip, private changes, and damage that is noticed."""

import numpy as np
import pyarrow as pa
import pytest

from headgate.matching import MatchingError
from headgate.matching.compiled.boxes import Attribute, Boxes
from headgate.matching.compiled.files import Delta, IndexStore
from headgate.matching.compiled.index import BoxIndex
from headgate.matching.compiled.labels import Labels
from headgate.matching.compiled.tree import arrays_of


def make(count=2000, seed=1):
    rng = np.random.default_rng(seed)
    labels = Labels.of(f"s{k:03d}".encode() for k in range(50))
    exact = np.empty((count, 2, 2), np.int64)
    exact[:, 0] = np.sort(rng.integers(0, 1000, (count, 2)), axis=1)
    exact[:, 1] = labels.labels[rng.integers(0, 50, count)][:, None]
    boxes = Boxes(np.arange(count, dtype=np.uint32), exact, np.zeros((count, 2), np.uint8))
    attributes = [Attribute("t", pa.int64()), Attribute("s", pa.string())]
    batch = pa.RecordBatch.from_pydict(
        {"t": rng.integers(0, 1000, 300), "s": [f"s{k:03d}" for k in rng.integers(0, 60, 300)]}
    )
    return BoxIndex.build(attributes, boxes, {"s": labels}), batch


def test_a_snapshot_and_its_deltas_give_the_same_index(tmp_path):
    index, batch = make()
    store = IndexStore(tmp_path)
    store.publish(4, index)
    before = index.match(batch)
    assert store.open(4).match(batch).same(before)
    labels = index.labels["s"].grown([b"s055"])
    assert labels is not None
    label = int(labels.of_bytes(np.array([b"s055", b""], object))[0])
    delta = Delta(
        removed=np.arange(0, 500, dtype=np.uint32),
        added=Boxes(np.array([9000], np.uint32), np.array([[[0, 999], [label, label]]]), np.zeros((1, 2), np.uint8)),
        changed=np.arange(600, 900, dtype=np.uint32),
        attributes=np.zeros(300, np.int64),
        lows=np.full(300, 5),
        highs=np.full(300, 700),
        labels={"s": labels},
    )
    worker = store.open(4)
    delta.apply(index)
    store.append(5, delta)
    store.read_delta(5).apply(worker)
    expected = index.match(batch)
    assert not expected.same(before)
    assert 9000 in expected.ids
    assert worker.match(batch).same(expected)
    assert store.open(5).match(batch).same(expected)
    assert store.open(4).match(batch).same(before)
    for name, array in arrays_of(worker.tree).items():
        assert np.array_equal(array, arrays_of(index.tree)[name]), name


@pytest.mark.parametrize("damage", ["flip", "cut", "header", "magic"])
def test_damage_is_refused(tmp_path, damage):
    index, _ = make(100)
    path = IndexStore(tmp_path).publish(1, index)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[5000] ^= 1
    elif damage == "cut":
        del data[-100:]
    else:
        data[40 if damage == "header" else 0] ^= 1
    path.write_bytes(data)
    with pytest.raises(MatchingError, match="cannot be used"):
        IndexStore(tmp_path).open(1)


def test_a_missing_version_says_what_is_missing(tmp_path):
    index, _ = make(100)
    store = IndexStore(tmp_path)
    store.publish(1, index)
    with pytest.raises(MatchingError, match=r"delta-000000000003\.hga is missing"):
        store.open(3)
