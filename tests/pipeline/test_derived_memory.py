"""What derived columns remember, in a log: whoever reads it goes on as the one who wrote it."""

import datetime as dt

import pyarrow as pa
import pytest
from tests.deriving.test_derive import batch_of, stream

from headgate.deriving import derivation_of
from headgate.pipeline import derived_memory
from headgate.pipeline.derived_memory import DerivedMemory, MemoryGoneError
from headgate.pipeline.deriving import ORDER, MemoryHeads, derived_rows
from headgate.pipeline.sources.jsontext import RAW
from headgate.pipeline.validate import DEAD
from headgate.protocol.port import Stored
from headgate.wire.logs import Logs


class Log:
    """A log in memory, with small messages."""

    def __init__(self, max_payload=2000):
        self.logs, self.max_payload, self.messages = Logs(), max_payload, {}

    def get(self, log, sequence):
        data = self.messages.get(sequence)
        return None if data is None else Stored(sequence, "", data)

    def publish_all(self, subject, messages):
        assert subject == "hg.root.s.memory"
        first = len(self.messages) + 1
        self.messages |= dict(enumerate(messages, first))
        return list(range(first, first + len(messages)))


def marked(rows, first=0):
    batch = batch_of(rows)
    nothing = pa.nulls(len(rows), pa.string())
    order = pa.array(range(first, first + len(rows)), pa.int64())
    return batch.append_column(DEAD, nothing).append_column(RAW, nothing).append_column(ORDER, order)


def rows_of(number):
    return [(f"car{each % 7}", number + each % 3, float(each % 9), each, "xy"[each % 2]) for each in range(20)]


DERIVATION = derivation_of(stream())


def run(memory, heads, number, renew=frozenset()):
    batches = iter([marked(rows_of(number)[10:], 10), marked(rows_of(number)[:10])])
    out, told = derived_rows(memory, DERIVATION, MemoryHeads((heads,), renew), 0, batches)
    return pa.Table.from_batches(out), told[0]


def test_a_micro_batch_that_is_run_again_elsewhere_gives_the_same_rows(monkeypatch):
    monkeypatch.setattr(derived_memory, "WHOLE_EVERY", 5)
    log = Log()
    memory, heads, wholes = DerivedMemory(log, "s"), 0, set()
    for number in range(14):
        first, _ = run(DerivedMemory(log, "s"), heads, number)  # a process that ends before the commit
        stale, _ = run(memory, heads, number)  # a try of this process that was not the one committed
        again, told = run(memory, heads, number)
        assert first.equals(again)
        assert stale.equals(again)
        heads = told.log_sequence
        wholes.add(told.whole)
    assert 2 < len(wholes) < 14
    assert again.column("before").null_count == 0
    del log.messages[heads]
    with pytest.raises(MemoryGoneError, match=f"message {heads} of HG_ROOT_s is gone"):
        run(DerivedMemory(log, "s"), heads, 14)


def test_rows_come_in_the_order_of_their_times_and_dead_letters_have_no_derived_columns():
    rows = [("a", 5, 1.0, 1, "x"), ("a", 3, 2.0, 2, "x"), ("b", 4, 3.0, 3, "x")]
    batch = marked(rows)
    place = batch.schema.get_field_index(DEAD)
    batch = batch.set_column(place, DEAD, pa.array([None, None, "bad"]))
    out, told = derived_rows(DerivedMemory(Log(), "s"), DERIVATION, MemoryHeads((0,)), 0, iter([batch]))
    table = pa.Table.from_batches(out)
    assert table.column("before").to_pylist() == [None, None, 2.0]
    assert table.column("at").to_pylist()[1:] == [dt.datetime(2026, 1, 1, 0, 0, at, tzinfo=dt.UTC) for at in (3, 5)]
    assert ORDER not in table.schema.names
    assert (told[0].held_keys, told[0].held_rows) == (1, 2)


def test_a_partition_without_rows_writes_its_memory_anew_when_it_is_asked_to():
    log = Log()
    _, told = run(DerivedMemory(log, "s"), 0, 0)
    nothing = derived_rows(DerivedMemory(log, "s"), DERIVATION, MemoryHeads((told.log_sequence,)), 0, iter([]))
    assert nothing == ([], [])
    heads = MemoryHeads((told.log_sequence,), frozenset([0]))
    _, again = derived_rows(DerivedMemory(log, "s"), DERIVATION, heads, 0, iter([]))
    assert again[0].whole > told.log_sequence
    assert (again[0].held_keys, again[0].held_rows) == (told.held_keys, told.held_rows)
    assert run(DerivedMemory(log, "s"), again[0].log_sequence, 1)[0].equals(
        run(DerivedMemory(log, "s"), told.log_sequence, 1)[0]
    )


def test_other_columns_begin_with_nothing_remembered():
    log = Log()
    _, told = run(DerivedMemory(log, "s"), 0, 0)
    other = derivation_of(stream({"before": "previous(v)", "top": "max(v) over last 9 s"}))
    out, _ = derived_rows(
        DerivedMemory(log, "s"), other, MemoryHeads((told.log_sequence,)), 0, iter([marked(rows_of(1))])
    )
    assert pa.Table.from_batches(out).column("before").null_count == 7


def test_a_partition_remembers_its_share_of_the_keys():
    derivation = derivation_of(stream(keys=8))
    for partitions, keys in ((1, 7), (2, 4), (3, 3)):
        heads = MemoryHeads((0,) * partitions)
        _, told = derived_rows(DerivedMemory(Log(), "s"), derivation, heads, 0, iter([marked(rows_of(0))]))
        assert (told[0].held_keys, told[0].forgotten_keys) == (keys, 7 - keys)
