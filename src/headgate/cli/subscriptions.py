"""What the ends of a stream do: `headgate subscribe`, `move`, `refine`, `detach`, `unsubscribe`, and so on."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from headgate.cli import options as o
from headgate.client import Client
from headgate.client.bulk import read_keys, read_subscriptions
from headgate.errors import HeadgateError
from headgate.fabric.gated import GatedFabric


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("subscribe")(subscribe)
    app.command("move")(move)
    app.command("detach")(detach)
    app.command("unsubscribe")(unsubscribe)
    app.command("refine")(refine)
    app.command("context")(context)
    app.command("publish")(publish)


@dataclass(frozen=True)
class RowOptions:
    """What is subscribed to."""

    stream: Annotated[str | None, typer.Option(help="The stream.")] = None
    site: Annotated[str | None, typer.Option(help="The site that it is delivered at.")] = None
    where: Annotated[str | None, typer.Option(help="Which rows, as a SQL expression; default: all.")] = None
    select: Annotated[str | None, typer.Option(help="Which columns, separated by commas; default: all.")] = None
    group: Annotated[
        bool, typer.Option("--group", help="Deal the rows out to members: each row goes to one of them.")
    ] = False
    deal: Annotated[
        str | None,
        typer.Option(help="With --group: an expression over columns and `$values` of members; the largest gets a row."),
    ] = None
    lease: Annotated[
        str | None, typer.Option(help="With --group: how long a member may take for a row; default: 30 s.")
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other key of the deployment file, as KEY=YAML; repeatable."),
    ] = None


_EVERYTHING = RowOptions()


def subscribe(
    name: Annotated[str | None, typer.Argument(help="The subscription's name; none with --from.")] = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Make all subscriptions of this file (.parquet, .csv, .jsonl) in one change; each has a name and keys "
            "of the deployment file, and what it does not say is as the other options say.",
        ),
    ] = None,
    change: Annotated[bool, typer.Option("--change", help="Change a subscription of that name.")] = False,
    wait: Annotated[str, typer.Option(help="How long to wait for the first batch that it counts in.")] = "10 s",
    at: o.ConnectionOptions = o.HERE,
    rows: RowOptions = _EVERYTHING,
) -> None:
    """Add a subscription to the running deployment; it is counted from the sequence that is printed as `starts`."""
    from headgate.model import parse_duration

    given = {key: getattr(rows, key) for key in ("stream", "site", "where", "select")}
    document = read_keys({key: value for key, value in given.items() if value is not None})
    for key, value in o.key_values(rows.option or []).items():
        document[key] = yaml.safe_load(value)
    if rows.group or rows.deal is not None or rows.lease is not None:
        document["group"] = _group_document(document.get("group"), rows)
    if from_ is not None:
        wanted = {each: {**document, **found} for each, found in read_subscriptions(from_).items()}
        typer.echo(json.dumps(at.run(lambda client: client.subscribe_many(wanted, change=change))))
        return
    needed = {"NAME": name, "--stream": rows.stream, "--site": rows.site}
    missing = [key for key, value in needed.items() if value is None]
    if name is None or missing:
        raise HeadgateError(f"{', '.join(missing)} is missing", hint="give it, or a file of subscriptions with --from")

    async def work(client: Client) -> dict[str, Any]:
        answer = await client.control("subscribe", name=name, subscription=document, change=change)
        deadline_s = parse_duration(wait)
        if "ids" in answer:  # one at each root of the stream
            return {**answer, "starts": {each: await _starts(client, each, deadline_s) for each in answer["ids"]}}
        return {**answer, "starts": await _starts(client, name, deadline_s)}

    answer = at.run(work)
    typer.echo(json.dumps(answer))
    starts = answer["starts"]
    if starts is None or (isinstance(starts, dict) and None in starts.values()):
        typer.echo("no rows came meanwhile: it is counted from the next batch on, see `headgate ledger`", err=True)


def _group_document(given: Any, rows: RowOptions) -> dict[str, Any]:
    """The `group` of a subscription, from the options for it and what --set says."""
    found = dict(given) if isinstance(given, dict) else {}
    named = {"deal": rows.deal, "lease": rows.lease}
    return {**found, **{key: value for key, value in named.items() if value is not None}}


async def _starts(client: Any, name: str, timeout_s: float) -> int | None:
    """The sequence before the first row that counts, None while no batch was committed under the new revision."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                if isinstance(client.fabric, GatedFabric):
                    found = await client.control("mine")
                else:
                    found = await client.control("lines", names=[name])
                starts: int | None = found["subscriptions"].get(name, {}).get("starts")
                if starts is not None:
                    return starts
                await asyncio.sleep(0.3)
    except TimeoutError:
        return None


def move(
    name: Annotated[str, typer.Argument(help="The subscription's name.")],
    to: Annotated[str, typer.Option("--to", help="The site to deliver it at from now on.")],
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Hand a subscription over to another site: its reader gets what the old one holds first, and nothing twice."""
    typer.echo(json.dumps({"revision": at.run(lambda client: client.move(name, to))}))


def detach(
    name: Annotated[str, typer.Argument(help="The subscription's name.")],
    expires: Annotated[
        str | None, typer.Option(help="How long rows are kept, as in `10 min`; default: what the subscription says.")
    ] = None,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Say that nobody will read a subscription for a while; who does so next, at any site, goes on where it was."""
    typer.echo(json.dumps({"position": at.run(lambda client: client.detach(name, expires=expires))}))


def unsubscribe(
    name: Annotated[str, typer.Argument(help="The subscription's name.")],
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """End a subscription; what it was owed until then stays readable in its inbox."""
    typer.echo(json.dumps({"revision": at.run(lambda client: client.unsubscribe(name))}))


def refine(
    name: Annotated[str, typer.Argument(help="A subscription of a gridded stream.")],
    space: Annotated[str | None, typer.Option(help="Spatial resolution: 1/2, or an interval as FROM,TO.")] = None,
    time: Annotated[str | None, typer.Option(help="Temporal resolution, written likewise.")] = None,
    add: Annotated[
        str | None, typer.Option(help="Leave it as it is, and subscribe to what it lacks, with its past, by this name.")
    ] = None,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Change the resolution of a running subscription; prints what it still lacks of the rows before."""
    given = {"space": space, "time": time}
    wanted = {key: text.split(",") if "," in text else text for key, text in given.items() if text is not None}
    typer.echo(json.dumps({"missing": at.run(lambda client: client.refine(name, add=add, **wanted))}))


def context(
    name: Annotated[str, typer.Argument(help="The subscription's name.")],
    values: Annotated[list[str], typer.Argument(help="Values for its filter's $names, as NAME=YAML.")],
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Set values of a subscriber's context; prints the place in the stream's order from which they hold."""
    found = {key: yaml.safe_load(value) for key, value in o.key_values(values).items()}
    typer.echo(json.dumps({"place": at.run(lambda client: client.set_context(name, **found))}))


def publish(
    stream: Annotated[str, typer.Argument(help="A stream whose source is `nats`.")],
    file: Annotated[Path, typer.Argument(help="Rows as JSON lines, CSV or Parquet; `-` reads JSON lines.")],
    live: Annotated[bool, typer.Option("--live", help="Send lines of `-` as they come; wait while cut off.")] = False,
    policy: Annotated[
        Path | None, typer.Option(help="With --live: what to give up first when too much waits (YAML).")
    ] = None,
    buffer: Annotated[int, typer.Option(help="With --live: how many rows may wait.", min=1)] = 100_000,
    expires: Annotated[str, typer.Option(help="With --live: how long a row may wait.")] = "10 min",
    site: Annotated[
        str | None, typer.Option(help="Store the rows at this site; they go up to the stream's root from there.")
    ] = None,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Publish rows into a stream; returns once they are stored.

    With --live, lines are sent as they come. While the connection is away they wait here; the last line of the output
    says what became of them.
    """
    if live:
        if str(file) != "-":
            raise HeadgateError("--live reads lines as they come", hint="give `-` as the file")
        document = yaml.safe_load(policy.read_text("utf-8")) if policy is not None else None
        from headgate.model import parse_duration

        limits = {"max_rows": buffer, "expires_s": parse_duration(expires)}
        sending = _send_lines(at.connect(), stream, document, site, limits)
        typer.echo(json.dumps(o.run(sending)))
        return
    rows = _read_rows(file)
    stored = at.run(lambda client: client.publish(stream, rows, site=site))
    typer.echo(json.dumps({"stored": stored, "rows": len(rows), **({} if site is None else {"site": site})}))


async def _send_lines(
    connecting: Awaitable[Client], stream: str, policy: Any, site: str | None, limits: dict[str, Any]
) -> dict[str, Any]:
    """Send JSON lines from standard input until it ends, and report."""
    async with await connecting as client:
        sender = await client.sender(stream, policy, site=site, **limits)
        async with sender:
            while line := await asyncio.to_thread(sys.stdin.readline):
                if line.strip():
                    try:
                        sender.publish([json.loads(line)])
                    except ValueError as error:
                        raise HeadgateError(f"not a JSON line: {error}", where=line[:60]) from error
            await sender.flush(limits["expires_s"])
        return asdict(sender.report())


def _read_rows(file: Path) -> Any:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if str(file) == "-":
            return [json.loads(line) for line in sys.stdin if line.strip()]
        if file.suffix == ".parquet":
            return pyarrow.parquet.read_table(file)
        if file.suffix == ".csv":
            return pyarrow.csv.read_csv(file)
        return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, ValueError, pa.ArrowException) as error:
        raise HeadgateError(f"cannot read rows: {error}", where=str(file)) from error
