"""Links as they are: bytes and rows, latency, and the rates that are declared, measured, used and allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.model import Deployment
from headgate.protocol.reports import ArrivalReport, LinksReport, OutputReport, RelayReport
from headgate.relay.core import Key

Relays = Mapping[str, RelayReport]
_SILENT: Final = RelayReport(site="", time_ms=0)
_EMPTY: Final = OutputReport()
_UNSEEN: Final = ArrivalReport()
_MUCH: Final = 1.5
"""So many times a declared bandwidth may be off before it is spoken of."""


def latencies(relays: Relays) -> dict[tuple[str, str], float]:
    """The latency of every link in use, by sender and receiver, from what its two ends measured, each by its clock."""
    return {
        (site, child): round(sent_s + relays[child].arrived_s[site], 6)
        for site, report in relays.items()
        for child, sent_s in report.sent_s.items()
        if site in relays.get(child, _SILENT).arrived_s
    }


def full_links(relays: Relays) -> dict[tuple[str, str], float]:
    """By sender and receiver what links carried while rows waited, where that bounds what senders may send."""
    return {
        (site, child): relays[child].taken[site].rate_bytes_per_s
        for site, report in relays.items()
        for child in report.bounds
        if child in relays and site in relays[child].taken and relays[child].taken[site].busy
    }


def _rates(deployment: Deployment, relays: Relays, parent: str, child: str) -> dict[str, Any]:
    """What a link is declared to carry, what its receiver has seen that it carries, what came lately, what may be sent.

    `off` says how many times the declared bandwidth is too high or too low, where that was seen and is much.
    """
    sites = deployment.sites
    declared = [deployment.links.between(parent, child).capacity_bytes_per_s]
    declared += [sites[parent].upload_bytes_per_s] if parent in sites else []
    declared += [sites[child].download_bytes_per_s] if child in sites else []
    seen = relays.get(child, _SILENT).taken.get(parent, _UNSEEN)
    least = min((each for each in declared if each is not None), default=None)
    bound = relays.get(parent, _SILENT).bounds.get(child)
    budgets = [each for each in (bound if deployment.links.between(parent, child).follow else least, bound) if each]
    return {
        "declared_bytes_per_s": least,
        "measured_bytes_per_s": seen.rate_bytes_per_s or None,
        "measured_busy": seen.busy,
        "used_bytes_per_s": seen.used_bytes_per_s,
        "budget_bytes_per_s": min(budgets, default=least),
        "waits_s": seen.queue_s,
        "off": _off(least, seen),
    }


def _off(declared: float | None, seen: ArrivalReport) -> str | None:
    """In words how far a declared bandwidth is off; None where it is about right or nothing says otherwise."""
    if not declared or not seen.rate_bytes_per_s:
        return None
    times = seen.rate_bytes_per_s / declared
    if times > _MUCH:
        return f"declared {times:.1f} times too low"
    return f"declared {1 / times:.1f} times too high" if seen.busy and times < 1 / _MUCH else None


def _seen_by_kernel(
    deployment: Deployment, watched: Mapping[str, LinksReport], parent: str, child: str
) -> dict[str, Any]:
    """What the kernels of both ends know of a link: its round trip, what was sent again, how long it has been idle.

    `resent` is the share of the bytes of the last minute that its sender took for lost, `probes` how often it was asked
    for an answer as nothing came, `unanswered` how often it gave none. All is None where both ends are one server.
    """
    place = parent if parent in deployment.sites and deployment.sites[parent].is_host else ""
    up = watched[child].above.get(place) if child in watched else None
    down = watched[parent].below.get(up.address) if up is not None and parent in watched else None
    trips = [each.round_trip_s for each in (down, up) if each is not None and each.round_trip_s is not None]
    return {
        "round_trip_s": trips[0] if trips else None,
        "resent": None if down is None else down.resent,
        "idle_s": None if up is None else up.idle_s,
        "probes": None if up is None else up.probes,
        "unanswered": None if up is None else up.unanswered,
    }


def links_now(
    deployment: Deployment, relays: Relays, watched: Mapping[str, LinksReport] | None = None
) -> dict[str, dict[str, Any]]:
    """Every link that has carried anything: what it carried, what waits for it, and what is known of it."""
    found: dict[str, dict[str, Any]] = {}
    latency_s = latencies(relays)
    for site, report in relays.items():
        for link, size in report.link_bytes.items():
            stream, child = link.rsplit(":", 1)
            entry = found.setdefault(
                f"{site}->{child}",
                {
                    "bytes": 0,
                    "messages": 0,
                    "owed": 0,
                    "reduced": 0,
                    "queued_rows": 0,
                    "queued_bytes": 0,
                    "queued_s": 0.0,
                    "level": 0,
                    "streams": [],
                    "stream_bytes": {},
                    "latency_s": latency_s.get((site, child)),
                    **_rates(deployment, relays, site, child),
                    **_seen_by_kernel(deployment, watched or {}, site, child),
                },
            )
            output = report.outputs.get(Key(stream, child=child).token, _EMPTY)
            entry["bytes"] += size
            entry["messages"] += report.link_messages[link]
            entry["owed"] += output.came
            entry["reduced"] += output.reduced
            entry["queued_rows"] += output.rows
            entry["queued_bytes"] += output.bytes
            entry["queued_s"] = round(max(entry["queued_s"], output.age_s), 3)
            entry["level"] = max(entry["level"], output.level)
            entry["streams"].append(stream)
            entry["stream_bytes"][stream] = size
    return found
