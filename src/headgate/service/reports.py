"""What relays, jobs and the service last reported about themselves (`stats.<kind>.<name>`), read and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from headgate.fabric import Fabric
from headgate.relay.core import Key
from headgate.wire.frame import WireError
from headgate.wire.sealed import read_object
from headgate.wire.shapes import EACH, NUMBER, check_shape

_INTERVAL: Final = {"estimate": NUMBER, "low": NUMBER, "high": NUMBER}
_REORDERING: Final = {"time_s": NUMBER, "before": [str], "after": [str], "receivers": [int]}
_OUTPUT: Final = {
    "rows": int, "reduced": int, "bytes?": NUMBER, "coverage?": (int, None), "stalled?": bool, "came?": int,
    "level?": int, "reorderings?": [_REORDERING],
}  # fmt: skip

SHAPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "relay": {
        "time_ms": int, "link_bytes": {EACH: NUMBER}, "link_messages": {EACH: NUMBER}, "link_rows?": {EACH: NUMBER},
        "outputs": {EACH: _OUTPUT}, "sent_s?": {EACH: NUMBER}, "arrived_s?": {EACH: NUMBER}, "settled?": {EACH: [int]},
        "inbox_bytes?": NUMBER, "repairs?": int, "blocks?": int, "cpu_s?": NUMBER,
    },
    "job": {
        "state": str, "time_ms": int, "pid?": (int, None), "batch?": int, "batch_s?": NUMBER, "late_rows?": int,
        "error?": str,
    },
    "errors": {"false_negatives": _INTERVAL, "false_positives": _INTERVAL, "sampled_rows": int},
    "planner": {
        "joins?": [
            {"time_ms": int, "site": str, "stream": str, "from": str, "to": str, "rounds": int, "hop_s": NUMBER},
        ],
    },
    "tables": {
        "bytes": int, "limit_bytes": int, "versions": int, "oldest": (int, None), "newest": (int, None),
        "held_by": (str, None), "fix": (str, None), "purged": int, "full": bool,
    },
    "standing": {"time_ms": int, "outputs": [{"site": str, "output": str, "rows": int, "since_ms": int}]},
}  # fmt: skip
_PLAN: Final = {
    "fixed": bool, "quality": (int, float, None), "quality_reachable": NUMBER, "window_s": NUMBER, "moves": int,
    "state": str,
    "changes": int, "gain_per_move?": (int, float, None), "quality_anew?": (int, float, None), "streams": {EACH: {}},
    "sites": {EACH: {}}, "subscriptions": {EACH: {}},
}  # fmt: skip


def read_report(data: bytes, kind: str, name: str) -> dict[str, Any]:
    """Read one report; `WireError` where it is not what that kind reports."""
    document = read_object(data)
    check_shape(document, SHAPES.get(kind, {}))
    if (kind, name) == ("planner", "_"):
        check_shape(document, _PLAN)
    if kind == "relay":
        _check_relay(document)
    return document


def _check_relay(document: Mapping[str, Any]) -> None:
    """Links are named by stream and child, and each has its bytes and its messages; what is settled is a pair."""
    links = document["link_bytes"]
    if any(":" not in link for link in links) or links.keys() - document["link_messages"].keys():
        raise WireError("'link_bytes' and 'link_messages' do not name the same links")
    for token in document["outputs"]:
        try:
            Key.parse(token)
        except ValueError:
            raise WireError(f"'outputs' names {token!r:.40}, which is no output") from None
    if any(len(pair) != 2 for pair in document.get("settled", {}).values()):
        raise WireError("'settled' should have a row and a version for each stream")


def read_job(data: bytes) -> dict[str, Any]:
    """Read what the Spark job reported about itself as a whole."""
    return {"pid": None, **read_report(data, "job", "_")}


async def read_reports(fabric: Fabric, kind: str) -> dict[str, dict[str, Any]]:
    """What relays or jobs last reported, by name; one that cannot be read counts as none."""
    logs = fabric.logs
    found: dict[str, dict[str, Any]] = {}
    place = 0
    while batch := await fabric.read(logs.state, f"{logs.namespace}.stats.{kind}.*", place):
        place = batch[-1].sequence
        for stored in batch:
            name = stored.subject.rsplit(".", 1)[1]
            reader: Callable[[bytes], dict[str, Any]] = partial(read_report, kind=kind, name=name)
            report = fabric.quarantine.take(logs.state, stored, reader, "taken as no report")
            if report is not None:
                found[name] = report
    return found
