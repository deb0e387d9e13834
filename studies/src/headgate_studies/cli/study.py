"""`headgate study`: the papers' experiments and ours, run on Spark over parameters and seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.options import raise_on_interrupt
from headgate.errors import HeadgateError
from headgate_studies.cli.bench import parameters
from headgate_studies.studies import STUDIES, load


def register(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(study, name="study")


study = typer.Typer(
    help="Run the experiments behind the figures and write charts, tables and verdicts.", no_args_is_help=True
)


@study.command("list")
def list_studies() -> None:
    """List the studies; the last line is one JSON object."""
    width = max(map(len, STUDIES), default=0)
    for name, registered in STUDIES.items():
        typer.echo(f"{name:<{width}}  {registered.about}")
    typer.echo(json.dumps({"studies": list(STUDIES)}))


@study.command("run")
def run(
    name: Annotated[str, typer.Argument(help="A study; `headgate study list` lists them.")],
    seeds: Annotated[int | None, typer.Option(help="Seeds for each set of parameters; else the study's own.")] = None,
    master: Annotated[str, typer.Option(help="Spark master; live studies run without Spark.")] = "local[*]",
    option: Annotated[
        list[str] | None, typer.Option("--set", "-o", help="A parameter's value or JSON list of values, NAME=VALUE.")
    ] = None,
    conf: Annotated[list[str] | None, typer.Option(help="A Spark option, as KEY=VALUE.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for chart, page and Parquet; else docs/studies/NAME.")
    ] = None,
    state_dir: Annotated[Path | None, typer.Option(help="Directory for Spark's own files.")] = None,
) -> None:
    """Run a study; writes its Parquet, chart and page, and prints its figures as one JSON object in the last line."""
    from headgate_studies.studies.runner import run_study

    raise_on_interrupt()
    figures = run_study(
        load(name),
        seeds=seeds,
        master=master,
        options=dict(_pair(text) for text in conf or []),
        parameters=parameters(option or []),
        out=out,
        state_dir=state_dir,
    )
    typer.echo(json.dumps(figures))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise HeadgateError(f"{text!r} is not KEY=VALUE", hint="for example --conf spark.driver.memory=2g")
    return key, value
