"""`headgate check`: reads a deployment file and says what is wrong with it, without running anything."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.model import Deployment

if TYPE_CHECKING:
    from headgate.filters import FilterCost

_TOLD = 0.1  # the part of what a filter may cost from which on it is told


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(
    file: Annotated[Path, typer.Argument(help="The deployment file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Check a deployment file and list every problem in it; exit with 2 when there are any."""
    from headgate.catalog import DeploymentError
    from headgate.catalog.profiles import row_limit_us
    from headgate.cli.deployment import read_deployment

    try:
        deployment = read_deployment(file)
    except DeploymentError as error:
        if as_json:
            problems = [asdict(problem) for problem in error.problems]
            typer.echo(json.dumps({"file": str(file), "ok": False, "problems": problems}))
        else:
            for problem in error.problems:
                typer.echo(str(problem), err=True)
            typer.echo(f"{file}: {_count(len(error.problems), 'problem')}", err=True)
        raise typer.Exit(2) from None
    counts, costs = _counts(deployment), _costs(deployment)
    limit_us = row_limit_us(deployment.options)
    if as_json:
        filters = {name: cost.document() for name, cost in costs.items()}
        typer.echo(json.dumps({"file": str(file), "ok": True, **counts, "filters": filters, "row_us_limit": limit_us}))
        return
    typer.echo(f"{file}: OK: " + ", ".join(_count(number, what[:-1]) for what, number in counts.items()))
    name = max(costs, key=lambda each: costs[each].row_us, default=None)
    if name is not None and costs[name].row_us > _TOLD * limit_us:
        typer.echo(f"costliest filter: {name}, about {costs[name].row_us:.3g} us a row (at most {limit_us:.3g})")


def _costs(deployment: Deployment) -> dict[str, FilterCost]:
    """What the filter of each subscription costs, where that can be told."""
    from headgate.catalog.profiles import cost_of

    streams = deployment.streams
    found = {name: cost_of(each, streams[each.stream].schema) for name, each in deployment.subscriptions.items()}
    return {name: cost for name, cost in found.items() if cost is not None}


def _counts(deployment: Deployment) -> dict[str, int]:
    return {
        "streams": len(deployment.streams),
        "sites": len(deployment.sites),
        "subscriptions": len(deployment.subscriptions),
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
