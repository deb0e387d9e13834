"""The contract of a log: what Headgate relies on in JetStream, written once for the real server and the simulated one.

    class TestSimulated(LogContract):
        @pytest.fixture
        def store(self) -> LogStore:
            return SimulatedStore(SimulatedServer())

`headgate_studies.testing.log_operations` compares two servers under random operations; here each rule has a name.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from headgate.fabric import FabricError, FencedError, LogFullError, NoLogError, TooLargeError
from headgate.virtual.logs import VirtualLogInfo
from headgate.virtual.messages import HEADERS_RECORD_BYTES, RECORD_BYTES, header_bytes
from headgate.wire.logs import Log
from headgate_studies.testing.log_stores import LogStore

_PLENTY = 1 << 20


def refused(kind: type[FabricError], call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """The call raises exactly this kind."""
    with pytest.raises(FabricError) as caught:
        call(*arguments, **options)
    assert type(caught.value) is kind, repr(caught.value)


def record_bytes(subject: str, payload: int, headers: int = 0) -> int:
    """What a message counts towards `max_bytes`."""
    return RECORD_BYTES + len(subject) + payload + (HEADERS_RECORD_BYTES + headers if headers else 0)


class LogContract:
    """What every server guarantees. A subclass gives the fixture `store`."""

    def make(self, store: LogStore, max_bytes: int = _PLENTY, **limits: Any) -> tuple[Log, str]:
        """A log of its own and the beginning of its subjects."""
        prefix = f"t{uuid.uuid4().hex[:8]}"
        log = Log(prefix.upper(), (f"{prefix}.>",), max_bytes, **limits)
        store.ensure(log)
        return log, prefix

    def sequences(self, store: LogStore, log: Log, pattern: str, after: int = 0, **options: int) -> list[int]:
        """The sequences of what a read returns."""
        return [found.sequence for found in store.read(log, pattern, after, **options)]

    def state(self, store: LogStore, log: Log) -> tuple[int, int, int]:
        """How many messages a log holds, the first and the last sequence."""
        info = store.info(log)
        assert info is not None
        return info.messages, info.first, info.last

    def test_a_fence_is_the_last_sequence_of_the_subject_alone(self, store: LogStore) -> None:
        """And a refused append takes no sequence."""
        log, name = self.make(store)
        assert store.publish(f"{name}.a", b"1", expect=0) == 1
        refused(FencedError, store.publish, f"{name}.a", b"zombie", expect=0)
        assert store.publish(f"{name}.b", b"2", expect=0) == 2
        refused(FencedError, store.publish, f"{name}.a", b"another subject's", expect=2)
        assert store.publish(f"{name}.a", b"3", expect=1) == 3
        assert self.sequences(store, log, f"{name}.>") == [1, 2, 3]

    def test_an_emptied_subject_expects_zero(self, store: LogStore) -> None:
        """Whether a purge or a removal emptied it; the log does not use numbers again."""
        log, name = self.make(store)
        for _ in range(3):
            store.publish(f"{name}.a", b"")
        store.purge(log, f"{name}.a", 100)
        assert self.state(store, log) == (0, 4, 3)
        assert store.last(log, f"{name}.a") is None
        refused(FencedError, store.publish, f"{name}.a", b"", expect=3)
        assert store.publish(f"{name}.a", b"", expect=0) == 4
        assert store.remove(log, 4)
        assert not store.remove(log, 4)
        refused(FencedError, store.publish, f"{name}.a", b"", expect=4)
        assert store.publish(f"{name}.a", b"", expect=0) == 5

    def test_a_partly_purged_subject_keeps_its_fence(self, store: LogStore) -> None:
        """Removing the last message brings the one before it back to be the last."""
        log, name = self.make(store)
        for _ in range(4):
            store.publish(f"{name}.a", b"")
        store.purge(log, f"{name}.a", 3)
        assert self.sequences(store, log, f"{name}.a") == [3, 4]
        store.remove(log, 4)
        refused(FencedError, store.publish, f"{name}.a", b"", expect=4)
        assert store.publish(f"{name}.a", b"", expect=3) == 5

    def test_a_replacement_obeys_its_fence_and_takes_the_rest_off(self, store: LogStore) -> None:
        """Only off its own subject."""
        log, name = self.make(store)
        for subject in ("a", "b", "a"):
            store.publish(f"{name}.{subject}", b"")
        refused(FencedError, store.publish, f"{name}.a", b"", expect=1, replace=True)
        assert self.sequences(store, log, f"{name}.>") == [1, 2, 3]
        assert store.publish(f"{name}.a", b"", expect=3, replace=True) == 4
        assert self.sequences(store, log, f"{name}.>") == [2, 4]
        refused(FencedError, store.publish, f"{name}.a", b"", expect=3)
        assert store.publish(f"{name}.c", b"", expect=0, replace=True) == 5

    def test_bytes_are_counted_with_subject_headers_and_record(self, store: LogStore) -> None:
        """At the limit a message fits, one byte further it does not."""
        log, name = self.make(store, max_bytes=1000)
        subject = f"{name}.a"
        fenced = record_bytes(subject, 100, header_bytes(0, False, None))
        store.publish(subject, b"x" * 100, expect=0)
        assert store.info(log) == VirtualLogInfo(1, fenced, 1, 1)
        room = 1000 - fenced - record_bytes(subject, 0)
        refused(LogFullError, store.publish, subject, b"x" * (room + 1))
        assert self.state(store, log) == (1, 1, 1)
        assert store.publish(subject, b"x" * room) == 2
        assert store.info(log) == VirtualLogInfo(2, 1000, 1, 2)
        refused(LogFullError, store.publish, f"{name}.b", b"")
        store.purge(log, subject, 2)
        assert store.publish(f"{name}.b", b"") == 3

    def test_a_full_subject_refuses_and_concerns_no_other(self, store: LogStore) -> None:
        """At the limit less one, at the limit and past it."""
        log, name = self.make(store, max_per_subject=3)
        for number in (1, 2, 3):
            assert store.publish(f"{name}.a", b"") == number
        refused(LogFullError, store.publish, f"{name}.a", b"")
        refused(LogFullError, store.publish, f"{name}.a", b"", expect=3)
        refused(FencedError, store.publish, f"{name}.a", b"", expect=2)
        assert store.publish(f"{name}.b", b"") == 4
        store.purge(log, f"{name}.a", 2)
        assert store.publish(f"{name}.a", b"") == 5

    def test_a_replacement_needs_room_but_no_free_place(self, store: LogStore) -> None:
        """Only on a full subject does one that is no larger than the oldest need no room."""
        log, name = self.make(store, max_bytes=400)
        store.publish(f"{name}.a", b"x" * 200)
        refused(LogFullError, store.publish, f"{name}.a", b"x" * 150, replace=True)
        log, name = self.make(store, max_bytes=400, max_per_subject=1)
        assert store.publish(f"{name}.a", b"x" * 200) == 1
        same = 200 - HEADERS_RECORD_BYTES - header_bytes(None, True, None)
        refused(LogFullError, store.publish, f"{name}.a", b"x" * (same + 1), replace=True)
        assert store.publish(f"{name}.a", b"x" * same, replace=True) == 2
        assert self.state(store, log) == (1, 2, 2)

    def test_the_latest_value_replaces_the_one_before(self, store: LogStore) -> None:
        """With one fence for all of them."""
        log, name = self.make(store, max_per_subject=1, latest_only=True)
        assert store.publish(f"{name}.a", b"1", expect=0) == 1
        assert store.publish(f"{name}.b", b"2") == 2
        assert store.publish(f"{name}.a", b"3", expect=1) == 3
        refused(FencedError, store.publish, f"{name}.a", b"zombie", expect=1)
        assert self.sequences(store, log, f"{name}.>") == [2, 3]
        assert {subject: found.data for subject, found in store.lasts(log, [f"{name}.a", f"{name}.c"]).items()} == {
            f"{name}.a": b"3"
        }  # fmt: skip

    def test_a_full_log_of_latest_values_refuses(self, store: LogStore) -> None:
        """No value is deleted for another one; a value that is no larger than the one before it has room."""
        log, name = self.make(store, max_bytes=400, max_per_subject=1, latest_only=True)
        for subject in ("a", "b"):
            store.publish(f"{name}.{subject}", b"x" * 100)
        refused(LogFullError, store.publish, f"{name}.c", b"x" * 100)
        refused(LogFullError, store.publish, f"{name}.a", b"x" * 300)
        assert store.publish(f"{name}.a", b"y" * 100) == 3
        assert self.sequences(store, log, f"{name}.>") == [2, 3]
        refused(LogFullError, store.publish, f"{name}.d", b"x" * 500)
        assert self.state(store, log) == (2, 2, 3)

    def test_a_message_that_is_sent_again_is_stored_once(self, store: LogStore) -> None:
        """Also when the first is purged; a wrong fence or another id is a message of its own."""
        log, name = self.make(store, id_window_s=3600.0)
        assert store.publish(f"{name}.a", b"", message_id="x") == 1
        assert store.publish(f"{name}.a", b"", message_id="x") == 1
        assert store.publish(f"{name}.b", b"", message_id="x") == 1
        refused(FencedError, store.publish, f"{name}.a", b"", expect=0, message_id="x")
        store.purge(log, f"{name}.a", 2)
        assert store.publish(f"{name}.a", b"", message_id="x") == 1
        assert store.publish(f"{name}.a", b"", message_id="y") == 2
        assert self.state(store, log) == (1, 2, 2)

    def test_a_refused_message_leaves_no_id(self, store: LogStore) -> None:
        """Sent again when there is room, it is stored."""
        log, name = self.make(store, max_per_subject=1, id_window_s=3600.0)
        store.publish(f"{name}.a", b"")
        refused(LogFullError, store.publish, f"{name}.a", b"", message_id="x")
        store.purge(log, f"{name}.a", 2)
        assert store.publish(f"{name}.a", b"", message_id="x") == 2

    def test_ids_are_forgotten_after_their_window(self, store: LogStore) -> None:
        """Then the message is stored again."""
        _, name = self.make(store, id_window_s=0.1)
        assert store.publish(f"{name}.a", b"", message_id="x") == 1
        store.pass_time(1.0)
        assert store.publish(f"{name}.a", b"", message_id="x") == 2

    def test_reads_are_in_order_and_end_at_their_limits(self, store: LogStore) -> None:
        """A read ends with the message that reaches `max_bytes`, so that there is always one."""
        log, name = self.make(store)
        for number in range(6):
            store.publish(f"{name}.{number % 2}", b"x" * 100)
        assert self.sequences(store, log, f"{name}.>") == [1, 2, 3, 4, 5, 6]
        assert self.sequences(store, log, f"{name}.0", after=1) == [3, 5]
        assert self.sequences(store, log, f"{name}.*", after=2, limit=2) == [3, 4]
        assert self.sequences(store, log, f"{name}.>", after=6) == []
        one = 100 + len(f"{name}.0")
        for most, count in ((1, 1), (one, 1), (one + 1, 2), (2 * one, 2), (2 * one + 1, 3)):
            assert len(store.read(log, f"{name}.>", 0, max_bytes=most)) == count

    def test_wildcards(self, store: LogStore) -> None:
        """`*` is one token, `>` one or more at the end."""
        log, name = self.make(store)
        for subject in ("a", "a.b", "a.b.c", "x.b"):
            store.publish(f"{name}.{subject}", b"")
        patterns = {">": [1, 2, 3, 4], "*": [1], "a": [1], "a.>": [2, 3], "a.*": [2], "*.b": [2, 4], "*.b.>": [3]}
        for pattern, found in patterns.items():
            assert self.sequences(store, log, f"{name}.{pattern}") == found, pattern
        assert store.subjects(log, f"{name}.*.b") == {f"{name}.a.b": 1, f"{name}.x.b": 1}
        assert store.names(f"{name}.a") == store.names(f"{name}.*") == [log.name]

    def test_a_pattern_takes_subjects_that_come_later(self, store: LogStore) -> None:
        """A reader need not ask anew."""
        log, name = self.make(store)
        for number in (1, 2, 3):
            store.publish(f"{name}.{number}", b"")
            assert self.sequences(store, log, f"{name}.*", after=number - 1) == [number]

    def test_a_purge_deletes_below_a_sequence_and_nothing_else(self, store: LogStore) -> None:
        """Nothing lies below 0 or 1."""
        log, name = self.make(store)
        for number in range(6):
            store.publish(f"{name}.{number % 2}", b"")
        for below in (0, 1):
            store.purge(log, f"{name}.0", below)
        assert self.state(store, log) == (6, 1, 6)
        store.purge(log, f"{name}.0", 5)
        assert self.sequences(store, log, f"{name}.>") == [2, 4, 5, 6]
        assert store.get(log, 3) is None
        store.purge(log, f"{name}.>", 5)
        assert self.state(store, log) == (2, 5, 6)
        store.purge(log, f"{name}.>", 1000)
        assert self.state(store, log) == (0, 7, 6)
        assert store.publish(f"{name}.0", b"") == 7

    def test_a_purge_of_everything_may_move_the_sequence_forward(self, store: LogStore) -> None:
        """Only the pattern `>` does that: the next message gets the sequence that it names."""
        log, name = self.make(store)
        store.publish(f"{name}.a", b"")
        store.purge(log, ">", 1000)
        assert self.state(store, log) == (0, 1000, 999)
        assert store.publish(f"{name}.a", b"", expect=0) == 1000

    def test_without_a_log_nothing_is_stored_or_read(self, store: LogStore) -> None:
        """A subject belongs to one log at most."""
        log, name = self.make(store)
        refused(FabricError, store.ensure, Log(f"{log.name}_2", (f"{name}.a",), _PLENTY))
        store.delete(log)
        refused(NoLogError, store.publish, f"{name}.a", b"")
        refused(NoLogError, store.read, log, f"{name}.a", 0)
        refused(NoLogError, store.last, log, f"{name}.a")
        refused(NoLogError, store.purge, log, f"{name}.a", 5)
        refused(NoLogError, store.delete, log)
        assert store.info(log) is None
        assert store.subjects(log, f"{name}.a") == {}
        store.ensure(log)
        assert store.publish(f"{name}.a", b"", expect=0) == 1

    def test_a_message_is_as_large_as_the_server_takes_with_its_headers(self, store: LogStore) -> None:
        """One that is larger is refused, and harms no other."""
        _, name = self.make(store, max_bytes=1 << 30)
        most = store.max_payload
        assert store.publish(f"{name}.a", b"x" * most) == 1
        refused(TooLargeError, store.publish, f"{name}.a", b"x" * (most + 1))
        headers = header_bytes(1, False, None)
        refused(TooLargeError, store.publish, f"{name}.a", b"x" * (most - headers + 1), expect=1)
        assert store.publish(f"{name}.a", b"x" * (most - headers), expect=1) == 2

    def test_other_limits_keep_what_fits_them(self, store: LogStore) -> None:
        """Fewer messages per subject delete the oldest; fewer bytes delete nothing."""
        log, name = self.make(store)
        for number in range(4):
            store.publish(f"{name}.{number % 2}", b"x" * 100)
        store.ensure(Log(log.name, log.subjects, 300))
        assert self.state(store, log) == (4, 1, 4)
        refused(LogFullError, store.publish, f"{name}.a", b"")
        store.ensure(Log(log.name, log.subjects, _PLENTY, max_per_subject=1))
        assert self.sequences(store, log, f"{name}.>") == [3, 4]

    def test_a_restart_keeps_everything_and_the_ids_of_what_is_stored(self, store: LogStore) -> None:
        """The id of a purged message is forgotten."""
        log, name = self.make(store, id_window_s=3600.0)
        for subject in ("a", "b"):
            store.publish(f"{name}.{subject}", b"", message_id=subject)
        store.purge(log, f"{name}.a", 2)
        assert store.publish(f"{name}.a", b"", message_id="a") == 1
        store.restart()
        assert self.state(store, log) == (1, 2, 2)
        assert store.publish(f"{name}.b", b"", message_id="b") == 2
        assert store.publish(f"{name}.a", b"", message_id="a", expect=0) == 3

    def test_sequences_of_a_lost_tail_are_given_again(self, store: LogStore) -> None:
        """After a power failure before the end of the log was synced: fences go back, ids are forgotten."""
        log, name = self.make(store, id_window_s=3600.0)
        for number in range(6):
            store.publish(f"{name}.{number % 2}", b"%d" % number, message_id=str(number))
        store.lose_tail(log, 3)
        assert self.sequences(store, log, f"{name}.>") == [1, 2, 3]
        refused(FencedError, store.publish, f"{name}.1", b"", expect=6)
        assert store.publish(f"{name}.1", b"", expect=2) == 4
        assert store.publish(f"{name}.1", b"5", message_id="5") == 5
        assert store.publish(f"{name}.1", b"1", message_id="1") == 2

    def test_a_lost_tail_may_leave_its_sequences_behind(self, store: LogStore) -> None:
        """When the server's index was written and the messages were not; fences go back all the same."""
        log, name = self.make(store)
        for number in range(6):
            store.publish(f"{name}.{number % 2}", b"%d" % number)
        store.lose_tail(log, 3, numbers_survive=True)
        assert self.state(store, log) == (3, 1, 6)
        refused(FencedError, store.publish, f"{name}.1", b"", expect=6)
        assert store.publish(f"{name}.1", b"", expect=2) == 7
        assert self.sequences(store, log, f"{name}.>") == [1, 2, 3, 7]

    def test_a_rotten_message_is_left_out_without_a_word(self, store: LogStore) -> None:
        """It is counted, and no purge takes it off."""
        log, name = self.make(store)
        for number in range(6):
            store.publish(f"{name}.{number % 2}", b"message")
        assert store.rot(log, 3)
        assert self.sequences(store, log, f"{name}.>") == [1, 2, 4, 5, 6]
        assert store.get(log, 3) is None
        assert self.state(store, log) == (6, 1, 6)
        store.purge(log, f"{name}.0", 6)
        assert store.subjects(log, f"{name}.*") == {f"{name}.0": 1, f"{name}.1": 3}
        assert self.state(store, log) == (4, 2, 6)
        store.restart()
        assert self.sequences(store, log, f"{name}.>") == [2, 4, 6]

    def test_a_subject_whose_last_message_is_rotten_seems_empty(self, store: LogStore) -> None:
        """To a fence too."""
        log, name = self.make(store)
        for _ in range(3):
            store.publish(f"{name}.a", b"message")
        assert store.rot(log, 3)
        assert store.last(log, f"{name}.a") is None
        assert store.lasts(log, [f"{name}.a"]) == {}
        for expect in (2, 3):
            refused(FencedError, store.publish, f"{name}.a", b"", expect=expect)
        assert store.publish(f"{name}.a", b"", expect=0) == 4
        assert self.sequences(store, log, f"{name}.a") == [1, 2, 4]

    def test_a_replacement_of_a_rotten_message_is_acknowledged_and_deleted(self, store: LogStore) -> None:
        """The server keeps as many messages as it should, and the rotten one is one of them."""
        log, name = self.make(store)
        for _ in range(2):
            store.publish(f"{name}.a", b"message")
        assert store.rot(log, 2)
        assert store.publish(f"{name}.a", b"", replace=True) == 3
        assert self.sequences(store, log, f"{name}.a") == []
        assert self.state(store, log) == (1, 2, 3)

    def test_a_value_after_a_rotten_one_is_stored_without_an_answer(self, store: LogStore) -> None:
        """And is gone after the next start."""
        log, name = self.make(store, max_per_subject=1, latest_only=True)
        store.publish(f"{name}.a", b"message")
        assert store.rot(log, 1)
        patience_s, store.timeout_s = store.timeout_s, 1.0
        refused(FabricError, store.publish, f"{name}.a", b"new")
        store.timeout_s = patience_s
        assert self.sequences(store, log, f"{name}.a") == [2]
        store.restart()
        assert store.last(log, f"{name}.a") is None
        assert self.state(store, log) == (1, 1, 2)

    def test_a_power_failure_loses_everything_from_a_rotten_message_on(self, store: LogStore) -> None:
        """Without its index the server reads a file up to the first record that is wrong."""
        log, name = self.make(store)
        for _ in range(6):
            store.publish(f"{name}.a", b"message")
        assert store.rot(log, 3)
        store.publish(f"{name}.a", b"message")
        store.lose_tail(log, 1)
        assert self.sequences(store, log, f"{name}.a") == [1, 2]
        assert store.publish(f"{name}.a", b"", expect=2) == 3
