"""Every record comes back as it was written, and whatever is something else is refused by a `WireError`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest

from headgate.protocol.records import Pin, RangeRequest, Record
from headgate.protocol.reports import JobReport, OutputReport, RelayReport
from headgate.wire.frame import WireError
from headgate.wire.ledger import Tally
from headgate.wire.sealed import seal
from headgate.wire.sums import Matched

JUNK = [
    b"",
    b"garbage",
    b"\xff\xfe",
    b"7",
    b"[]",
    b"{}",
    b"null",
    b'"x"',
    b"1e400",
    b"[" * 200_000,
    b'{"kind": 1, "format": 2, "body": {}}',
    b'{"kind": "pin", "format": 2}',
    seal(b'{"kind": "nothing", "format": 2, "body": {}}'),
]


def forms(base: type[Record] = Record) -> Iterator[type[Record]]:
    for each in base.__subclasses__():
        if hasattr(each, "kind_name"):
            yield each
        yield from forms(each)


ALL = sorted(set(forms()), key=lambda each: each.__name__)


def test_every_kind_has_one_type() -> None:
    kinds = [each.kind_name for each in ALL if each.__module__.startswith("headgate.protocol")]
    assert len(kinds) == len(set(kinds)) > 15


@pytest.mark.parametrize("form", ALL, ids=lambda each: each.__name__)
@pytest.mark.parametrize("data", JUNK, ids=range(len(JUNK)))
def test_what_is_no_record_is_refused(form: type[Record], data: bytes) -> None:
    with pytest.raises(WireError, match=f"this is no {form.kind_name}"):
        form.decode(data)


def test_a_record_of_another_kind_or_another_format_is_refused() -> None:
    data = Pin(3, batch=2).encode()
    assert Pin.decode(data) == Pin(3, batch=2)
    with pytest.raises(WireError, match="it is a 'pin' of format 2"):
        RangeRequest.decode(data)
    body = data.partition(b" ")[2].replace(b'"format":2', b'"format":3')
    with pytest.raises(WireError, match="it is a 'pin' of format 3"):
        Pin.decode(seal(body))


def test_a_flipped_bit_is_found_wherever_it_is() -> None:
    output = OutputReport(rows=3, coverage=7, classes={"4": (3, 30, 0.5)})
    report = RelayReport(site="oslo", time_ms=1, settled={"fleet": (7, 2)}, outputs={"to~fleet~a": output})
    whole, rng = report.encode(), random.Random(5)
    assert RelayReport.decode(whole) == report
    for _ in range(200):
        bit = rng.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireError):
            RelayReport.decode(bytes(flipped))


@pytest.mark.parametrize(
    ("form", "changes"),
    [
        (Tally(1, delivered=3), {"delivered": -1}),
        (Tally(1), {"reduced": {"gt": -2}}),
        (Tally(1), {"since": {"delivered": "x"}}),
        (Tally(1), {"commit_delay": {"bins": {"x": 1}}}),
        (Matched("s"), {"starts": {"1": True}}),
        (Matched("s"), {"recent": [[1, 2]]}),
    ],
)
def test_counts_that_are_none_are_refused(form: Tally | Matched, changes: dict[str, object]) -> None:
    document = msgspec.json.decode(form.encode().partition(b" ")[2])
    document["body"] |= changes
    data = seal(msgspec.json.encode(document))
    with pytest.raises(WireError):
        Tally.decode(data) if isinstance(form, Tally) else Matched.decode(data, "s")


def test_a_report_says_only_what_is_known() -> None:
    said = msgspec.to_builtins(JobReport(state="ready", time_ms=5, late_rows=0))
    assert said == {"state": "ready", "time_ms": 5, "late_rows": 0}
    with pytest.raises(WireError, match="do not name the same links"):
        RelayReport.decode(
            RelayReport(site="a", time_ms=1).encode().replace(b'"link_bytes":{}', b'"link_bytes":{"x":1}')[12:]
        )
