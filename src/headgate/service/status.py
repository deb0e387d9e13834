"""Everything that can be said about a deployment now, read from its logs: streams, sites, links, subscriptions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from headgate.fabric import Fabric, FabricError, read_quarantine
from headgate.matching.admission import tolerance_of
from headgate.model import Subscription
from headgate.model.second_path import second_path
from headgate.pipeline.errors import Errors
from headgate.protocol.reports import (
    AlertsReport,
    CollectorReport,
    GroupsReport,
    JobReport,
    JoinsReport,
    LinksReport,
    MachineReport,
    OutputReport,
    PlannerReport,
    RelayReport,
    Report,
    StandingReport,
    TablesReport,
    UpwardReport,
)
from headgate.relay.core import Key, inbox_key
from headgate.relay.tables import Tables
from headgate.service.books import StreamBooks, read_books, read_tallies
from headgate.service.findings import findings
from headgate.service.heartbeat import read_pulse, stream_state
from headgate.service.link_status import links_now
from headgate.service.outboxes import read_outboxes
from headgate.service.pages import Page, group_sums
from headgate.service.reports import read_reports, shown
from headgate.service.served_parts import read_parts
from headgate.service.source_backlog import waiting
from headgate.wire.ledger import Tally
from headgate.wire.logs import Log
from headgate.wire.manifest import of_class, tolerances
from headgate.wire.snapshot import Snapshot
from headgate.wire.sums import Entry

Relays = Mapping[str, RelayReport]
_SILENT: Final = RelayReport(site="", time_ms=0)
_EMPTY: Final = OutputReport()


async def read_status(
    fabric: Fabric, tables: Tables, state_dir: Path | None = None, page: Page | None = None
) -> dict[str, Any]:
    """One JSON-ready document. What waits in sources is in it where the checkpoints lie in this state directory.

    `page` says which subscriptions are in it; sums over all of them are in `groups`, and `next` is the name to go on
    after where there are more.
    """
    snapshot = await tables.newest()
    books = await read_books(fabric, tables, list(snapshot.deployment.streams))
    relays, tallies = await read_reports(fabric, RelayReport), await read_tallies(fabric)
    entries = {entry.subscription: entry for book in books for entry in book.entries}
    on_page, more = (page or Page(limit=len(snapshot.subscription_ids) or 1)).choose(snapshot)
    aside = await _set_aside(fabric)
    if more is not None:  # whatever is wrong is shown
        wrong = {identity for identity, entry in entries.items() if entry.difference}
        wrong |= _unread(fabric, aside, tallies, snapshot.subscription_ids.values()).keys()
        there = {*on_page}
        on_page += [
            name for name, identity in snapshot.subscription_ids.items() if identity in wrong and name not in there
        ]
    jobs = {name: shown(report) for name, report in (await read_reports(fabric, JobReport)).items()}
    drivers = await _drivers(fabric, snapshot, jobs)
    errors = await read_reports(fabric, Errors)
    service = await read_pulse(fabric, int(time.time() * 1000))
    streams = {book.stream: _stream(snapshot, book, jobs, relays) for book in books}
    upward = await read_reports(fabric, UpwardReport)
    collectors = await read_reports(fabric, CollectorReport)
    for name, stream in streams.items():
        stream["errors"] = errors[name].to_document() if name in errors else None
        found = await waiting(fabric, snapshot.deployment.streams[name], state_dir)
        stream["waiting"] = None if found is None else found.to_document()
        if snapshot.deployment.streams[name].source.published:
            stream["outboxes"] = await read_outboxes(fabric, name, upward)
        if snapshot.deployment.streams[name].source.collected:
            stream["collector"] = shown(collectors.get(name))
        stream["driver"] = snapshot.deployment.job_of(name)
        stream["state"] = stream_state(service, drivers.get(stream["driver"], {}), stream["job"])
    document = {
        "revision": snapshot.revision,
        "deployment": snapshot.identity.deployment,
        "time_ms": int(time.time() * 1000),
        "service": service,
        "streams": streams,
        "sites": {name: _site(name, relays, upward.get(name)) for name in snapshot.deployment.sites},
        "links": links_now(snapshot.deployment, relays, await read_reports(fabric, LinksReport)),
        "parts": await read_parts(fabric, snapshot),
        "subscriptions": _subscriptions(snapshot, books, tallies, relays, on_page, (jobs, errors)),
        "subscription_count": len(snapshot.subscription_ids),
        "next": more,
        "groups": group_sums(snapshot, entries),
        "reorderings": _reorderings(snapshot, relays),
        "job": jobs.get("_", {}),
        "jobs": drivers,
        "planner": await _service_report(fabric, PlannerReport),
        "joins": (await _service_report(fabric, JoinsReport)).get("joins", []),
        "tables": await _service_report(fabric, TablesReport),
        **_alerts(await _service_report(fabric, AlertsReport)),
        "standing": await _service_report(fabric, StandingReport),
        "quarantine": aside,
    }
    unread = _unread(fabric, aside, tallies, (each["id"] for each in document["subscriptions"].values()))
    members = (await _service_report(fabric, GroupsReport)).get("groups", {})
    for name, each in document["subscriptions"].items():
        if each["id"] in unread:
            each["unread"] = unread[each["id"]]
        known = snapshot.deployment.subscriptions.get(name)
        rule = None if known is None else known.group
        each["group"] = None if rule is None else {"deal": rule.deal, "members": members.get(name, {})}
    document = with_machine(document, await _service_report(fabric, MachineReport))
    return {**document, "findings": [each.to_document() for each in findings(document)]}


async def _drivers(fabric: Fabric, snapshot: Snapshot, jobs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What each Spark job last said of itself, by name, with its streams; the one without a name is first."""
    named = await read_reports(fabric, JobReport, "driver") if snapshot.deployment.jobs else {}
    found = {}
    for name in ("", *snapshot.deployment.jobs):
        streams = [each for each in snapshot.deployment.streams if snapshot.deployment.job_of(each) == name]
        if streams or name:
            found[name] = {**(shown(named.get(name)) if name else jobs.get("_", {})), "streams": streams}
    return found


def _alerts(report: dict[str, Any]) -> dict[str, Any]:
    return {"alerts": report.get("alerts", []), "hooks_failed": report.get("failures", {})}


async def _service_report(fabric: Fabric, form: type[Report]) -> dict[str, Any]:
    """A report of the service itself, nothing where there is none."""
    return shown((await read_reports(fabric, form)).get("_"))


async def _set_aside(fabric: Fabric) -> dict[str, Any]:
    """Messages that any process could not read, this one included, each once; and how many there were in all."""
    published = await read_quarantine(fabric)
    found = {each.key: {**asdict(each), "process": "this reading"} for each in fabric.quarantine.messages}
    for process, report in published.items():
        found |= {each.key: {**asdict(each), "process": process} for each in report.messages}
    count = max(sum(report.count for report in published.values()), len(found))
    messages = sorted(found.values(), key=lambda each: each["time_ms"])
    for each in messages:
        each["there"] = await _is_there(fabric, each["log"], each["sequence"])
    return {"count": count, "messages": messages}


async def _is_there(fabric: Fabric, log: str, sequence: int) -> bool:
    """Whether a message is still in its log: another may have replaced it, or somebody has taken it out."""
    try:
        return await fabric.get(Log(log, (), -1), sequence) is not None
    except FabricError:
        return False


def _unread(
    fabric: Fabric, aside: Mapping[str, Any], tallies: Mapping[int, Tally], identities: Iterable[int]
) -> dict[int, str]:
    """Subscriptions whose last acknowledgement cannot be read, each with what is wrong with it."""
    messages = {each["subject"]: each for each in aside["messages"]}
    if not messages:
        return {}
    found = {}
    for identity in identities:
        message = messages.get(fabric.logs.ack(identity)) if identity not in tallies else None
        if message is not None:
            place = f"message {message['sequence']} of log {message['log']}"
            found[identity] = f"{place} cannot be read: {message['cause']}"
    return found


def with_machine(document: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    """A status with what is known of the machine: streams do not run while the intake is paused."""
    document["machine"] = machine
    if machine.get("paused_ms"):
        for stream in document["streams"].values():
            stream["job"] = {**stream["job"], "state": "paused"}
    return document


def _stream(snapshot: Snapshot, book: StreamBooks, jobs: dict[str, dict[str, Any]], relays: Relays) -> dict[str, Any]:
    document = replace(book, entries=()).to_document()
    del document["entries"]
    document["unpassed_ms"] = _unpassed_ms(snapshot, book, relays)
    sent = relays.get(snapshot.deployment.streams[book.stream].root, _SILENT).link_bytes
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


def _unpassed_ms(snapshot: Snapshot, book: StreamBooks, relays: Relays) -> int | None:
    """When the oldest row was committed that somebody is owed and that the root has not passed on to anybody."""
    report = relays.get(snapshot.deployment.streams[book.stream].root, _SILENT)
    alive = {
        snapshot.subscription_ids[name]
        for name, each in snapshot.deployment.subscriptions.items()
        if each.stream == book.stream
    }
    settled = report.settled.get(book.stream, (0, 0))[0]
    reached = max(settled, report.passed.get(book.stream, 0))
    begins_ms = next((time_ms for upto, time_ms in book.ends if upto > reached), None)
    if begins_ms is None:
        return None
    owed = [entry.oldest_ms for entry in book.entries if entry.subscription in alive and entry.oldest_ms is not None]
    return min((oldest_ms for oldest_ms in owed if oldest_ms >= begins_ms), default=None)


def _site(name: str, relays: Relays, upward: UpwardReport | None) -> dict[str, Any]:
    report = relays.get(name, _SILENT)
    return {
        "upload_bytes": sum(report.link_bytes.values()) + (sum(upward.sent.values()) if upward else 0),
        "upward_bytes": dict(upward.sent) if upward else {},
        "outbox_bytes": upward.outbox_bytes if upward else 0,
        "download_bytes": sum(
            size
            for other in relays.values()
            for link, size in other.link_bytes.items()
            if link.rsplit(":", 1)[1] == name
        ),
        "queued_rows": sum(output.rows for output in report.outputs.values()),
        "level": max((output.level for output in report.outputs.values()), default=0),
        "inbox_bytes": report.inbox_bytes,
        "repairs": report.repairs,
        "standbys": report.standbys,
        "second_parents": report.seconds,
        "blocks": report.blocks,
        "cpu_s": report.cpu_s,
        "time_ms": report.time_ms if name in relays else None,
    }


def _subscriptions(
    snapshot: Snapshot,
    books: list[StreamBooks],
    tallies: dict[int, Tally],
    relays: Relays,
    names: Sequence[str],
    reports: tuple[Mapping[str, Mapping[str, Any]], Mapping[str, Errors]],
) -> dict[str, dict[str, Any]]:
    lines = {entry.subscription: entry for book in books for entry in book.entries}
    totals = {book.stream: book for book in books}
    jobs, errors = reports
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        subscription, identity = snapshot.deployment.subscriptions[name], snapshot.subscription_ids[name]
        token = inbox_key(subscription, identity).token
        output = relays.get(subscription.site, _SILENT).outputs.get(token, _EMPTY)
        found[name] = {
            "id": identity,
            "stream": subscription.stream,
            "site": subscription.site,
            **_line(lines.get(identity)),
            **_delays(tallies.get(identity)),
            **_whereabouts(subscription, tallies.get(identity)),
            **queued_for(snapshot, name, relays),
            "level": output.level,
            "output": token,
            "lost": tallies[identity].lost if identity in tallies else 0,
            **_paths(snapshot, subscription, relays),
            **_withheld(snapshot, subscription, totals[subscription.stream]),
            **_served(snapshot.class_ids[name], jobs.get(subscription.stream, {})),
        }
        found[name] |= _errors(found[name], totals[subscription.stream].head, snapshot.class_ids[name], errors)
    known = set(snapshot.subscription_ids.values())
    for identity, entry in lines.items():
        if identity not in known and (entry.difference or len(names) == len(known)):
            found[f"(ended {identity})"] = {"id": identity, "stream": entry.stream, "site": None, **_line(entry)}
    return found


def queued_for(snapshot: Snapshot, name: str, relays: Relays) -> dict[str, Any]:
    """What waits for a subscription on its way from the root: rows, bytes and the oldest waits of all queues together.

    `queues` has the parts. Where a link's queue holds too many classes to list them, the whole queue is counted.
    """
    subscription = snapshot.deployment.subscriptions[name]
    identity, class_id = snapshot.subscription_ids[name], str(snapshot.class_ids[name])
    tree = snapshot.plan.trees.get(subscription.stream) if snapshot.plan else None
    path = [subscription.site]
    while tree is not None and path[0] in tree.parents:
        path.insert(0, tree.parents[path[0]])
    queues = {}
    for site, child in pairwise(path):
        output = relays.get(site, _SILENT).outputs.get(Key(subscription.stream, child=child).token, _EMPTY)
        whole = (output.rows, output.bytes, output.age_s)
        rows, size, age_s = whole if output.classes is None else output.classes.get(class_id, (0, 0, 0.0))
        left = rows - output.not_for.get(str(identity), 0)
        if left > 0:
            queues[f"{site}->{child}"] = {"rows": left, "bytes": round(size * left / rows), "age_s": age_s}
    token = inbox_key(subscription, identity).token
    inbox = relays.get(subscription.site, _SILENT).outputs.get(token, _EMPTY)
    if inbox.rows:
        queues["inbox"] = {"rows": inbox.rows, "bytes": inbox.bytes, "age_s": inbox.age_s}
    sums = {key: sum(queue[key] for queue in queues.values()) for key in ("rows", "bytes", "age_s")}
    return {
        "queued_rows": sums["rows"],
        "queued_bytes": sums["bytes"],
        "queued_s": round(sums["age_s"], 3),
        "queues": queues,
    }


def _paths(snapshot: Snapshot, subscription: Subscription, relays: Relays) -> dict[str, Any]:
    """Of a subscription that asks for two paths: which it has, what they share, and what the second has carried."""
    if subscription.paths == 1:
        return {}
    stream, site = subscription.stream, subscription.site
    tree = snapshot.plan.trees.get(stream) if snapshot.plan else None
    path = None if tree is None else second_path(tree, site)
    if tree is None or path is None:
        ways = [list(tree.path(site))] if tree is not None and site in tree.members else []
        return {"paths": {"wanted": subscription.paths, "in_use": len(ways), "ways": ways, "shared": []}}
    sender, receiver = relays.get(path.parent, _SILENT), relays.get(site, _SILENT)
    return {
        "paths": {
            "wanted": subscription.paths,
            "in_use": 1 + (receiver.seconds.get(stream) == path.parent),
            "ways": [list(path.first), list(path.second)],
            "shared": list(path.shared),
            "second_bytes": sender.link_bytes.get(f"{stream}:{site}", 0),
        }
    }


def _withheld(snapshot: Snapshot, subscription: Subscription, book: StreamBooks) -> dict[str, Any]:
    """What a subscription tolerates, and the share of the stream's rows that was not matched for its group.

    Said where admission control has withheld rows from somebody. `unevaluated` are rows that were not looked at for its
    class, which takes too long, and `suspended` is why it takes none any more.
    """
    identity = subscription.suspended_class or snapshot.class_ids[subscription.name]
    unevaluated = book.withheld.get(of_class(identity), 0)
    found: dict[str, Any] = {"unevaluated": unevaluated} if unevaluated else {}
    if subscription.suspended:
        found["suspended"] = subscription.suspended
    if not tolerances(book.withheld):
        return found
    stream = snapshot.deployment.streams[book.stream]
    tolerance = tolerance_of(subscription.require, tolerance_of(stream.admission.require))
    rows = book.rows_in - book.dead
    return {**found, "tolerates": tolerance, "withheld": round(book.withheld.get(f"{tolerance:g}", 0) / rows, 6)}


def _errors(
    entry: Mapping[str, Any], head: int, class_id: int, errors: Mapping[str, Errors]
) -> dict[str, dict[str, Any]]:
    """Estimated false negatives and positives of a subscription, where anything was given up before matching.

    Rows that were not looked at for it are taken to match as often as those that were.
    """
    known = errors.get(entry["stream"])
    unlooked = entry.get("unevaluated", 0)
    if known is None and not unlooked:
        return {}
    looked = max(head - (entry["starts"] or 0) - unlooked, 0)
    share = min(entry["matched"] / looked, 1.0) if looked else 0.0
    variance = unlooked * share * (1 - share) * (1 + unlooked / looked) if looked else 0.0
    return {"errors": (known or Errors()).of_class(class_id, unlooked * share, variance)}


def _served(class_id: int, job: Mapping[str, Any]) -> dict[str, float]:
    """The part of the rows that a class is looked at, where its owner has used up its share of the matching."""
    part = job.get("served", {}).get(str(class_id))
    return {} if part is None else {"served": part}


def _reorderings(snapshot: Snapshot, relays: Relays) -> list[dict[str, Any]]:
    """The log of `levels: auto` over all sites, oldest first: whose levels were put in another order, and why.

    `fractions` are what each level alone would drop, in the order in which the policy allows them.
    """
    names = {identity: name for name, identity in snapshot.subscription_ids.items()}
    found = [
        {
            "time_s": change.time_s,
            "before": change.before,
            "after": change.after,
            "fractions": change.fractions,
            "site": site,
            "output": output,
            "subscriptions": [names.get(each, f"(ended {each})") for each in change.receivers],
        }
        for site, report in relays.items()
        for output, each in report.outputs.items()
        for change in each.reorderings
    ]
    return sorted(found, key=lambda each: each["time_s"])


def _line(entry: Entry | None) -> dict[str, Any]:
    if entry is None:
        return {
            "starts": None, "matched": 0, "delivered": 0, "reduced": 0, "expired": 0, "in_flight": 0, "difference": 0,
            "oldest_ms": None,
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
        "oldest_ms": entry.oldest_ms,
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
        return {"commit_delay_ms": None, "event_delay_ms": None, "jitter_ms": None}
    return {
        name: {
            "mean": histogram.mean(),
            "p50": histogram.quantile(0.5),
            "p99": histogram.quantile(0.99),
        }
        for name, histogram in (
            ("commit_delay_ms", tally.commit_delay),
            ("event_delay_ms", tally.event_delay),
            ("jitter_ms", tally.jitter),
        )
    }
