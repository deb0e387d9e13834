"""`headgate explain`: what the filters of a deployment mean, how much they take, and which of them covers which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.errors import HeadgateError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.filters.sizes import StreamStatistics
    from headgate.model import Deployment, Schema, Stream, Subscription

_SHOWN = 6  # boxes of a filter that are printed
_BAD_LINES = 10  # lines of a file that are no rows and are told one by one
_LINES = 5_000  # lines of a file that are read at a time


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(
    file: Annotated[Path, typer.Argument(help="The deployment file.")],
    subscription: Annotated[str | None, typer.Argument(help="One subscription in full; none lists all.")] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(help="Rows to estimate from, as STREAM=FILE (Parquet, or JSON lines); generators need none."),
    ] = None,
    sample: Annotated[int, typer.Option(help="Rows of a generator to estimate from.", min=1)] = 20_000,
    sizes: Annotated[
        Path | None, typer.Option(help="Write the estimates there, as `headgate tune --measured` reads them.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the canonical text, the boxes, the selectivity and the size of filters, and what covers what."""
    from headgate.catalog.profiles import row_limit_us
    from headgate.cli.deployment import read_deployment

    deployment = read_deployment(file)
    if subscription is not None and subscription not in deployment.subscriptions:
        close = nearest(subscription, deployment.subscriptions)
        raise HeadgateError(f"no subscription {subscription!r}", hint=f"did you mean {close!r}?" if close else None)
    known = _statistics(deployment, dict(_assignments(rows or [])), sample)
    found = {
        name: describe(each, deployment.streams[each.stream], known[each.stream])
        for name, each in deployment.subscriptions.items()
    }
    _relate(deployment, found)
    if sizes is not None:
        sizes.write_text(json.dumps({"sizes": _sizes(found, known)}, indent=2), encoding="utf-8")
    chosen = found if subscription is None else {subscription: found[subscription]}
    limit_us = row_limit_us(deployment.options)
    for each in chosen.values():
        each.pop("profile_object")
        if "cost" in each:
            each["cost"]["row_us_limit"] = limit_us
    if as_json:
        typer.echo(json.dumps(chosen, default=str))
    elif subscription is None:
        _table(chosen)
    else:
        _full(subscription, found[subscription])


def _assignments(texts: list[str]) -> list[tuple[str, Path]]:
    found = []
    for text in texts:
        stream, equals, path = text.partition("=")
        if not equals:
            raise HeadgateError(f"{text!r} is not STREAM=FILE", hint="for example --rows weather=day.parquet")
        found.append((stream, Path(path)))
    return found


def _statistics(deployment: Deployment, files: dict[str, Path], sample: int) -> dict[str, StreamStatistics]:
    import numpy as np

    from headgate.filters.sizes import StreamStatistics

    for name in files:
        if name not in deployment.streams:
            close = nearest(name, deployment.streams)
            raise HeadgateError(f"no stream {name!r}", hint=f"did you mean {close!r}?" if close else None)
    found = {}
    for name, stream in deployment.streams.items():
        found[name] = StreamStatistics(stream.schema, np.random.default_rng(0))
        for batch in _rows(stream, files.get(name), sample):
            found[name].update(batch)
    return found


def _rows(stream: Stream, path: Path | None, sample: int) -> list[pa.RecordBatch]:
    """Rows of a file, of the stream's generator, or none."""
    if path is not None:
        return _derived(stream, _read(path, stream.source_schema))
    if stream.source.format != "generator":
        return []
    from headgate.pipeline.sources import generate

    options = dict(stream.source.options)
    kind, seed = options["kind"], int(options.get("seed", 0))
    rows = generate(kind, seed, 0, sample, rate=stream.rate_rows_per_s or 1.0).cast(stream.source_schema.arrow)
    return _derived(stream, [rows])


def _derived(stream: Stream, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Rows with the columns that the stream derives, as its job adds them."""
    from headgate.deriving import History, add_columns, derivation_of

    derivation = derivation_of(stream)
    if derivation is None:
        return batches
    found, history = [], History.empty(derivation)
    for batch in batches:
        rows, history = add_columns(derivation, history, batch)
        found.append(rows.cast(stream.schema.arrow))
    return found


def _read(path: Path, schema: Schema) -> list[pa.RecordBatch]:
    """The rows of a file; lines of JSON that are no rows of the stream are told with their numbers and left out."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
            batches: list[pa.RecordBatch] = table.select(list(schema.names)).cast(schema.arrow).to_batches()
            return batches
        lines = path.read_bytes().splitlines()
    except (OSError, KeyError, pa.ArrowException) as error:
        raise HeadgateError(f"{path} cannot be read as rows of the stream: {error}") from None
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    batches, bad = _rows_of(numbered, schema)
    for number, reason in bad[:_BAD_LINES]:
        typer.echo(f"{path}:{number}: no row of the stream, left out: {reason}", err=True)
    if len(bad) > _BAD_LINES:
        typer.echo(f"{path}: ... and {len(bad) - _BAD_LINES:,} more lines of {len(numbered):,}", err=True)
    if bad and not batches:
        raise HeadgateError(f"{path} cannot be read as rows of the stream: none of its {len(bad):,} lines is one")
    return batches


def _rows_of(lines: list[tuple[int, bytes]], schema: Schema) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
    """Rows of numbered JSON lines, and the numbers of bad ones with what is wrong; halves are tried where all fail."""
    import pyarrow as pa
    import pyarrow.json

    if not lines:
        return [], []
    options = pyarrow.json.ParseOptions(explicit_schema=schema.arrow, unexpected_field_behavior="ignore")
    batches: list[pa.RecordBatch] = []
    bad: list[tuple[int, str]] = []
    pending = [lines[start : start + _LINES] for start in range(0, len(lines), _LINES)]
    while pending:
        part = pending.pop(0)
        try:
            source = pa.py_buffer(b"\n".join(line for _, line in part) + b"\n")
            table = pyarrow.json.read_json(pa.BufferReader(source), parse_options=options)
            if table.num_rows != len(part):
                raise pa.ArrowInvalid("not one JSON object")
            batches += table.select(list(schema.names)).cast(schema.arrow).to_batches()
        except (KeyError, pa.ArrowException) as error:
            if len(part) == 1:
                bad.append((part[0][0], str(error).splitlines()[0]))
            else:
                pending[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]
    return batches, bad


def describe(subscription: Subscription, stream: Stream, statistics: StreamStatistics) -> dict[str, Any]:
    """What is known of one subscription's filter."""
    from headgate.filters import context_types
    from headgate.filters.profiles import profile_type
    from headgate.grid.predicate import Both, grid_predicate
    from headgate.service.describing import filter_document

    kind = profile_type(subscription.profile)
    profile = kind.compile(subscription.where, stream.schema, context_types(subscription.context))
    grid = grid_predicate(subscription, stream)
    taken: Any = profile if grid is None else Both(profile, grid)
    share = statistics.selectivity(taken, subscription.context)
    size = statistics.amortised_bytes(taken, subscription.select, subscription.context)
    return {
        "stream": subscription.stream,
        "profile": subscription.profile,
        "columns": sorted(taken.columns),
        "context": sorted(taken.parameters),
        "selectivity": share.value if statistics.rows else None,
        "selectivity_error": share.error if statistics.rows else None,
        "bytes_per_stream_row": size.value if statistics.rows else None,
        "profile_object": profile,
        **filter_document(subscription, stream),
    }


def _relate(deployment: Deployment, found: dict[str, dict[str, Any]]) -> None:
    """Which subscriptions of the same stream and context each one covers: by filter, region and resolution."""
    from headgate.filters.algebra.relate import columns_cover
    from headgate.filters.profiles import profile_type
    from headgate.planning.covering import grid_covers, shape_of

    shapes = {name: shape_of(each, deployment.streams[each.stream]) for name, each in deployment.subscriptions.items()}
    for name, each in found.items():
        mine = deployment.subscriptions[name]
        each["covers"] = [
            other
            for other, their in deployment.subscriptions.items()
            if other != name
            and (mine.stream, mine.profile) == (their.stream, their.profile)
            and _same_values(each, found[other], mine, their)
            and columns_cover(mine.select, their.select)
            and grid_covers((mine, shapes[name]), (their, shapes[other]))
            and profile_type(mine.profile).covers(each["profile_object"], found[other]["profile_object"])
        ]


def _same_values(one: dict[str, Any], other: dict[str, Any], mine: Subscription, theirs: Subscription) -> bool:
    """Whether every context value that both filters refer to is the same for both subscribers."""
    return all(mine.context.get(name) == theirs.context.get(name) for name in {*one["context"]} & {*other["context"]})


def _sizes(found: dict[str, dict[str, Any]], known: dict[str, StreamStatistics]) -> dict[str, Any]:
    return {
        "row_bytes": {name: each.row_bytes().value for name, each in known.items() if each.rows},
        "selectivity": {name: each["selectivity"] for name, each in found.items() if each["selectivity"] is not None},
    }


def _table(found: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("subscription", "where", "boxes", "us/row", "rows", "B/row", "covers", box=None, pad_edge=False)
    for name, each in found.items():
        boxes = "" if "boxes" not in each else f"{len(each['boxes'])}{'' if each['exact'] else ' + check'}"
        share = "" if each["selectivity"] is None else f"{each['selectivity']:.2%} ±{each['selectivity_error']:.2%}"
        size = "" if each["bytes_per_stream_row"] is None else f"{each['bytes_per_stream_row']:.1f}"
        where = each["where"] if each["grid"] is None else f"{each['where']}; {each['grid']}"
        cost = "" if "cost" not in each else f"{each['cost']['row_us']:.3g}"
        table.add_row(name, where, boxes, cost, share, size, str(len(each["covers"])))
    Console().print(table)


def _full(name: str, each: dict[str, Any]) -> None:
    typer.echo(f"{name}: {each['profile']} over {each['stream']}")
    typer.echo(f"  where       {each['where']}")
    if each["grid"] is not None:
        typer.echo(f"  grid        {each['grid']}")
    typer.echo(f"  reads       {', '.join(each['columns']) or 'no column'}")
    if each["context"]:
        typer.echo(f"  context     {', '.join('$' + value for value in each['context'])}")
    if "boxes" in each:
        typer.echo(f"  simplified  {each['simplified']}")
        typer.echo(
            f"  boxes       {len(each['boxes'])}, {'exact' if each['exact'] else 'rows in them are checked again'}"
        )
        for box in each["boxes"][:_SHOWN]:
            typer.echo("              " + (" AND ".join(f"({value})" for value in box.values()) or "any row"))
    if "cost" in each:
        cost = each["cost"]
        typer.echo(f"  evaluates   about {cost['row_us']:.3g} us a row (at most {cost['row_us_limit']:.3g})")
        typer.echo(f"  normalises  to at most {cost['boxes_at_most']} boxes and {cost['cuts_at_most']:,} cuts")
    if each["selectivity"] is not None:
        typer.echo(f"  takes       {each['selectivity']:.3%} of the rows, ±{each['selectivity_error']:.3%}")
        typer.echo(f"  costs       {each['bytes_per_stream_row']:.2f} bytes per row of the stream")
    typer.echo(f"  covers      {', '.join(each['covers']) or 'no other subscription'}")
