"""`headgate job`: the Spark job as an artefact that clusters can run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.groups import Program


def register(app: typer.Typer) -> None:
    """Add the commands."""
    job = Program(help="The Spark job on a cluster.", no_args_is_help=True)
    job.command("pack")(pack)
    app.add_typer(job, name="job")


def pack(
    file: Annotated[Path, typer.Argument(help="The archive to write.")] = Path("headgate-job.tar.gz"),
) -> None:
    """Pack Headgate and its libraries for executors, which then need nothing but Python of the same version.

    Use it with `headgate up --master spark://HOST:7077 --job-archive FILE`.
    """
    import sys

    from headgate.pipeline.packing import pack as write

    count, size = write(file)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    typer.echo(f"{file}: {count:,} files, {size / 1e6:.1f} MB, for Python {version} on machines like this one")
