"""The staged row as a record: its columns are what Spark carries, and another format is refused."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from headgate.matching import ClassLists
from headgate.pipeline.commit import build_manifest
from headgate.pipeline.counts import Counted
from headgate.pipeline.staged import STAGED, STAGED_DDL, STAGED_FORMAT, Staged, StagedRow, encode_staged
from headgate.protocol.records import Pin
from headgate.wire.frame import WireError
from headgate.wire.manifest import PartRef


def told():
    counted = Counted()
    counted.add(ClassLists.of([[1, 2], [2], []]))
    classes, ids, counts = counted.packed()
    return [
        StagedRow(kind="dead", log_sequence=4, dead=2),
        StagedRow(kind="part", log_sequence=5, evaluated=2, kept=2),
        StagedRow(kind="part", log_sequence=0, evaluated=1, kept=0),
        StagedRow(kind="withheld", tolerance="0.1", withheld=3),
        StagedRow(kind="withheld", tolerance="0.1", withheld=4),
        StagedRow(
            kind="batch", shed=6, partly_shed=1, event_ms=900.0, events=2, busy_s=0.5, missed=1.5, trouble="slow"
        ),
        StagedRow(kind="partition", classes=classes, class_ids=ids, class_counts=counts, given=3, age_s=0.25),
    ]


def collected(batch):
    """As Spark hands rows over: a tuple each, with every column in the order of the DDL."""
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


@pytest.mark.parametrize("through_spark", [False, True])
def test_what_is_written_is_read(through_spark):
    batch = encode_staged(told())
    staged = Staged.collected(collected(batch)) if through_spark else Staged.of([batch.slice(0, 3), batch.slice(3)])
    assert staged.parts() == (PartRef(5, 2, 2), PartRef(0, 1, 0))
    assert staged.dead_letters() == (PartRef(4, 0, 2),)
    assert staged.withheld() == {"0.1": 7}
    assert staged.troubles() == {"slow"}
    assert [each.tolist() for each in staged.class_counts()] == [[1, 2], [1, 2]]
    assert (staged.total("evaluated"), staged.total("busy_s"), staged.most("given")) == (3, 0.5, 3)
    manifest = build_manifest("s", "line", 3, Pin(2), staged, 10, 1000)
    assert (manifest.after, manifest.upto, manifest.dead, manifest.shed, manifest.lag_ms) == (10, 13, 2, 6, 100)


def test_nothing_staged_is_an_empty_manifest():
    for staged in (Staged.of([]), Staged.collected([]), Staged.of([encode_staged([])])):
        manifest = build_manifest("s", "line", 3, Pin(2), staged, 10, 1000)
        assert (manifest.upto, manifest.parts, manifest.lag_ms, len(manifest.class_ids)) == (10, (), 0, 0)
        assert (staged.most("age_s"), staged.unsent()) == (0, None)


def test_what_a_worker_of_another_version_wrote_is_refused():
    rows = told()
    mixed = encode_staged([*rows, replace(rows[0], format=STAGED_FORMAT + 1)])
    for read in (lambda: Staged.of([mixed]), lambda: Staged.collected(collected(mixed))):
        with pytest.raises(WireError, match="the same version of Headgate"):
            read()


def test_a_row_with_another_number_of_columns_is_refused():
    with pytest.raises(ValueError, match="zip"):
        Staged.collected([row[:-1] for row in collected(encode_staged(told()))])


def test_the_columns_of_spark_are_those_of_arrow():
    types = {"string": pa.string(), "binary": pa.binary(), "bigint": pa.int64(), "double": pa.float64()}
    assert (
        pa.schema([(name, types[kind]) for name, kind in (each.split() for each in STAGED_DDL.split(", "))]) == STAGED
    )
    assert np.unique(STAGED.names).size == len(STAGED.names)
