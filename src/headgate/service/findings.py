"""What is wrong with a deployment, as a list: computed from the status document by one function, and shown everywhere.

`headgate ledger` exits 1 when a finding is wrong; the others are notes. Each rule below looks at one thing. To find
more, write a rule and add it to `RULES`. What is read from logs is in the document; nothing is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from headgate.relay.core import Key
from headgate.service.stalled_outputs import FRESH_MS

PATIENCE_MS: Final = 30_000
"""What lasts shorter than this is normal: a micro-batch, a restart, a full queue that drains."""

Document = Mapping[str, Any]


class Kind(StrEnum):
    """What sort of thing was found."""

    DIFFERENCE = "difference"
    FAILED = "failed"
    STALLED = "stalled"
    BEHIND = "behind"
    INCARNATION = "incarnation"
    STANDING = "standing"
    UNREADABLE = "unreadable"
    SET_ASIDE = "set-aside"
    CUT_OFF = "cut-off"
    SUSPENDED = "suspended"
    SHARE = "share"


NOTES: Final = frozenset({Kind.SET_ASIDE, Kind.CUT_OFF, Kind.SUSPENDED, Kind.SHARE})
"""Kinds that lose nothing and so are no errors."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that somebody should know: what it is about, what is the matter, and what to do."""

    kind: Kind
    subject: str
    message: str
    hint: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the ledger cannot be trusted, or rows do not arrive, because of it."""
        return self.kind not in NOTES

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}" + (f" ({self.hint})" if self.hint else "")

    def to_document(self) -> dict[str, Any]:
        """JSON-ready."""
        found = {"kind": str(self.kind), "subject": self.subject, "message": self.message, "hint": self.hint}
        return {**found, "wrong": self.wrong}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Finding:
        """The inverse of `to_document`."""
        return cls(Kind(document["kind"]), document["subject"], document["message"], document["hint"])


def findings(document: Document) -> list[Finding]:
    """Everything that was found, what is wrong first."""
    found = [finding for rule in RULES for finding in rule(document)]
    return sorted(found, key=lambda each: not each.wrong)


def age(milliseconds: float) -> str:
    """A time span in words.

    >>> age(900), age(45_000), age(600_000), age(9e6), age(4e8)
    ('1 s', '45 s', '10 min', '2.5 h', '4.6 days')
    """
    seconds = milliseconds / 1000
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.1f} h" if name == "h" else f"{max(seconds / unit, 0):.0f} {name}"
    return f"{seconds / 86_400:.1f} days"


def _differences(document: Document) -> Iterator[Finding]:
    """Rows that are not accounted for."""
    for name, each in document["streams"].items():
        if each["difference"]:
            text = f"{each['difference']} rows in are neither evaluated, dead nor shed"
            yield Finding(Kind.DIFFERENCE, f"stream {name}", text)
    for name, each in document["subscriptions"].items():
        if each["difference"]:
            missing = "missing" if each["difference"] > 0 else "too many"
            yield Finding(Kind.DIFFERENCE, f"subscription {name}", f"{abs(each['difference'])} rows {missing}")


def _failed(document: Document) -> Iterator[Finding]:
    """Streams whose query ended with an error."""
    for name, each in document["streams"].items():
        if each["job"].get("state") == "failed":
            driver = each.get("driver")
            log = f"job-{driver}.log" if driver else "job.log"
            cause = each["job"].get("error") or f"the reason is in {log} in the state directory"
            yield Finding(Kind.FAILED, f"stream {name}", f"failed and is tried again: {cause}")


def _stalled(document: Document) -> Iterator[Finding]:
    """Streams whose rows are committed and go no further than the root."""
    now = document["time_ms"]
    for name, each in document["streams"].items():
        site = document["sites"].get(each["root"], {})
        reported = site.get("time_ms")
        since = each.get("unpassed_ms")
        if since is None or now - since < PATIENCE_MS:
            continue
        if reported is None or now - reported > FRESH_MS:
            if _running(document):
                silent = "has never reported" if reported is None else f"has not reported for {age(now - reported)}"
                text = f"rows wait at the root for {age(now - since)}, and the relay of {each['root']!r} {silent}"
                yield Finding(Kind.STALLED, f"stream {name}", text, f"start it: `headgate relay --site {each['root']}`")
            continue
        text = f"rows were committed {age(now - since)} ago, and the relay of {each['root']!r} has not passed them on"
        yield Finding(Kind.STALLED, f"stream {name}", text, "what it cannot read is named by `headgate unreadable`")


def _silent_job(document: Document) -> Iterator[Finding]:
    """A Spark job said that it was ready and says nothing any more, while the rest runs."""
    now = document["time_ms"]
    for name, job in document["jobs"].items():
        if job.get("state") == "ready" and _running(document) and now - job["time_ms"] > PATIENCE_MS:
            what, file = (f"the Spark job {name}", f"job-{name}.log") if name else ("the Spark job", "job.log")
            whose = ", ".join(job["streams"]) if len(document["jobs"]) > 1 else "all streams"
            text = f"{what} has not reported for {age(now - job['time_ms'])}"
            yield Finding(Kind.STALLED, whose, text, f"see {file} in the state directory; is `headgate up` running?")


def _unconnected(document: Document) -> Iterator[Finding]:
    """Streams whose broker cannot be reached, and messages of it that could not be stored as fast as they came."""
    for name, each in document["streams"].items():
        found = each.get("collector") or {}
        since = document["time_ms"] - found.get("since_ms", document["time_ms"])
        if found.get("state") == "not connected" and _running(document) and since > PATIENCE_MS:
            text = f"nothing has come from its source for {age(since)}: {found.get('error') or 'not connected yet'}"
            yield Finding(Kind.STALLED, f"stream {name}", text, "is the broker up, and is `source` right?")


def _behind(document: Document) -> Iterator[Finding]:
    """Streams that have not read what their source holds."""
    for name, each in document["streams"].items():
        found = each.get("waiting")
        if found and found["count"] and 1000 * found["oldest_s"] > PATIENCE_MS:
            count = f"{found['count']:,} {found['unit'] if found['count'] > 1 else found['unit'].removesuffix('s')}"
            text = f"is behind its source: {count} not read, the oldest for {age(1000 * found['oldest_s'])}"
            yield Finding(
                Kind.BEHIND, f"stream {name}", text, "start it with `headgate up`, or see why it does not read"
            )


def _incarnations(document: Document) -> Iterator[Finding]:
    """State that does not belong together.

    Whoever compares identities puts what does not fit into the document, as `incarnations`: a list of objects with
    `subject`, `message` and `hint`.
    """
    for name, each in document["streams"].items():
        found = each.get("waiting")
        if found and found["read"] > found["end"]:
            text = f"its checkpoint has read up to message {found['read']:,}, and its source ends at {found['end']:,}"
            hint = "the logs or the checkpoint are another deployment's: restore both from the same time"
            yield Finding(Kind.INCARNATION, f"stream {name}", text, hint)
    for each in document.get("incarnations", ()):
        yield Finding(Kind.INCARNATION, each["subject"], each["message"], each.get("hint", ""))


def _standing(document: Document) -> Iterator[Finding]:
    """Outputs that have not moved while rows wait in them. One to a site that is cut off is that site's matter."""
    report, now = document.get("standing") or {}, document["time_ms"]
    if not report or now - report["time_ms"] > PATIENCE_MS:
        return
    names = {each["output"]: name for name, each in document["subscriptions"].items() if each.get("output")}
    for each in report["outputs"]:
        if now - each["since_ms"] < PATIENCE_MS:
            continue
        child = Key.parse(each["output"]).child
        reader = names.get(each["output"])
        if child is not None and _cut(document, child):
            continue
        if reader is not None and document["subscriptions"][reader].get("detached_ms"):
            continue
        what = f"the link to {child}" if child else f"the inbox of {reader}" if reader else f"output {each['output']}"
        text = f"{what} has not moved for {age(now - each['since_ms'])} while {each['rows']:,} rows wait"
        hint = (
            "is its reader away? give it `expires`, or detach it" if child is None else f"is the relay of {child} up?"
        )
        yield Finding(Kind.STANDING, f"site {each['site']}", text, hint)


def _unreadable_terms(document: Document) -> Iterator[Finding]:
    """Terms of the ledger that cannot be read."""
    for name, each in document["streams"].items():
        if each.get("stopped"):
            yield Finding(
                Kind.UNREADABLE, f"stream {name}", f"its ledger stops at row {each['head']:,}: {each['stopped']}"
            )
        if each.get("lost"):
            text = f"the sums of rows up to {each['lost']:,} are lost, with the manifests that they were made from"
            yield Finding(Kind.UNREADABLE, f"stream {name}", text, "restore the NATS store from a backup")
    for name, each in document["subscriptions"].items():
        if each.get("unread"):
            yield Finding(
                Kind.UNREADABLE, f"subscription {name}", f"what it has acknowledged is not known: {each['unread']}"
            )
        elif each.get("lost"):
            text = f"acknowledgement {each['lost']} could not be read, so what was delivered before it is not counted"
            yield Finding(Kind.UNREADABLE, f"subscription {name}", text)


def _set_aside(document: Document) -> Iterator[Finding]:
    """Messages that could not be read and were gone on without."""
    for each in document.get("quarantine", {}).get("messages", ()):
        gone = "" if each["there"] else ", and it is gone from the log"
        text = (
            f"message {each['sequence']} on {each['subject']} cannot be read: {each['cause']}; {each['action']}{gone}"
        )
        yield Finding(Kind.SET_ASIDE, f"log {each['log']}", text, f"met by {each['process']}")


def _cut_off(document: Document) -> Iterator[Finding]:
    """Sites that have not reported of late, while others have: their last known terms count."""
    for name, each in document["sites"].items():
        if _running(document) and _cut(document, name):
            since = each["time_ms"]
            silent = (
                "has never reported" if since is None else f"has not reported for {age(document['time_ms'] - since)}"
            )
            yield Finding(Kind.CUT_OFF, f"site {name}", f"{silent}: what it last reported counts")


def _suspended(document: Document) -> Iterator[Finding]:
    """Subscriptions that take no rows any more, as their filters took too long."""
    for name, each in document["subscriptions"].items():
        if each.get("suspended"):
            left = f"; {each['unevaluated']:,} rows were not looked at before" if each.get("unevaluated") else ""
            yield Finding(Kind.SUSPENDED, f"subscription {name}", f"is suspended: {each['suspended']}{left}")


def _shares(document: Document) -> Iterator[Finding]:
    """Subscriptions that are looked at a part of the rows, as their owners take more than a share of the matching."""
    hint = "simplify its filter, end others, or ask an operator for a larger share (`matching_shares`)"
    for name, each in document["subscriptions"].items():
        if each.get("served") is not None:
            said = (
                f"gets what matches among {each['served']:.0%} of the rows: the stream is behind, and the filters of "
                "its owner take more than their share of the matching"
            )
            yield Finding(Kind.SHARE, f"subscription {name}", said, hint)


def _running(document: Document) -> bool:
    """Whether any relay has reported of late."""
    return not all(_cut(document, name) for name in document["sites"])


def _cut(document: Document, site: str) -> bool:
    """Whether a site has not reported of late."""
    reported = document["sites"].get(site, {}).get("time_ms")
    return reported is None or document["time_ms"] - reported > FRESH_MS


RULES: Final[tuple[Callable[[Document], Iterator[Finding]], ...]] = (
    _differences,
    _failed,
    _stalled,
    _silent_job,
    _unconnected,
    _behind,
    _incarnations,
    _standing,
    _unreadable_terms,
    _set_aside,
    _cut_off,
    _suspended,
    _shares,
)
