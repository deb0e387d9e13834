"""How the status of a deployment is shown: tables, and lines for what fits none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from headgate.cli.outboxes import outbox_tables
from headgate.cli.quantities import milliseconds, span, waterfall_line
from headgate.cli.sheets import Sheet
from headgate.service.findings import Finding, Kind, age
from headgate.wire.manifest import tolerances

_REORDERINGS: Final = 5
_JOINS: Final = 5
_NOTES: Final = 8


def print_alerts(console: Console, document: dict[str, Any]) -> None:
    """Print the alerts that hold."""
    for each in document.get("alerts", ()):
        if each["cleared_ms"] is None:
            since = age(document["time_ms"] - each["since_ms"])
            console.print(f"ALERT for {since}: {each['text']}", style="red", markup=False)


def print_findings(console: Console, document: dict[str, Any], *, most: int = _NOTES) -> list[Finding]:
    """Print what was found, what is wrong in red, and at most so many notes; returns what is wrong."""
    found = [Finding.of(each) for each in document["findings"]]
    wrong, notes = [each for each in found if each.wrong], [each for each in found if not each.wrong]
    for each in wrong:
        console.print(Text(str(each), style="bold red"), highlight=False)
    for each in notes[-most:]:
        console.print(str(each), markup=False, highlight=False)
    if len(notes) > most:
        console.print(f"and {len(notes) - most} notes more (--json has all)", highlight=False)
    return wrong


def service_line(document: dict[str, Any]) -> str:
    """Whether the deployment runs, and since when it does not."""
    service, revision = document["service"], f"revision {document['revision']}"
    if service["time_ms"] is None:
        return f"{revision}; whether it runs is not known"
    when = datetime.fromtimestamp(service["time_ms"] / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    ago = span((document["time_ms"] - service["time_ms"]) / 1000)
    if service["state"] == "stopped":
        return f"stopped at {when}, {ago} ago; {revision}"
    if service["state"] == "silent":
        return f"stopped without a word: last heard of at {when}, {ago} ago; {revision}"
    return f"running; {revision}"


def planner_line(found: dict[str, Any]) -> str:
    """What was attained by measured drop and delay, and what the planner's model makes of it, in a line."""
    fixed = ", fixed by the deployment file" if found["fixed"] else ""
    each = f" (+{found['gain_per_move']:.1%} each)" if found.get("gain_per_move") else ""
    anew = f" ({found['quality_anew']:.3f} by a plan from nothing)" if found.get("quality_anew") else ""
    aim = f" by `{found['objective']}`" if found.get("objective") else ""
    missed = "".join(f"\nplan: {text}" for text in found.get("constraints_missed", ()))
    return (
        f"plan: {_attained(found)}; with measured rates the model predicts {found['quality_predicted']:.3f}, "
        f"{found['quality_reachable']:.3f} with {found['moves']} moves{each}{anew}{aim}; {found['state']}{fixed}, "
        f"{found['changes']} changes so far (`headgate plan --live`){missed}"
    )


def _attained(found: dict[str, Any]) -> str:
    window = f"over {found['window_s']:.0f} s"
    if found["quality"] is None:
        return f"no quality measured {window}: no subscriber has settled a row"
    zeros = f", {found['quality_zeros']} at zero" if found["quality_zeros"] else ""
    missing = len(found["subscriptions"]) - found["quality_of"]
    silent = f", {missing} settled nothing" if missing else ""
    return f"quality {found['quality']:.3f} by drop and delay measured {window}{zeros}{silent}"


def tables_line(found: dict[str, Any]) -> str:
    """How full the log of the catalog's versions is, and what keeps the oldest one."""
    share = found["bytes"] / found["limit_bytes"]
    text = (
        f"tables: {found['bytes'] / 1e6:,.1f} MB, {share:.0%} of the log; versions {found['oldest']} to "
        f"{found['newest']}, {found['versions']:,} of them kept, {found['purged']:,} deleted since the start"
    )
    if found["held_by"]:
        text += f"; the oldest is held by {found['held_by']} ({found['fix']})"
    return text + ("; FULL: changes are refused" if found["full"] else "")


def notes(document: dict[str, Any]) -> list[str]:
    """What does not fit a table: stages of the job, standbys, joins, readers who are away or drain, `levels: auto`."""
    found = [line for name, each in document["streams"].items() if (line := waterfall_line(name, each["job"]))]
    for site, each in document.get("sites", {}).items():
        for stream, standby in each.get("standbys", {}).items():
            found.append(f"{site} gets {stream} from {standby} for now, as its parent is silent")
    for each in document.get("reorderings", [])[-_REORDERINGS:]:
        when = datetime.fromtimestamp(each["time_s"], tz=UTC).strftime("%H:%M:%S")
        whose = ", ".join(each["subscriptions"])
        before, after = " > ".join(each["before"]), " > ".join(each["after"])
        found.append(f"{when} {each['site']}: levels of {whose} were {before}, now {after}")
    for each in document.get("joins", [])[-_JOINS:]:
        when = datetime.fromtimestamp(each["time_ms"] / 1000, tz=UTC).strftime("%H:%M:%S")
        found.append(
            f"{when} {each['site']} joined {each['stream']} again: from {each['from']} to {each['to']} after "
            f"{each['rounds']} rounds, a hop of {1e3 * each['hop_s']:.0f} ms"
        )
    for name, each in document["subscriptions"].items():
        if each.get("paths"):
            found.append(paths_line(name, each["paths"]))
        if each.get("to_drain"):
            path = " then ".join([*each["to_drain"], each["site"]])
            found.append(f"{name} has moved to {each['site']}; its reader drains {path}")
        if each.get("detached_ms"):
            away_s = (document["time_ms"] - each["detached_ms"]) / 1000
            kept = "until it comes back" if each["expires_s"] is None else f"for {each['expires_s']:g} s"
            found.append(f"{name} has been detached for {away_s:,.0f} s; its rows are kept {kept}")
    return found


def seen_cells(link: dict[str, Any]) -> tuple[str, str]:
    """What the kernel knows of a link: its round trip, and the share that was sent again in the last minute."""
    trip_s, resent = link.get("round_trip_s"), link.get("resent")
    trip = "-" if trip_s is None else f"{trip_s * 1e3:,.1f} ms"
    if link.get("unanswered"):
        trip += f", {link['unanswered']} of {link['probes']} unanswered"
    return trip, "-" if resent is None else f"{resent:.2%}"


def paths_line(name: str, paths: dict[str, Any]) -> str:
    """The paths of a subscription that asks for two."""
    ways = " and ".join(" -> ".join(way) for way in paths["ways"]) or "no path"
    if len(paths["ways"]) < 2:
        return f"{name} has one path of two, {ways}: no site above its parent can serve it too"
    shared = f", which share {', '.join(paths['shared'])}" if paths["shared"] else ""
    state = "both in use" if paths["in_use"] > 1 else "the second is not in use now"
    return f"{name} has two paths, {ways}{shared}; {state}, {paths['second_bytes'] / 1e3:,.1f} kB by the second"


def loss_lines(document: dict[str, Any]) -> list[str]:
    """What was lost and accepted, for each stream that began anew because of it."""
    found = []
    for name, each in document["streams"].items():
        now = each.get("incarnation")
        if now and now["loss"]:
            when = datetime.fromtimestamp(now["time_ms"] / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
            found.append(f"stream {name}: {now['title']} since {when}, after an accepted loss: {now['loss']}")
    return found


def status_tables(document: dict[str, Any]) -> list[Sheet]:
    """The status as tables."""
    streams = Sheet("streams", "stream", "rows in", "dead", "shed", "evaluated", "head", "batch s", "state")
    for name, each in document["streams"].items():
        job = each["job"]
        streams.add_row(
            name, *(f"{each[key]:,}" for key in ("rows_in", "dead", "shed", "evaluated", "head")),
            f"{job.get('batch_s', 0):.2f}", each["state"],
        )  # fmt: skip
    links = Sheet(
        "links (rates in kB/s: declared, seen by the receiver, used lately, what may be sent; round trip; sent again)",
        "link", "kB", "messages", "rows owed", "given up", "declared", "measured", "used", "budget", "trip", "resent",
        "streams", "",
    )  # fmt: skip
    for name, each in document["links"].items():
        rates = (each.get(f"{key}_bytes_per_s") for key in ("declared", "measured", "used", "budget"))
        links.add_row(
            name, f"{each['bytes'] / 1e3:,.1f}",
            *(f"{each[key]:,}" for key in ("messages", "owed", "reduced")),
            *("-" if rate is None else f"{rate / 1e3:,.1f}" for rate in rates),
            *seen_cells(each), ", ".join(each["streams"]), each.get("off") or "",
        )  # fmt: skip
    sites = Sheet("sites", "site", "up kB", "down kB", "queued rows", "repairs")
    for name, each in document["sites"].items():
        up, down = each["upload_bytes"] / 1e3, each["download_bytes"] / 1e3
        sites.add_row(name, f"{up:,.1f}", f"{down:,.1f}", f"{each['queued_rows']:,}", str(each["repairs"]))
    groups = group_tables(document)
    more = [*member_tables(document), *queue_tables(document), *outbox_tables(document)]
    return [streams, *job_tables(document), sites, links, *groups, ledger_table(document, delays=True), *more]


def job_tables(document: dict[str, Any]) -> list[Sheet]:
    """The Spark jobs, where the deployment file spreads streams over several."""
    jobs = document.get("jobs", {})
    if set(jobs) <= {""}:
        return []
    table = Sheet("Spark jobs", "job", "streams", "state", "process", "heard s ago")
    for name, each in jobs.items():
        heard = f"{(document['time_ms'] - each['time_ms']) / 1000:,.0f}" if "time_ms" in each else "-"
        table.add_row(name or "(no name)", ", ".join(each["streams"]), each.get("state", "-"),
                      str(each.get("pid", "-")), heard)  # fmt: skip
    return [table]


def group_tables(document: dict[str, Any]) -> list[Sheet]:
    """Sums of the ledger by site and by class, where not all subscriptions are shown."""
    if document.get("next") is None:
        return []
    heads = ("subscriptions", "matched", "delivered", "reduced", "expired", "in_flight", "difference")
    found = document["groups"]
    sites = Sheet(f"all {document['subscription_count']:,} subscriptions by site", "site", *heads)
    for name, sums in found["sites"].items():
        sites.add_row(name, *(f"{sums[term]:,}" for term in heads))
    title = f"the {len(found['classes'])} of {found['class_count']:,} classes with most in flight"
    classes = Sheet(title, "stream", "site", "class", *heads)
    for each in found["classes"]:
        classes.add_row(each["stream"], each["site"], str(each["class"]), *(f"{each[term]:,}" for term in heads))
    return [sites, classes]


def more_lines(document: dict[str, Any]) -> list[str]:
    """How to see the subscriptions that are not shown."""
    if document.get("next") is None:
        return []
    shown, count = len(document["subscriptions"]), document["subscription_count"]
    return [f"{shown:,} of {count:,} subscriptions are shown; go on with --after {document['next']}"]


def _collected(stream: str, report: dict[str, Any]) -> str:
    """How collecting a stream's messages from its broker is going."""
    found = f"stream {stream}: {report['state']} to {report['place']}, {report.get('stored', 0):,} messages stored"
    if report.get("dropped"):
        found += f", {report['dropped']:,} dropped and declared"
    if report.get("breaks"):
        found += f", {report['breaks']:,} connections ended"
    return found + (f" ({report['error']})" if report.get("error") else "")


def _remembered(stream: str, derived: dict[str, Any]) -> str:
    """What the derived columns of a stream remember, and what they could not."""
    found = f"stream {stream}: derived columns remember {derived['rows']:,} rows of {derived['keys']:,} keys"
    if derived["forgotten_keys"]:
        found += f", {derived['forgotten_keys']:,} keys were forgotten (`derive_state: {{keys: ...}}`)"
    if derived["unknown_rows"]:
        found += f", {derived['unknown_rows']:,} rows came too late or after too many (`late`, `rows`)"
    return found


def queue_tables(document: dict[str, Any]) -> list[Sheet]:
    """What waits on the way to each subscription: the queues of all links on its path and of its inbox."""
    table = Sheet("waiting on the way", "subscription", "rows", "kB", "oldest s", "where")
    for name, each in document["subscriptions"].items():
        if each.get("queued_rows"):
            where = ", ".join(f"{place} {queue['rows']:,}" for place, queue in each["queues"].items())
            table.add_row(
                name, f"{each['queued_rows']:,}", f"{each['queued_bytes'] / 1e3:,.1f}", f"{each['queued_s']:.1f}", where
            )
    return [table] if table.row_count else []


def member_tables(document: dict[str, Any]) -> list[Sheet]:
    """The members of groups that are there now: what each holds, was dealt, and is done with."""
    table = Sheet("groups", "subscription", "member", "holds", "dealt", "done", "deal")
    for name, each in document["subscriptions"].items():
        for member, found in (each.get("group") or {"members": {}})["members"].items():
            counts = (f"{found[key]:,}" for key in ("held", "dealt", "done"))
            table.add_row(name, member, *counts, "stalled" if found["stalled"] else each["group"]["deal"])
    return [table] if table.row_count else []


def error_lines(document: dict[str, Any]) -> list[str]:
    """What never reached matching or was matched in part, for each stream where senders or admission gave it up."""
    found = []
    for name, each in document["streams"].items():
        errors = each.get("errors")
        if each.get("shed_updates"):
            found.append(f"stream {name}: {each['shed_updates']:,} new values of contexts shed")
        if unsent := each.get("unsent"):
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(unsent.items()))
            found.append(f"stream {name}: {sum(unsent.values()):,} rows given up by their senders ({reasons})")
        if each.get("partly_shed"):
            found.append(f"stream {name}: {each['partly_shed']:,} rows matched only for those who may miss less")
        if (groups := tolerances(each.get("withheld") or {})) and (set(groups) != {"1"} or each.get("partly_shed")):
            rows = each["rows_in"] - each["dead"]
            shares = (
                f"{groups[key] / rows:.1%} from those who tolerate {float(key):.0%}"
                for key in sorted(groups, key=float, reverse=True)
            )
            found.append(f"stream {name}: of {rows:,} rows withheld " + ", ".join(shares))
        for share in each["job"].get("shares", ()):
            if share["gets_us"] < share["needs_us"]:
                who = share["identity"] or "subscriptions without an owner"
                took = f"take {share['needs_us']:,.0f} us a row and get {share['gets_us']:,.0f}"
                found.append(f"stream {name} is behind: the filters of {who} {took}")
        if derived := each["job"].get("derived"):
            found.append(_remembered(name, derived))
        if collector := each.get("collector"):
            found.append(_collected(name, collector))
        if late := each["job"].get("late_rows"):
            found.append(f"stream {name}: {late:,} rows kept past the latency bound, as nobody tolerates to miss more")
        if errors:
            missed, wrong = (
                f"{errors[kind]['estimate']:,.0f} (95 %: {errors[kind]['low']:,.0f} to {errors[kind]['high']:,.0f})"
                for kind in ("false_negatives", "false_positives")
            )
            rows = errors["sampled_rows"]
            found.append(f"stream {name}: about {missed} matches missed and {wrong} wrong, by {rows:,} sampled rows")
    for name, each in document["subscriptions"].items():
        negatives, positives = ((each.get("errors") or {}).get(f"false_{kind}") for kind in ("negatives", "positives"))
        if negatives and positives and (negatives["high"] >= 1 or positives["high"] >= 1):
            missed, wrong = (
                f"{kind['estimate']:,.0f} (95 %: {kind['low']:,.0f} to {kind['high']:,.0f})"
                for kind in (negatives, positives)
            )
            found.append(f"subscription {name}: about {missed} matches missed and {wrong} wrong")
    return found


def ledger_table(document: dict[str, Any], *, delays: bool = False) -> Sheet:
    """The ledger, one line per subscription."""
    terms = ("matched", "delivered", "reduced", "expired", "in_flight", "difference")
    heads = ("matched", "deliv'd", "reduced", "expired", "flight", "diff")
    extra = ("level", "p50", "p99", "event") if delays else ("oldest", "from", "stream")
    title = "subscriptions (delays in ms: from the commit, and the median from the event)" if delays else "ledger"
    table = Sheet(title, "subscription", *heads, *extra)
    for name, each in document["subscriptions"].items():
        if delays:
            commit, event = each.get("commit_delay_ms") or {}, each.get("event_delay_ms") or {}
            more = [
                str(each.get("level", 0)),
                milliseconds(commit.get("p50")),
                milliseconds(commit.get("p99")),
                milliseconds(event.get("p50")),
            ]
        else:
            oldest = each.get("oldest_ms")
            waits = "-" if oldest is None else age(document["time_ms"] - oldest)
            more = [waits, "-" if each["starts"] is None else str(each["starts"]), each["stream"]]
        style = "bold red" if each["difference"] else None
        table.add_row(name, *(f"{each[term]:,}" for term in terms), *more, style=style)
    return table


def differences(document: dict[str, Any]) -> list[str]:
    """What does not add up, in words."""
    found = map(Finding.of, document["findings"])
    return [str(each) for each in found if each.kind is Kind.DIFFERENCE]
