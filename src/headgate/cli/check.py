"""`headgate check`: reads a deployment file and says what is wrong with it, without running anything."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headgate.model import Deployment


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(
    file: Annotated[Path, typer.Argument(help="The deployment file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Check a deployment file and list every problem in it; exit with 2 when there are any."""
    from headgate.catalog import DeploymentError
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
    counts = _counts(deployment)
    if as_json:
        typer.echo(json.dumps({"file": str(file), "ok": True, **counts}))
    else:
        typer.echo(f"{file}: OK: " + ", ".join(_count(number, what[:-1]) for what, number in counts.items()))


def _counts(deployment: Deployment) -> dict[str, int]:
    return {
        "streams": len(deployment.streams),
        "sites": len(deployment.sites),
        "subscriptions": len(deployment.subscriptions),
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
