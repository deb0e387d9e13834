"""`headgate status`, `headgate ledger`, `headgate dead`: what is going on, and whether everything is accounted for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from headgate.cli import options as o
from headgate.cli.machine import ask_machine, machine_error, machine_lines
from headgate.cli.outboxes import outbox_tables
from headgate.cli.status_sheets import (
    differences,
    error_lines,
    group_tables,
    ledger_table,
    loss_lines,
    more_lines,
    notes,
    planner_line,
    print_alerts,
    print_findings,
    service_line,
    status_tables,
    tables_line,
)
from headgate.client.client import Client
from headgate.errors import HeadgateError, nearest
from headgate.fabric import FabricError
from headgate.service.findings import Finding
from headgate.service.pages import PAGE, Page

_STATUS_S: Final = 60.0
_LEDGER: Final = ("revision", "time_ms", "streams", "subscriptions", "subscription_count", "next", "groups", "findings")


@dataclass(frozen=True)
class _PageOptions:
    """Which subscriptions are shown."""

    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only subscriptions of this kind, as site=SITE, stream=STREAM, class=ID or name=NAME; repeatable."
        ),
    ] = None
    after: Annotated[str, typer.Option(help="Go on after this name, as the last page says.")] = ""
    limit: Annotated[
        int, typer.Option(min=1, help="Show at most so many subscriptions, and sums over all of them.")
    ] = PAGE

    @property
    def page(self) -> Page:
        """The page that is asked for."""
        return Page.read(o.key_values(self.only or []), self.after, self.limit)


_FIRST_PAGE: Final = _PageOptions()


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
            stream["state"] = stream_state(
                document["service"], document["jobs"].get(stream["driver"], {}), stream["job"]
            )
    return document


def status(
    as_json: o.AsJson = False,
    part: _PageOptions = _FIRST_PAGE,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Show streams, sites, links, and subscriptions with every term of the ledger and both delays; then what is wrong.

    Works also when nothing is running. Delays are from the root's commit (p50, p99) and from the event (p50), to the
    hand-over.
    """
    page = part.page
    from headgate.service.served_parts import part_lines

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
    for line in [
        *part_lines(document.get("parts", {})),
        *more_lines(document),
        *notes(document),
        *machine_lines(document["machine"]),
    ]:
        console.print(line, markup=False, highlight=False)
    for line in [*loss_lines(document), *error_lines(document)]:
        console.print(line, markup=False)
    print_findings(console, document)
    print_alerts(console, document)


def ledger(
    as_json: o.AsJson = False,
    part: _PageOptions = _FIRST_PAGE,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Check that every row is accounted for; exit 1 when one is not, or when it cannot be said.

    A stream that failed, stands still or is behind its source, an output that does not move while rows wait, and a term
    that cannot be read are named. `oldest` is how long the oldest row in flight has been on its way.
    """
    page = part.page
    document = o.run(read_document(at, page))
    wrong = [each for each in document["findings"] if each["wrong"]]
    if as_json:
        found = {key: document[key] for key in _LEDGER}
        typer.echo(json.dumps({**found, "wrong": [str(Finding.of(each)) for each in wrong]}))
    else:
        console = o.wide_console()
        for table in [*group_tables(document), ledger_table(document), *outbox_tables(document)]:
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
