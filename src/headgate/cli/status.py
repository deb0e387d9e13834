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
from rich.table import Table

from headgate.cli import options as o
from headgate.cli.words import milliseconds
from headgate.client.client import Client
from headgate.errors import HeadgateError, nearest

_REORDERINGS: Final = 5
_JOINS: Final = 5


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("status")(status)
    app.command("ledger")(ledger)
    app.command("dead")(dead)


@asynccontextmanager
async def _reading(nats: str | None, state_dir: Path, namespace: str, creds: Path | None) -> AsyncIterator[Client]:
    """A client; when nothing runs in the state directory, its server is started for as long as the reading takes."""
    from headgate.fabric import EmbeddedServer
    from headgate.fabric.server import running_url
    from headgate.service.runtime import exclusive

    if nats is not None or running_url(state_dir) is not None:
        async with await o.connect(nats, state_dir, namespace, creds) as client:
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
            async with await Client.connect(server.url, namespace=namespace) as client:
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


async def read_document(nats: str | None, state_dir: Path, namespace: str, creds: Path | None) -> dict[str, Any]:
    """The status of a deployment, running or not."""
    from headgate.service.status import read_status

    async with _reading(nats, state_dir, namespace, creds) as client:
        await client.snapshot()
        return await read_status(client.fabric, client.tables)


def status(
    as_json: o.AsJson = False,
    state_dir: o.StateDir = o.STATE_DIR,
    nats: o.Nats = None,
    namespace: o.Namespace = "hg",
    creds: o.Credentials = None,
) -> None:
    """Show streams, sites, links, and subscriptions with every term of the ledger and both delays.

    Works also when nothing is running. Delays are from the root's commit (p50, p99) and from the event (p50), to the
    hand-over.
    """
    document = o.run(read_document(nats, state_dir, namespace, creds))
    if as_json:
        typer.echo(json.dumps(document))
        return
    console = o.wide_console()
    for table in status_tables(document):
        console.print(table)
    if document["planner"]:
        console.print(planner_line(document["planner"]), markup=False)
    if document.get("tables"):
        console.print(tables_line(document["tables"]), markup=False, highlight=False)
    for line in notes(document):
        console.print(line, markup=False, highlight=False)
    for line in [*loss_lines(document), *error_lines(document)]:
        console.print(line, markup=False)
    for name, each in document["streams"].items():
        if each["job"].get("state") == "failed":
            console.print(f"stream {name} failed and is tried again: {each['job'].get('error')}", markup=False)


def planner_line(found: dict[str, Any]) -> str:
    """The planner's last judgement in a line."""
    fixed = ", fixed by the deployment file" if found["fixed"] else ""
    each = f" (+{found['gain_per_move']:.1%} each)" if found.get("gain_per_move") else ""
    anew = f" ({found['quality_anew']:.3f} by a plan from nothing)" if found.get("quality_anew") else ""
    return (
        f"plan: quality {found['quality']:.3f} by what was measured over {found['window_s']:.0f} s, "
        f"{found['quality_reachable']:.3f} reachable with {found['moves']} moves{each}{anew}; {found['state']}{fixed}, "
        f"{found['changes']} changes so far (`headgate plan --live`)"
    )


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
    """What does not fit a table: joins, readers who are away or still drain a site they have left, `levels: auto`."""
    found = []
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


def status_tables(document: dict[str, Any]) -> list[Table]:
    """The status as tables."""
    streams = _table("streams", "stream", "rows in", "dead", "shed", "evaluated", "head", "batch s", "state")
    for name, each in document["streams"].items():
        job = each["job"]
        streams.add_row(
            name, *(f"{each[key]:,}" for key in ("rows_in", "dead", "shed", "evaluated", "head")),
            f"{job.get('batch_s', 0):.2f}", job.get("state", document["job"].get("state", "-")),
        )  # fmt: skip
    links = _table("links", "link", "kB", "messages", "rows owed", "given up", "streams")
    for name, each in document["links"].items():
        links.add_row(
            name, f"{each['bytes'] / 1e3:,.1f}",
            *(f"{each[key]:,}" for key in ("messages", "owed", "reduced")), ", ".join(each["streams"]),
        )  # fmt: skip
    sites = _table("sites", "site", "up kB", "down kB", "queued rows", "repairs")
    for name, each in document["sites"].items():
        up, down = each["upload_bytes"] / 1e3, each["download_bytes"] / 1e3
        sites.add_row(name, f"{up:,.1f}", f"{down:,.1f}", f"{each['queued_rows']:,}", str(each["repairs"]))
    return [streams, sites, links, ledger_table(document, delays=True)]


def error_lines(document: dict[str, Any]) -> list[str]:
    """What admission control has cost in matches, for each stream where it has given something up."""
    found = []
    for name, each in document["streams"].items():
        errors = each.get("errors")
        if each.get("shed_updates"):
            found.append(f"stream {name}: {each['shed_updates']:,} new values of contexts shed")
        if each.get("partly_shed"):
            found.append(f"stream {name}: {each['partly_shed']:,} rows matched only for those who may miss less")
        if (groups := each.get("withheld")) and (set(groups) != {"1"} or each.get("partly_shed")):
            rows = each["rows_in"] - each["dead"]
            shares = (
                f"{groups[key] / rows:.1%} from those who tolerate {float(key):.0%}"
                for key in sorted(groups, key=float, reverse=True)
            )
            found.append(f"stream {name}: of {rows:,} rows withheld " + ", ".join(shares))
        if late := each["job"].get("late_rows"):
            found.append(f"stream {name}: {late:,} rows kept past the latency bound, as nobody tolerates to miss more")
        if errors:
            missed, wrong = (
                f"{errors[kind]['estimate']:,.0f} (95 %: {errors[kind]['low']:,.0f} to {errors[kind]['high']:,.0f})"
                for kind in ("false_negatives", "false_positives")
            )
            rows = errors["sampled_rows"]
            found.append(f"stream {name}: about {missed} matches missed and {wrong} wrong, by {rows:,} sampled rows")
    return found


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True, min_width=12)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def ledger_table(document: dict[str, Any], *, delays: bool = False) -> Table:
    """The ledger, one line per subscription."""
    terms = ("matched", "delivered", "reduced", "expired", "in_flight", "difference")
    heads = ("matched", "deliv'd", "reduced", "expired", "flight", "diff")
    extra = ("level", "p50", "p99", "event") if delays else ("from", "stream")
    title = "subscriptions (delays in ms: from the commit, and the median from the event)" if delays else "ledger"
    table = _table(title, "subscription", *heads, *extra)
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
            more = ["-" if each["starts"] is None else str(each["starts"]), each["stream"]]
        style = "bold red" if each["difference"] else None
        table.add_row(name, *(f"{each[term]:,}" for term in terms), *more, style=style)
    return table


def ledger(
    as_json: o.AsJson = False,
    state_dir: o.StateDir = o.STATE_DIR,
    nats: o.Nats = None,
    namespace: o.Namespace = "hg",
    creds: o.Credentials = None,
) -> None:
    """Check that every row is accounted for; exit 1 when any difference is not 0."""
    document = o.run(read_document(nats, state_dir, namespace, creds))
    wrong = differences(document)
    if as_json:
        found = {key: document[key] for key in ("revision", "streams", "subscriptions")}
        typer.echo(json.dumps({**found, "wrong": wrong}))
    else:
        console = o.wide_console()
        console.print(ledger_table(document))
        for line in loss_lines(document):
            console.print(line, markup=False, highlight=False)
        for line in wrong:
            console.print(f"[bold red]{line}")
        count = len(document["subscriptions"])
        state = "not 0" if wrong else "0"
        console.print(f"{count} subscription{'' if count == 1 else 's'}, ledger difference {state}")
    if wrong:
        raise typer.Exit(1)


def differences(document: dict[str, Any]) -> list[str]:
    """What does not add up, in words."""
    found = [
        f"stream {name}: {each['difference']} rows in are neither evaluated, dead nor shed"
        for name, each in document["streams"].items()
        if each["difference"]
    ]
    for name, each in document["subscriptions"].items():
        if each["difference"]:
            missing = "missing" if each["difference"] > 0 else "too many"
            found.append(f"subscription {name}: {abs(each['difference'])} rows {missing}")
    return found


def dead(
    stream: Annotated[str, typer.Argument(help="The stream.")],
    count: Annotated[int, typer.Option("--count", "-n", help="At most so many, the newest.")] = 100,
    state_dir: o.StateDir = o.STATE_DIR,
    nats: o.Nats = None,
    namespace: o.Namespace = "hg",
    creds: o.Credentials = None,
) -> None:
    """Print a stream's dead letters with their reasons, as JSON lines."""
    from headgate.service.dead import read_dead_letters

    async def work() -> list[str]:
        async with _reading(nats, state_dir, namespace, creds) as client:
            streams = (await client.snapshot()).deployment.streams
            if stream not in streams:
                close = nearest(stream, streams)
                hint = f"did you mean {close!r}?" if close else f"there are {', '.join(sorted(streams))}"
                raise HeadgateError(f"no stream {stream!r}", hint=hint)
            return await read_dead_letters(client.fabric, stream)

    for line in o.run(work())[-count:]:
        typer.echo(line)
