"""Every kind of message in a deployment's logs is known to `verify`, and a changed bit of one is named."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest

from headgate.protocol.records import Pin
from headgate.service.stored_messages import STORED_MESSAGES, check_message, message_kind
from headgate.wire.frame import WireError, encode_frame
from headgate.wire.ledger import Tally
from headgate.wire.logs import Log, Logs
from headgate.wire.packing import unpack_text
from headgate.wire.parcel import Parcel, ParcelItem
from headgate.wire.sums import MOST_SUMS, Matched

LOGS = Logs()
GIVEN: dict[str, object] = {"slot": 3, "subscription": 7, "stay": 2, "revision": 5, "number": 1, "kind": "relay"}
RESERVED = {"hg.context.>"}  # subjects that the state log takes and nothing is stored under


def of_logs() -> Iterator[tuple[str, object]]:
    """Everything that `Logs` can name, by the name of its method or property."""
    for name, member in inspect.getmembers(Logs):
        if name.startswith("_") or name in ("news", "is_hosted", "outbox_of", *Logs.__dataclass_fields__):
            continue
        if isinstance(member, property):
            yield name, getattr(LOGS, name)
        else:
            given = {each: GIVEN.get(each, "x") for each in list(inspect.signature(member).parameters)[1:]}
            yield name, member(LOGS, **given)


def fits(pattern: str, subject: str) -> bool:
    """Whether a subject is among those of a pattern, as NATS reads one."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^.]+").replace(">", ".+"), subject) is not None


def stored_subjects() -> dict[str, str]:
    """The subjects of `Logs` that messages are stored under, by who names them."""
    found = dict(of_logs())
    patterns = [each for log in found.values() if isinstance(log, Log) for each in log.subjects]
    whole = {name: each for name, each in found.items() if isinstance(each, str) and not each.endswith((".", ">"))}
    subjects = {name: each.replace("*", "x") for name, each in whole.items()}
    return {name: each for name, each in subjects.items() if any(fits(pattern, each) for pattern in patterns)}


def test_every_subject_of_the_logs_has_a_check() -> None:
    subjects = stored_subjects()
    assert {"part", "memory", "carried", "published_at", "link", "held", "delivery", "door", "stats"} <= subjects.keys()
    assert {name for name, subject in subjects.items() if message_kind(subject) is None} == set()
    # Each pattern of each log leads to a kind, and no kind is there for nothing.
    patterns = {each for log in dict(of_logs()).values() if isinstance(log, Log) for each in log.subjects}
    known = {kind: [each for each in subjects.values() if message_kind(each) is kind] for kind in STORED_MESSAGES}
    assert [kind.name for kind, found in known.items() if not found] == []
    for pattern in patterns - RESERVED:
        assert any(fits(pattern, each) for found in known.values() for each in found), pattern


def test_a_subject_that_nobody_has_thought_of_is_named() -> None:
    for subject in ("hg.root.s.more", "hg.site.x.other.y", "hg.fresh", "hg.in.s.carried.x", "hg.outbox.x.s.new"):
        with pytest.raises(WireError, match="no message of Headgate"):
            check_message(subject, b"HGS3f39b042 17")


def test_each_kind_fits_its_own_pattern_alone() -> None:
    for kind in STORED_MESSAGES:
        assert message_kind(f"hg.{kind.subject.replace('*', 'x')}") == kind


def frames() -> dict[str, bytes]:
    kinds = {"part": "p", "commit": "m", "dead": "x", "files": "f", "memory": "d", "context": "c"}
    found = {f"hg.root.s.{last}": encode_frame(kind, {"x": 1}, [b"rows"]) for last, kind in kinds.items()}
    parcel = Parcel("s", "leaf", 0, 2, [ParcelItem(2, "rows", "id", b'{"text": "a"}')])
    return {
        **found,
        LOGS.carried("s"): parcel.encode(),
        LOGS.link("x", "y", "s"): encode_frame("b", {"x": 1}),
        LOGS.ack(7): Tally(7, delivered=12).encode(),
        LOGS.pin("s"): Pin(version=3).encode(),
    }


@pytest.mark.parametrize("subject", sorted(frames()))
def test_a_flipped_bit_and_a_cut_are_found(subject: str) -> None:
    stored = frames()[subject]
    check_message(subject, stored)
    for place in range(len(stored)):
        for bit in range(8):
            with pytest.raises(WireError):
                check_message(subject, stored[:place] + bytes([stored[place] ^ 1 << bit]) + stored[place + 1 :])
        with pytest.raises(WireError):
            check_message(subject, stored[:place])


def test_large_sums_are_packed_and_read_so() -> None:
    sums = Matched("s", folded={number: number**3 for number in range(30_000)}).encode()
    assert sums.startswith(b"HGZ")
    check_message(LOGS.ledger("s"), sums)
    found = 0
    for place in [*range(12), *range(12, len(sums), 997)]:
        changed = sums[:place] + bytes([sums[place] ^ 4]) + sums[place + 1 :]
        try:
            check_message(LOGS.ledger("s"), changed)
        except WireError:
            found += 1
        else:  # a bit of zstd's own that means nothing
            assert unpack_text(changed, MOST_SUMS) == unpack_text(sums, MOST_SUMS)
    assert found > 100
