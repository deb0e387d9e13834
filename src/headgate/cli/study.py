"""`headgate study`: the papers' experiments and ours, run on Spark over parameters and seeds."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(study, name="study")


study = typer.Typer(help="Run the experiments behind the figures and write charts, tables and verdicts.")


@study.callback()
def _group() -> None:
    pass
