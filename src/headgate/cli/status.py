"""`headgate status`, `headgate ledger`, `headgate dead`: what is going on, and whether everything is accounted for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from headgate.cli import options as o
from headgate.cli.machine import ask_machine, machine_error, machine_lines
from headgate.cli.quantities import milliseconds, span, waterfall_line
from headgate.cli.sheets import Sheet
from headgate.client.client import Client
from headgate.errors import HeadgateError, nearest
from headgate.fabric import FabricError
from headgate.service.findings import Finding, Kind, age
from headgate.service.pages import PAGE, Page
from headgate.wire.manifest import tolerances

_REORDERINGS: Final = 5
_JOINS: Final = 5
_NOTES: Final = 8
_STATUS_S: Final = 60.0
_LEDGER: Final = ("revision", "time_ms", "streams", "subscriptions", "subscription_count", "next", "groups", "findings")


_Only = Annotated[
    list[str] | None,
    typer.Option(
        help="Only subscriptions of this kind, as site=SITE, stream=STREAM, class=ID or name=NAME; repeatable."
    ),
]
_After = Annotated[str, typer.Option(help="Go on after this name, as the last page says.")]
_Limit = Annotated[int, typer.Option(min=1, help="Show at most so many subscriptions, and sums over all of them.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("status")(status)
    app.command("ledger")(ledger)
    app.command("dead")(dead)


@asynccontextmanager
async def reading(at: o.ConnectionOptions) -> AsyncIterator[Client]:
    """A client; when nothing runs in the state directory, its server is started for as long as the reading takes."""
    from headgate.fabric import EmbeddedServer
    from headgate.fabric.gated import GatedFabric
    from headgate.fabric.server import running_url
    from headgate.service.exclusive import exclusive

    state_dir = at.state_dir
    if at.nats is not None or running_url(state_dir) is not None:
        async with await at.connect() as client:
            if isinstance(client.fabric, GatedFabric):
                raise HeadgateError(
                    f"user {client.fabric.user!r} may not look at the whole deployment",
                    hint="`headgate mine` shows what is yours; an operator sees the rest",
                )
            yield client
        return
    if not (state_dir / "nats" / "data").exists():
        if (state_dir / "catalog.db").exists():
            raise HeadgateError(
                f"the NATS store of the deployment in {state_dir} is gone: there is a catalog and no {state_dir}/nats",
                hint="restore it; `headgate up` says what does not fit together, and what can be done",
            )
        raise HeadgateError(f"there is no deployment in {state_dir}", hint="give --state-dir or --nats")
    with exclusive(state_dir):
        server = EmbeddedServer(state_dir)
        await asyncio.to_thread(server.start)
        try:
            async with await Client.connect(server.url, namespace=at.namespace) as client:
                await _refuse_misfits(client, state_dir)
                yield client
        finally:
            await asyncio.to_thread(server.stop)


async def _refuse_misfits(client: Client, state_dir: Path) -> None:
    """Say what does not fit together in a deployment that is not running, before anything is read from it."""
    from headgate.catalog import Catalog
    from headgate.service.identity import IdentityError, misfits
    from headgate.service.survey import survey

    file = state_dir / "catalog.db"
    if file.exists():
        place = f"sqlite:///{file.absolute()}"
        with Catalog.open(place) as catalog:
            wrong = misfits(await survey(client.fabric, catalog, place, state_dir / "checkpoints"))
        if wrong:
            raise IdentityError(wrong)


async def read_document(at: o.ConnectionOptions, page: Page | None = None) -> dict[str, Any]:
    """The status of a deployment, running or not, with all of its subscriptions or those of a page."""
    from headgate.fabric.server import running_url
    from headgate.service.heartbeat import stream_state
    from headgate.service.status import read_status, with_machine

    answers = at.nats is not None or running_url(at.state_dir) is not None
    try:
        async with reading(at) as client, asyncio.timeout(_STATUS_S):
            await client.snapshot()
            document = await read_status(client.fabric, client.tables, at.state_dir if at.nats is None else None, page)
            # The log may have an old report: it cannot be written when the disk is full.
            machine = await ask_machine(client)
    except (FabricError, TimeoutError) as error:
        raise await machine_error(error, at) from error
    document = document if machine is None else with_machine(document, machine)
    if not answers and document["service"]["state"] == "running":
        # Its server had to be started for this reading: the service was killed a moment ago.
        document["service"]["state"] = "silent"
        for stream in document["streams"].values():
            stream["state"] = stream_state(document["service"], document["job"], stream["job"])
    return document


def status(
    as_json: o.AsJson = False,
    only: _Only = None,
    after: _After = "",
    limit: _Limit = PAGE,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Show streams, sites, links, and subscriptions with every term of the ledger and both delays; then what is wrong.

    Works also when nothing is running. Delays are from the root's commit (p50, p99) and from the event (p50), to the
    hand-over.
    """
    page = Page.read(o.key_values(only or []), after, limit)
    document = o.run(read_document(at, page))
    if as_json:
        typer.echo(json.dumps(document))
        return
    console = o.wide_console()
    console.print(service_line(document), markup=False, highlight=False)
    for table in status_tables(document):
        console.print(table)
    if document["planner"]:
        console.print(planner_line(document["planner"]), markup=False)
    if document.get("tables"):
        console.print(tables_line(document["tables"]), markup=False, highlight=False)
    for line in [*more_lines(document), *notes(document), *machine_lines(document["machine"])]:
        console.print(line, markup=False, highlight=False)
    for line in [*loss_lines(document), *error_lines(document)]:
        console.print(line, markup=False)
    print_findings(console, document)
    print_alerts(console, document)


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
        if each.get("to_drain"):
            path = " then ".join([*each["to_drain"], each["site"]])
            found.append(f"{name} has moved to {each['site']}; its reader drains {path}")
        if each.get("detached_ms"):
            away_s = (document["time_ms"] - each["detached_ms"]) / 1000
            kept = "until it comes back" if each["expires_s"] is None else f"for {each['expires_s']:g} s"
            found.append(f"{name} has been detached for {away_s:,.0f} s; its rows are kept {kept}")
    return found


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
        "links (rates in kB/s: declared, seen by the receiver, used lately, what may be sent)",
        "link", "kB", "messages", "rows owed", "given up", "declared", "measured", "used", "budget", "streams", "",
    )  # fmt: skip
    for name, each in document["links"].items():
        rates = (each.get(f"{key}_bytes_per_s") for key in ("declared", "measured", "used", "budget"))
        links.add_row(
            name, f"{each['bytes'] / 1e3:,.1f}",
            *(f"{each[key]:,}" for key in ("messages", "owed", "reduced")),
            *("-" if rate is None else f"{rate / 1e3:,.1f}" for rate in rates),
            ", ".join(each["streams"]), each.get("off") or "",
        )  # fmt: skip
    sites = Sheet("sites", "site", "up kB", "down kB", "queued rows", "repairs")
    for name, each in document["sites"].items():
        up, down = each["upload_bytes"] / 1e3, each["download_bytes"] / 1e3
        sites.add_row(name, f"{up:,.1f}", f"{down:,.1f}", f"{each['queued_rows']:,}", str(each["repairs"]))
    groups = group_tables(document)
    return [streams, sites, links, *groups, ledger_table(document, delays=True), *queue_tables(document)]


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


def ledger(
    as_json: o.AsJson = False,
    only: _Only = None,
    after: _After = "",
    limit: _Limit = PAGE,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Check that every row is accounted for; exit 1 when one is not, or when it cannot be said.

    A stream that failed, stands still or is behind its source, an output that does not move while rows wait, and a term
    that cannot be read are named. `oldest` is how long the oldest row in flight has been on its way.
    """
    page = Page.read(o.key_values(only or []), after, limit)
    document = o.run(read_document(at, page))
    wrong = [each for each in document["findings"] if each["wrong"]]
    if as_json:
        found = {key: document[key] for key in _LEDGER}
        typer.echo(json.dumps({**found, "wrong": [str(Finding.of(each)) for each in wrong]}))
    else:
        console = o.wide_console()
        for table in [*group_tables(document), ledger_table(document)]:
            console.print(table)
        for line in [*more_lines(document), *loss_lines(document), *error_lines(document)]:
            console.print(line, markup=False, highlight=False)
        print_findings(console, document)
        count = document["subscription_count"] if document["next"] else len(document["subscriptions"])
        state = "not 0" if differences(document) else "0"
        more = f", {len(wrong)} finding{'' if len(wrong) == 1 else 's'}" if wrong else ""
        console.print(f"{count} subscription{'' if count == 1 else 's'}, ledger difference {state}{more}")
    if wrong:
        raise typer.Exit(1)


def differences(document: dict[str, Any]) -> list[str]:
    """What does not add up, in words."""
    found = map(Finding.of, document["findings"])
    return [str(each) for each in found if each.kind is Kind.DIFFERENCE]


def dead(
    stream: Annotated[str, typer.Argument(help="The stream.")],
    count: Annotated[int, typer.Option("--count", "-n", help="At most so many, the newest.")] = 100,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Print a stream's dead letters with their reasons, as JSON lines."""
    from headgate.service.dead_letters import read_dead_letters

    async def work() -> list[str]:
        async with reading(at) as client:
            streams = (await client.snapshot()).deployment.streams
            if stream not in streams:
                close = nearest(stream, streams)
                hint = f"did you mean {close!r}?" if close else f"there are {', '.join(sorted(streams))}"
                raise HeadgateError(f"no stream {stream!r}", hint=hint)
            return await read_dead_letters(client.fabric, stream)

    for line in o.run(work())[-count:]:
        typer.echo(line)
