"""Everything that can be said about a deployment now, read from its logs: streams, sites, links, subscriptions."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

from headgate.fabric import Fabric
from headgate.matching.admission import tolerance_of
from headgate.model import Subscription
from headgate.relay.tables import Tables
from headgate.service.books import StreamBooks, read_books, read_tallies
from headgate.wire.ledger import Entry, Tally
from headgate.wire.logs import inbox_token
from headgate.wire.snapshot import Snapshot


async def read_reports(fabric: Fabric, kind: str) -> dict[str, dict[str, Any]]:
    """What relays or jobs last reported, by name."""
    logs = fabric.logs
    found: dict[str, dict[str, Any]] = {}
    place = 0
    while batch := await fabric.read(logs.state, f"{logs.namespace}.stats.{kind}.*", place):
        place = batch[-1].sequence
        for stored in batch:
            found[stored.subject.rsplit(".", 1)[1]] = json.loads(stored.data)
    return found


async def read_status(fabric: Fabric, tables: Tables) -> dict[str, Any]:
    """One JSON-ready document."""
    snapshot = await anext(tables.heads())
    books = await read_books(fabric, tables, list(snapshot.deployment.streams))
    relays, jobs = await read_reports(fabric, "relay"), await read_reports(fabric, "job")
    errors, planner = await read_reports(fabric, "errors"), await read_reports(fabric, "planner")
    tallies, versions = await read_tallies(fabric), await read_reports(fabric, "tables")
    streams = {book.stream: _stream(snapshot, book, jobs, relays) for book in books}
    for name, stream in streams.items():
        stream["errors"] = errors.get(name)
    return {
        "revision": snapshot.revision,
        "deployment": snapshot.identity.deployment,
        "time_ms": int(time.time() * 1000),
        "streams": streams,
        "sites": {name: _site(name, relays) for name in snapshot.deployment.sites},
        "links": _links(relays),
        "subscriptions": _subscriptions(snapshot, books, tallies, relays),
        "reorderings": _reorderings(snapshot, relays),
        "job": jobs.get("_", {}),
        "planner": planner.get("_", {}),
        "joins": planner.get("joins", {}).get("joins", []),
        "tables": versions.get("_", {}),
    }


def _stream(
    snapshot: Snapshot, book: StreamBooks, jobs: dict[str, dict[str, Any]], relays: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    document = book.to_document()
    del document["entries"]
    sent = relays.get(snapshot.deployment.streams[book.stream].root, {}).get("link_bytes", {})
    document["root_bytes"] = sum(size for link, size in sent.items() if link.rsplit(":", 1)[0] == book.stream)
    return {
        "root": snapshot.deployment.streams[book.stream].root,
        "incarnation": incarnation_document(snapshot, book.stream),
        **document,
        "job": jobs.get(book.stream, {}),
    }


def incarnation_document(snapshot: Snapshot, stream: str) -> dict[str, Any] | None:
    """Which incarnation a stream is in, and what was accepted as lost when it began."""
    found = snapshot.identity.incarnations.get(stream)
    return None if found is None else {"title": found.title, **asdict(found)}


def _site(name: str, relays: dict[str, dict[str, Any]]) -> dict[str, Any]:
    report = relays.get(name, {})
    return {
        "upload_bytes": sum(report.get("link_bytes", {}).values()),
        "download_bytes": sum(
            size
            for other in relays.values()
            for link, size in other.get("link_bytes", {}).items()
            if link.rsplit(":", 1)[1] == name
        ),
        "queued_rows": sum(output["rows"] for output in report.get("outputs", {}).values()),
        "level": max((output.get("level", 0) for output in report.get("outputs", {}).values()), default=0),
        "inbox_bytes": report.get("inbox_bytes", 0),
        "repairs": report.get("repairs", 0),
        "blocks": report.get("blocks", 0),
        "cpu_s": report.get("cpu_s", 0.0),
        "time_ms": report.get("time_ms"),
    }


def latencies(relays: dict[str, dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The latency of every link in use, by sender and receiver, from what its two ends measured, each by its clock."""
    return {
        (site, child): round(sent_s + relays[child]["arrived_s"][site], 6)
        for site, report in relays.items()
        for child, sent_s in report.get("sent_s", {}).items()
        if site in relays.get(child, {}).get("arrived_s", {})
    }


def _links(relays: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    latency_s = latencies(relays)
    for site, report in relays.items():
        for link, size in report.get("link_bytes", {}).items():
            stream, child = link.rsplit(":", 1)
            entry = found.setdefault(
                f"{site}->{child}",
                {
                    "bytes": 0,
                    "messages": 0,
                    "owed": 0,
                    "reduced": 0,
                    "streams": [],
                    "latency_s": latency_s.get((site, child)),
                },
            )
            output = report.get("outputs", {}).get(f"{stream}-to-{child}", {})
            entry["bytes"] += size
            entry["messages"] += report["link_messages"][link]
            entry["owed"] += output.get("came", 0)
            entry["reduced"] += output.get("reduced", 0)
            entry["streams"].append(stream)
    return found


def _subscriptions(
    snapshot: Snapshot,
    books: list[StreamBooks],
    tallies: dict[int, Tally],
    relays: dict[str, dict[str, Any]],
) -> dict[str, dict[str, Any]]:
    names = {identity: name for name, identity in snapshot.subscription_ids.items()}
    lines = {entry.subscription: entry for book in books for entry in book.entries}
    totals = {book.stream: book for book in books}
    found = {}
    for identity, name in names.items():
        subscription = snapshot.deployment.subscriptions[name]
        token = f"sub-{inbox_token(identity, subscription.stay)}"
        output = relays.get(subscription.site, {}).get("outputs", {}).get(token, {})
        found[name] = {
            "id": identity,
            "stream": subscription.stream,
            "site": subscription.site,
            **_line(lines.get(identity)),
            **_delays(tallies.get(identity)),
            **_whereabouts(subscription, tallies.get(identity)),
            "queued_rows": output.get("rows", 0),
            "level": output.get("level", 0),
            **_withheld(snapshot, subscription, totals[subscription.stream]),
        }
    for identity, entry in lines.items():
        if identity not in names:
            found[f"(ended {identity})"] = {"id": identity, "stream": entry.stream, "site": None, **_line(entry)}
    return found


def _withheld(snapshot: Snapshot, subscription: Subscription, book: StreamBooks) -> dict[str, Any]:
    """What a subscription tolerates, and the share of the stream's rows that was not matched for its group.

    Said where admission control has withheld rows from somebody.
    """
    if not book.withheld:
        return {}
    stream = snapshot.deployment.streams[book.stream]
    tolerance = tolerance_of(subscription.require, tolerance_of(stream.admission.require))
    rows = book.rows_in - book.dead
    return {"tolerates": tolerance, "withheld": round(book.withheld.get(f"{tolerance:g}", 0) / rows, 6)}


def _reorderings(snapshot: Snapshot, relays: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The log of `levels: auto` over all sites, oldest first: whose levels were put in another order, and why.

    `fractions` are what each level alone would drop, in the order in which the policy allows them.
    """
    names = {identity: name for name, identity in snapshot.subscription_ids.items()}
    found = [
        {
            **{key: value for key, value in change.items() if key != "receivers"},
            "site": site,
            "output": output,
            "subscriptions": [names.get(each, f"(ended {each})") for each in change["receivers"]],
        }
        for site, report in relays.items()
        for output, each in report.get("outputs", {}).items()
        for change in each.get("reorderings", ())
    ]
    return sorted(found, key=lambda each: each["time_s"])


def _line(entry: Entry | None) -> dict[str, Any]:
    if entry is None:
        return {
            "starts": None, "matched": 0, "delivered": 0, "reduced": 0, "expired": 0, "in_flight": 0, "difference": 0,
        }  # fmt: skip
    return {
        "starts": entry.starts,
        "matched": entry.matched,
        "delivered": entry.delivered,
        "reduced": sum(entry.reduced.values()),
        "reduced_by": dict(entry.reduced),
        "expired": entry.expired,
        "in_flight": entry.in_flight,
        "difference": entry.difference,
    }


def _whereabouts(subscription: Subscription, tally: Tally | None) -> dict[str, Any]:
    """Where the reader is in the subscription's stays, and whether it has said that it is away."""
    tally = tally or Tally(0)
    waiting = [stay.site for stay in subscription.left if stay.number >= tally.stay]
    return {
        "moves": subscription.stay,
        "reads_at": waiting[0] if waiting else subscription.site,
        "to_drain": waiting,
        "detached_ms": tally.detached_ms or None,
        "expires_s": tally.grace_s if tally.detached_ms and tally.grace_s is not None else subscription.expires_s,
    }


def _delays(tally: Tally | None) -> dict[str, Any]:
    if tally is None:
        return {"commit_delay_ms": None, "event_delay_ms": None}
    return {
        name: {
            "mean": histogram.mean(),
            "p50": histogram.quantile(0.5),
            "p99": histogram.quantile(0.99),
        }
        for name, histogram in (("commit_delay_ms", tally.commit_delay), ("event_delay_ms", tally.event_delay))
    }
