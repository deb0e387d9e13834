"""What `headgate ledger` and `headgate status` find, from the document alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from headgate.protocol.reports import OutputReport, RelayReport
from headgate.service.findings import PATIENCE_MS, Finding, Kind, findings
from headgate.service.stalled_outputs import FRESH_MS, Standing

NOW = 1_000_000_000
LATE = NOW - PATIENCE_MS - 1
SOUND: dict[str, Any] = {
    "time_ms": NOW,
    "jobs": {"": {"state": "ready", "time_ms": NOW - 100, "pid": 7, "streams": ["fleet"]}},
    "streams": {
        "fleet": {
            "root": "oslo", "head": 40, "difference": 0, "job": {"state": "running", "time_ms": NOW - 9e6},
            "waiting": {"count": 0, "unit": "files", "oldest_s": 0.0, "read": 0, "end": 0}, "stopped": "", "lost": 0,
            "unpassed_ms": None,
        }
    },
    "sites": {"oslo": {"time_ms": NOW - 200}, "bergen": {"time_ms": NOW - 300}},
    "subscriptions": {
        "map": {
            "id": 1, "output": "sub~fleet~1~0", "stream": "fleet", "site": "bergen", "in_flight": 3, "oldest_ms": LATE,
            "difference": 0, "lost": 0, "detached_ms": None,
        }
    },
    "quarantine": {"count": 0, "messages": []},
    "standing": {},
}  # fmt: skip


def found(**changes: Any) -> list[Finding]:
    """The findings of the sound document with values at dotted places changed."""
    document = copy.deepcopy(SOUND)
    for place, value in changes.items():
        *path, last = place.split("__")
        target = document
        for name in path:
            target = target[name]
        target[last] = value
    return findings(document)


def standing(output: str, since_ms: int = LATE, time_ms: int = NOW) -> dict[str, Any]:
    return {"time_ms": time_ms, "outputs": [{"site": "oslo", "output": output, "rows": 5, "since_ms": since_ms}]}


def waiting(**values: Any) -> dict[str, Any]:
    return {"count": 0, "unit": "messages", "oldest_s": 0.0, "read": 0, "end": 0, **values}


def test_a_sound_deployment_with_a_reader_who_is_away_has_none() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"streams__fleet__difference": 2}, Kind.DIFFERENCE, "stream fleet: 2 rows in are neither"),
        ({"subscriptions__map__difference": -1}, Kind.DIFFERENCE, "subscription map: 1 rows too many"),
        (
            {"streams__fleet__job": {"state": "failed", "error": "no such directory", "time_ms": NOW}},
            Kind.FAILED,
            "stream fleet: failed and is tried again: no such directory",
        ),
        ({"streams__fleet__unpassed_ms": LATE}, Kind.STALLED, "has not passed them on"),
        (
            {"streams__fleet__unpassed_ms": LATE, "sites__oslo__time_ms": NOW - 60_000},
            Kind.STALLED,
            "the relay of 'oslo' has not reported for 60 s",
        ),
        ({"jobs____time_ms": LATE}, Kind.STALLED, "all streams: the Spark job has not reported for 30 s"),
        (
            {"jobs__night": {"state": "ready", "time_ms": LATE, "streams": ["feeds"]}},
            Kind.STALLED,
            "feeds: the Spark job night has not reported for 30 s",
        ),
        (
            {"streams__fleet__waiting": waiting(count=1200, oldest_s=90.0)},
            Kind.BEHIND,
            "is behind its source: 1,200 messages not read, the oldest for 90 s",
        ),
        ({"streams__fleet__waiting": waiting(read=500, end=20)}, Kind.INCARNATION, "up to message 500"),
        ({"incarnations": [{"subject": "stream fleet", "message": "another store"}]}, Kind.INCARNATION, "another"),
        ({"standing": standing("to~fleet~bergen")}, Kind.STANDING, "to bergen has not moved for 30 s while 5 rows"),
        ({"standing": standing("sub~fleet~1~0")}, Kind.STANDING, "the inbox of map has not moved"),
        ({"streams__fleet__stopped": "message 9 of log HG_ROOT_fleet"}, Kind.UNREADABLE, "stops at row 40: message 9"),
        ({"streams__fleet__lost": 12}, Kind.UNREADABLE, "the sums of rows up to 12 are lost"),
        ({"subscriptions__map__unread": "message 4 of log HG_STATE"}, Kind.UNREADABLE, "what it has acknowledged"),
        ({"subscriptions__map__lost": 4}, Kind.UNREADABLE, "acknowledgement 4 could not be read"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(changes: dict[str, Any], kind: Kind, said: str) -> None:
    wrong = [each for each in found(**changes) if each.wrong]
    assert [each.kind for each in wrong] == [kind]
    assert said in str(wrong[0])
    assert Finding.of(wrong[0].to_document()) == wrong[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"sites__bergen__time_ms": NOW - FRESH_MS - 1},
        {"sites__bergen__time_ms": None},
        {"sites__bergen__time_ms": NOW - 60_000, "standing": standing("to~fleet~bergen")},
    ],
)
def test_a_site_that_is_cut_off_is_a_note_with_its_age(changes: dict[str, Any]) -> None:
    (note,) = found(**changes)
    assert (note.kind, note.wrong, note.subject) == (Kind.CUT_OFF, False, "site bergen")
    assert "reported" in note.message


@pytest.mark.parametrize(
    "changes",
    [
        {"streams__fleet__unpassed_ms": NOW - PATIENCE_MS + 1},
        {"jobs____time_ms": NOW - PATIENCE_MS},
        {"streams__fleet__waiting": waiting(count=5, oldest_s=PATIENCE_MS / 1000)},
        {"standing": standing("sub~fleet~1~0", since_ms=NOW - PATIENCE_MS + 1)},
        {"standing": standing("sub~fleet~1~0", time_ms=LATE - 1)},
        {"standing": standing("sub~fleet~1~0"), "subscriptions__map__detached_ms": 5},
        {"sites__oslo__time_ms": LATE, "sites__bergen__time_ms": LATE, "jobs____time_ms": LATE},
    ],
    ids=["just committed", "just reported", "just arrived", "just stopped", "old report", "detached", "nothing runs"],
)
def test_what_is_normal_is_not_wrong(changes: dict[str, Any]) -> None:
    assert [each for each in found(**changes) if each.wrong] == []


def test_a_message_that_was_set_aside_is_a_note_that_names_it() -> None:
    message = {
        "log": "HG_STATE", "subject": "hg.stats.job._", "sequence": 17, "cause": "it is empty", "action": "passed over",
        "time_ms": NOW, "process": "service", "there": True,
    }  # fmt: skip
    (note,) = found(quarantine={"count": 1, "messages": [message]})
    assert not note.wrong
    assert str(note) == (
        "log HG_STATE: message 17 on hg.stats.job._ cannot be read: it is empty; passed over (met by service)"
    )


def test_an_output_stands_while_its_coverage_does_and_rows_wait() -> None:
    def relays(coverage: int, rows: int = 3, time_ms: int = 0) -> dict[str, RelayReport]:
        outputs = {"sub~fleet~1~0": OutputReport(rows=rows, coverage=coverage)}
        return {"oslo": RelayReport(site="oslo", time_ms=time_ms, outputs=outputs)}

    followed = Standing()
    assert followed.update(relays(7, time_ms=0), 0) == []
    assert followed.update(relays(7, time_ms=6000), 6000)[0].since_ms == 0
    assert followed.update(relays(8, time_ms=7000), 7000) == []
    assert followed.update(relays(8, rows=0, time_ms=13_000), 13_000) == []
    assert followed.update(relays(8, time_ms=14_000), 14_000) == []
    assert followed.update(relays(8, time_ms=14_000), 25_000) == [], "a relay that does not report is not judged"
