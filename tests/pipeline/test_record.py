"""What becomes of a checkpoint before a query starts, case by case, and what the committer refuses."""

from __future__ import annotations

import json
import uuid

import numpy as np
import pytest

from headgate.fabric import SyncFabric
from headgate.model import Schema, Source, Stream
from headgate.pipeline.checkpoint import FileEntry, SparkCheckpoint
from headgate.pipeline.commit import BatchReading, commit
from headgate.pipeline.filelists import WHOLE_EVERY, FileLists, read_files
from headgate.pipeline.resuming import CheckpointState, CheckpointVerdict, judge, note, resume
from headgate.pipeline.staged import Staged, StagedRow, encode_staged
from headgate.protocol.commits import LineageError
from headgate.protocol.records import Pin
from headgate.relay.root import commit_of
from headgate.wire.logs import Logs
from headgate.wire.manifest import Manifest, PartRef, SourceRange, decode_manifest, encode_manifest

NONE = np.zeros(0, np.uint64)


RANGES = (SourceRange('{"row": 40}', '{"row": 50}'),)


def manifest(batch=4, lineage="mine", rows=10, ranges=RANGES, **more):
    return Manifest(
        "s", lineage, batch, 1, 10 * batch, (PartRef(batch, rows, rows),), NONE, NONE, ranges=ranges, **more
    )


@pytest.fixture
def fabric(nats_url):
    with SyncFabric(nats_url, Logs(f"r{uuid.uuid4().hex[:10]}")) as connected:
        for log in (connected.logs.root("s"), connected.logs.state):
            connected.ensure(log)
        yield connected


def stream(form="generator"):
    return Stream("s", Schema.of({"value": "string"}), Source(form, {}), "root")


def reading(first, last):
    before = None if first is None else json.dumps({"row": first})
    return BatchReading((SourceRange(before, json.dumps({"row": last})),))


@pytest.mark.parametrize(
    ("last", "found", "accept", "verdict"),
    [
        (None, CheckpointState(None, -1), False, CheckpointVerdict.TAKE),
        (manifest(), CheckpointState("mine", 4), False, CheckpointVerdict.KEEP),
        (manifest(), CheckpointState("mine", 3), False, CheckpointVerdict.KEEP),
        (manifest(), CheckpointState("mine", 4, agrees=False), False, CheckpointVerdict.REWRITE),
        (manifest(), CheckpointState("mine", 1, agrees=False), False, CheckpointVerdict.REWRITE),
        (manifest(), CheckpointState(None, -1, agrees=False), False, CheckpointVerdict.REWRITE),
        (manifest(), CheckpointState(None, -1, agrees=False), True, CheckpointVerdict.TAKE),
        (manifest(), CheckpointState("other", 2, agrees=False), True, CheckpointVerdict.TAKE),
        (manifest(), CheckpointState("mine", 5, agrees=False), True, CheckpointVerdict.TAKE),
        (None, CheckpointState("mine", 5), True, CheckpointVerdict.TAKE),
    ],
)
def test_the_root_log_is_the_record_and_the_checkpoint_a_hint(last, found, accept, verdict):
    assert judge("s", "generator", last, found, accept=accept) is verdict


@pytest.mark.parametrize(
    ("last", "found", "source", "message"),
    [
        (
            manifest(),
            CheckpointState("other", 4),
            "generator",
            "was committed by the checkpoint mine, this one is other",
        ),
        (
            manifest(),
            CheckpointState("mine", 5),
            "generator",
            "batch 5 was committed, but its root log ends with batch 4",
        ),
        (
            None,
            CheckpointState("mine", 5),
            "generator",
            "batch 5 was committed, but its root log has no committed batch",
        ),
        (manifest(), CheckpointState("mine", 3, agrees=False), "rate", "from a source 'rate' it cannot be made anew"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_do(last, found, source, message):
    with pytest.raises(LineageError, match=message) as refused:
        judge("s", source, last, found, accept=False)
    assert "--new-lineage" in str(refused.value)
    assert "restore" in str(refused.value)


@pytest.mark.nats
def test_a_number_that_was_used_with_another_range_is_refused_and_not_dropped(fabric):
    rows = Staged.of([encode_staged([StagedRow(kind="part", log_sequence=7, evaluated=10, kept=10)])])
    assert commit(fabric, "s", "mine", 0, Pin(1), rows, reading(None, 10)) is not None
    assert commit(fabric, "s", "mine", 1, Pin(1), rows, reading(10, 20)) is not None
    assert commit(fabric, "s", "mine", 1, Pin(1), rows, reading(10, 20)) is None
    for batch, first, last in ((1, 10, 25), (0, None, 10), (2, 10, 30), (2, 25, 30)):
        with pytest.raises(LineageError, match=f"batch {batch} of stream 's' reads"):
            commit(fabric, "s", "mine", batch, Pin(1), rows, reading(first, last))
    assert commit(fabric, "s", "mine", 2, Pin(1), rows, reading(20, 30)).after == 20


@pytest.mark.nats
def test_accepted_loss_is_declared_in_the_root_log_and_no_number_is_given_twice(fabric, tmp_path):
    logs = fabric.logs
    checkpoint = SparkCheckpoint(tmp_path / "spark")
    checkpoint.rewrite(7, (SourceRange('{"row": 70}', '{"row": 80}'),))
    (tmp_path / "lineage").write_text("mine")
    note(tmp_path, manifest(batch=7))
    fabric.publish(logs.commit("s"), encode_manifest(manifest(batch=4)))
    with pytest.raises(LineageError, match="batch 7 was committed"):
        resume(fabric, stream(), tmp_path)
    assert resume(fabric, stream(), tmp_path, accept=True) == "mine"
    declared = decode_manifest(fabric.last(logs.root("s"), logs.commit("s")).data)
    assert (declared.batch, declared.after, declared.upto, declared.gaps) == (7, 50, 80, 30)
    assert resume(fabric, stream(), tmp_path) == "mine"
    following = commit(fabric, "s", "mine", 8, Pin(1), Staged.of([]), reading(80, 90))
    assert following.after == 80
    assert commit_of(declared).shed == 30


@pytest.mark.nats
def test_files_that_were_read_are_in_the_root_log_over_many_lists(fabric):
    lists, last, everything = FileLists(fabric.fabric, "s"), None, []
    for number in range(2 * WHOLE_EVERY + 3):
        new = [FileEntry(f"file:///in/{number}-{each}\u2028.json", number, number) for each in range(2)]
        everything += new
        place = fabric.run(lists.append(last, {0: new}, lambda so_far=tuple(everything): {0: so_far}))
        fabric.publish(fabric.logs.files("s"), b"of a batch that was not committed")
        last = manifest(batch=number, files=place)
        fabric.run(lists.purge())
        assert fabric.run(lists.append(last, {0: []}, dict)) == place
    assert fabric.run(read_files(fabric.fabric, "s", last.files)) == {0: everything}
    left = fabric.run(fabric.fabric.subjects(fabric.logs.root("s"), ">"))
    assert left[fabric.logs.files("s")] < 3 * WHOLE_EVERY
    again = FileLists(fabric.fabric, "s")
    assert fabric.run(again.append(last, {0: everything[:1]}, dict)) > last.files


def test_a_rewritten_checkpoint_reads_as_it_was_written(tmp_path):
    checkpoint = SparkCheckpoint(tmp_path)
    entries = [FileEntry(f"file:///in/a b {number}.json", number, number // 2) for number in range(60)]
    for upto in (0, 8, 9, 10, 19, 29):
        wanted = [entry for entry in entries if entry.listing <= upto]
        checkpoint.rewrite(upto, (SourceRange(None, json.dumps({"logOffset": upto})),), {0: wanted})
        assert checkpoint.files(0, upto) == wanted
        assert checkpoint.last_listing(0) == upto
        assert checkpoint.ranges(upto)[0].after == json.dumps({"logOffset": upto})
        assert checkpoint.last_committed() == checkpoint.last_planned() == upto
    (tmp_path / "offsets" / "29").write_text("")
    assert checkpoint.offsets(29) is None
    (tmp_path / "sources" / "0" / "29.compact").write_text('v1\n{"path":"file:///in')
    assert checkpoint.files(0, 29) is None


def test_a_manifest_keeps_its_ranges():
    given = manifest(files=9, ranges=(SourceRange(None, '{"a": "Å"}'), SourceRange("5", "-")))
    found = decode_manifest(encode_manifest(given))
    assert (found.ranges, found.files) == (given.ranges, 9)
