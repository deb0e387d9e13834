"""`headgate replay`: recorded data through a deployment, and what every subscriber would have received."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.cli import options as o
from headgate.errors import HeadgateError
from headgate.model import parse_rate


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay)


@dataclass(frozen=True)
class RecordingOptions:
    """How Spark reads recorded rows."""

    stream: Annotated[str | None, typer.Option(help="Whose rows they are, where there are several streams.")] = None
    format_name: Annotated[
        str | None, typer.Option("--format", help="A batch format of Spark; default: by the name of the file.")
    ] = None
    option: Annotated[
        list[str] | None, typer.Option("--option", help="An option of that format's reader, as KEY=VALUE.")
    ] = None
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]"
    conf: Annotated[list[str] | None, typer.Option(help="A Spark option, as KEY=VALUE.")] = None


_RECORDING = RecordingOptions()


@dataclass(frozen=True)
class PaceOptions:
    """When recorded rows come."""

    speed: Annotated[
        str,
        typer.Option(help="`max`: as recorded, in virtual time. A number: rows come so many times as fast."),
    ] = "max"
    rate: Annotated[str | None, typer.Option(help="Rows come evenly, such as 500/s, whatever their times are.")] = None
    trigger: Annotated[float, typer.Option(help="Seconds from one micro-batch to the next.", min=0.01)] = 1.0


_PACE = PaceOptions()


def replay(
    data: Annotated[
        list[str], typer.Argument(help="Recorded rows: a file, directory or URI, or STREAM=PATH; repeatable.")
    ],
    deployment: Annotated[Path, typer.Option("--deployment", "-d", help="The deployment file.")],
    plan: Annotated[
        list[str] | None,
        typer.Option(help="Another plan: a file of `headgate plan --json`, or an algorithm; twice compares two."),
    ] = None,
    policies: Annotated[
        list[Path] | None,
        typer.Option(help="Other policies: a YAML map of subscriptions; `*` is all others; twice compares two."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the received rows (Parquet), the chart and the report.")
    ] = None,
    as_json: o.AsJson = False,
    recording: RecordingOptions = _RECORDING,
    pacing: PaceOptions = _PACE,
) -> None:
    """Run recorded data through a deployment: who would have received what, when, and what would have been given up."""
    from headgate.cli.deployment import read_deployment
    from headgate.pipeline.recorded_data import Pace
    from headgate.pipeline.session import make_session
    from headgate.replay.run import Replay, recording_of, run_replay
    from headgate.replay.variants import make_variants

    found = read_deployment(deployment)
    pace = Pace(pacing.trigger, _speed(pacing.speed), None if pacing.rate is None else parse_rate(pacing.rate))
    given = _pairs(recording.option)
    recordings = [recording_of(text, found, recording.format_name, given, recording.stream) for text in data]
    variants = make_variants(found, plan or [], policies or [])
    o.raise_on_interrupt()
    spark = make_session("headgate replay", recording.master, _pairs(recording.conf))
    try:
        report = run_replay(
            spark, Replay(recordings, variants, pace, out), lambda line: None if as_json else typer.echo(line)
        )
    finally:
        spark.stop()
    if out is not None:
        (out / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if not as_json:
        _print(report)
    typer.echo(json.dumps(report))


def _speed(text: str) -> float:
    if text == "max":
        return 1.0
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise HeadgateError(f"{text!r} is no speed", hint="write max, or how many times as fast rows come, such as 10")
    return value


def _pairs(texts: list[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise HeadgateError(f"{text!r} is not KEY=VALUE", hint="for example --option header=false")
        found[key] = value
    return found


def _print(report: dict[str, Any]) -> None:
    for variant in report["variants"]:
        typer.secho(f"\n{variant['name']}", bold=True)
        width = max([len("subscription"), *map(len, variant["subscriptions"])])
        typer.echo(
            f"{'subscription':<{width}} {'matched':>10} {'received':>10} {'given up':>10} {'delay s':>8} {'p95':>7}"
            f" {'quality':>7}  why"
        )
        for name, line in variant["subscriptions"].items():
            gone = {**line["reduced"], **({"expired": line["expired"]} if line["expired"] else {})}
            why = ", ".join(f"{reason} {count:,}" for reason, count in gone.items())
            typer.echo(
                f"{name:<{width}} {line['matched']:>10,} {line['delivered']:>10,} {sum(gone.values()):>10,}"
                f" {_shown(line['delay_s']):>8} {_shown(line['delay_p95_s']):>7} {_shown(line['quality']):>7}  {why}"
            )
        if variant["in_flight"]:
            typer.echo(f"{variant['in_flight']:,} rows were still queued a week after the last ones came")
    typer.echo(
        f"\n{report['rows']:,} rows in {report['spark_s'] + report['virtual_s']:.1f} s,"
        f" {report['rows_per_s']:,.0f} rows/s (Spark {report['spark_s']:.1f} s, delivery {report['virtual_s']:.1f} s);"
        f" unaccounted for: {report['difference']}"
    )
    if "chart" in report:
        typer.echo(f"drawn to {report['chart']}")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
