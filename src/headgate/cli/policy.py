"""`headgate policy`: check a reduction policy, list what it can say, and see what it would drop of recorded rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.cli import options as o
from headgate.cli.groups import Program
from headgate.errors import HeadgateError
from headgate.model import Schema, parse_rate

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.client.client import Client
    from headgate.reduction import Policy
    from headgate.reduction.advise import Advice, LevelAdvice
    from headgate.service.advising import LatelyReceived

PolicyFile = Annotated[Path, typer.Option("--policy", help="The policy: a YAML document, or the XML form (.xml).")]
RowsFile = Annotated[
    str, typer.Argument(help="Recorded rows: a Parquet, CSV or JSON-lines file, or generator:KIND (pulse, fleet, ...).")
]
AnyRows = Annotated[
    str,
    typer.Argument(
        help="Rows: a Parquet, CSV or JSON-lines file, generator:KIND (pulse, fleet, ...), or subscription:NAME."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(policy, name="policy")


policy = Program(help="Check reduction policies and try them on recorded rows.", no_args_is_help=True)


@policy.command("filters")
def filters() -> None:
    """List the reduction filters and digesters."""
    from headgate.reduction.digesters import DIGESTERS
    from headgate.reduction.filters import FILTERS

    described = [(kind.name, kind.about) for kind in FILTERS] + [(kind.name, kind.about) for kind in DIGESTERS]
    for name, about in described:
        typer.echo(f"{name:<12} {about}")


@policy.command("check")
def check(
    rows: RowsFile,
    file: PolicyFile,
    count: Annotated[int, typer.Option("--rows", help="How many rows a generator gives.")] = 1000,
) -> None:
    """Check a policy against the columns of recorded rows; the last line is one JSON object."""
    found = read_policy(file, schema_of(read_rows(rows, count)))
    labels = [level.label for level in found.levels]
    for number, label in enumerate([*labels, "oldest (implicit)"], start=1):
        typer.echo(f"level {number}: {label}")
    typer.echo(json.dumps({"ok": True, "levels": labels, "digest": [each.label for each in found.digesters]}))


@policy.command("advise")
def advise_command(
    rows: AnyRows,
    file: Annotated[
        Path | None, typer.Option("--policy", help="The policy; none tries one made for the columns.")
    ] = None,
    target: Annotated[
        str, typer.Option(help="Rows that can be delivered, as 50/s with --rate, or a fraction.")
    ] = "0.5",
    rate: Annotated[
        str | None, typer.Option(help="How fast the rows come, such as 200/s; of a subscription it is measured.")
    ] = None,
    window: Annotated[int, typer.Option(help="Rows that a queue holds when it is packed.", min=1)] = 1000,
    key: Annotated[str | None, typer.Option(help="Key column for a policy made here.")] = None,
    count: Annotated[int, typer.Option("--rows", help="How many rows a generator gives.")] = 20_000,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Show what each level drops of recorded rows and propose an order; the last line is one JSON object.

    `subscription:NAME` are the rows that a subscription of the running deployment got lately, judged by its own policy
    where none is given.
    """
    from headgate.service.advising import PolicyQuestion, advise_on

    per_second = None if rate is None else parse_rate(rate)
    kind, _, name = rows.partition(":")
    wanted: dict[str, Any] | Policy | None = None
    if kind == "subscription":
        lately = at.run(lambda client: _lately(client, name))
        recorded, schema, per_second = lately.rows, lately.schema, per_second or lately.rate_rows_per_s
        wanted = None if lately.policy is None else dict(lately.policy)
    else:
        recorded = read_rows(rows, count)
        schema = schema_of(recorded)
    if file is not None:
        wanted = read_policy(file, schema)
    found = advise_on(recorded, schema, PolicyQuestion(wanted, target, window, key), per_second)
    _print(found.advice)
    if file is None:
        typer.echo("tried: " + found.policy.text)
    typer.echo(json.dumps(found.to_document()))


async def _lately(client: Client, name: str) -> LatelyReceived:
    """What a subscription of a running deployment got lately."""
    from headgate.protocol.reports import PlannerReport
    from headgate.service.advising import received_lately, the_one
    from headgate.service.previewing import read_recent, stream_rate
    from headgate.service.reports import read_reports, shown

    snapshot = await client.snapshot()
    subscription = snapshot.deployment.subscriptions[the_one(name, snapshot)]
    stream = snapshot.deployment.streams[subscription.stream]
    planner = shown((await read_reports(client.fabric, PlannerReport)).get("_"))
    return received_lately(snapshot, name, await read_recent(client.fabric, stream), stream_rate(stream, planner))


def _print(advice: Advice) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()

    def show(title: str, levels: tuple[LevelAdvice, ...], reaches: int | None) -> None:
        table = Table(title=title, title_justify="left")
        for name in ("step", "level", "drops alone", "drops so far", ""):
            table.add_column(name, justify="right" if name.startswith("drops") else "left")
        for step, level in enumerate(levels, start=1):
            mark = " <- reaches the target" if step == reaches else ""
            table.add_row(
                str(step),
                f"{level.number} {level.label}",
                f"{level.alone:.1%}",
                f"{level.together:.1%}",
                level.verdict + mark,
            )
        console.print(table)

    show(f"as written, {advice.rows:,} rows, keep {advice.target:.1%}", advice.levels, advice.reaches)
    if advice.order != tuple(range(len(advice.levels))):
        show("proposed order", advice.proposed, advice.proposed_reaches)
    else:
        typer.echo("the order is good as it is")


def read_policy(file: Path, schema: Schema) -> Policy:
    """A policy from a YAML or XML file."""
    import yaml

    from headgate.reduction import PolicyError, parse_policy, parse_policy_xml

    try:
        text = file.read_text()
    except OSError as error:
        raise HeadgateError(f"cannot read {file}: {error.strerror}", hint="give --policy a file") from error
    if file.suffix.lower() == ".xml":
        return parse_policy_xml(text, schema)
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PolicyError("not YAML: " + str(error).replace("\n", " "), where=str(file)) from error
    if isinstance(document, dict) and set(document) == {"policy"}:
        document = document["policy"]
    return parse_policy(document, schema, where="policy")


def read_rows(source: str, count: int) -> pa.RecordBatch:
    """Recorded rows as one batch, with types that a stream can have."""
    import pyarrow as pa

    if source.startswith("generator:"):
        from headgate.pipeline.sources.generators.generate import generate

        return generate(source.partition(":")[2], 0, 0, count)
    table = _read_table(Path(source))
    fields = [pa.field(field.name, _plain(field.type)) for field in table.schema]
    combined = table.cast(pa.schema(fields)).combine_chunks()
    batches = combined.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=combined.schema)


def _read_table(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import csv, parquet
    from pyarrow import json as arrow_json

    readers = {
        ".parquet": parquet.read_table,
        ".csv": csv.read_csv,
        ".json": arrow_json.read_json,
        ".jsonl": arrow_json.read_json,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise HeadgateError(
            f"{path} is of no known kind", hint="a .parquet, .csv, .json or .jsonl file, or generator:pulse"
        )
    try:
        return reader(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise HeadgateError(f"cannot read {path}: {error}", hint="check the path and the format") from error


def _plain(kind: pa.DataType) -> pa.DataType:
    """The nearest type that a schema can have."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_unsigned_integer(kind):
        return pa.int64()
    return kind


def schema_of(rows: pa.RecordBatch) -> Schema:
    """The stream schema of recorded rows."""
    from headgate.model import Column

    return Schema(tuple(Column(field.name, field.type) for field in rows.schema))
