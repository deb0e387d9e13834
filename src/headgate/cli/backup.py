"""`headgate verify`, `headgate backup` and `headgate restore`: whether what is stored is whole, and copies of it."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from headgate.cli import options as o


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("verify")(verify)
    app.command("backup")(backup)
    app.command("restore")(restore)


def verify(
    as_json: o.AsJson = False,
    state_dir: o.StateDir = o.STATE_DIR,
    namespace: o.Namespace = "hg",
    catalog: Annotated[
        str | None, typer.Option(envvar="HEADGATE_CATALOG", help="Catalog database; default: in the state directory.")
    ] = None,
) -> None:
    """Walk all that a state directory holds, and name what is damaged; exit 1 where anything is.

    It is that of a deployment, or of a host that has joined one, running or not.
    """
    from headgate.service.verifying import verify_directory
    from headgate.wire.logs import Logs

    found = o.run(verify_directory(state_dir, Logs(namespace), catalog))
    if as_json:
        typer.echo(json.dumps({"counts": found.counts, "wrong": found.wrong}))
    else:
        for line in found.wrong:
            typer.echo(line)
        typer.echo(f"{_counted(found.counts)}: {len(found.wrong) or 'nothing'} wrong")
    if found.wrong:
        raise typer.Exit(1)


def _counted(counts: dict[str, Any]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.items())


def backup(
    file: Annotated[Path, typer.Argument(help="Where to write it.")],
    state_dir: o.StateDir = o.STATE_DIR,
) -> None:
    """Write all of a deployment into one file that only you can read; it has the deployment's keys.

    One that runs is held still for a moment, some hundredths of a second where little is written.
    """
    from headgate.service.backup import BackupError, make_backup, refuse_host
    from headgate.service.copying import copy_running
    from headgate.service.exclusive import RunsAlreadyError, exclusive

    refuse_host(state_dir)
    if not (state_dir / "nats" / "data").exists() and not (state_dir / "catalog.db").exists():
        raise BackupError(f"there is no deployment in {state_dir}", hint="give --state-dir")
    try:
        with exclusive(state_dir):
            count = make_backup(state_dir, file)
        told = ""
    except RunsAlreadyError:
        with TemporaryDirectory(prefix=f"{file.name}.", dir=file.absolute().parent) as place:
            still_s = copy_running(state_dir, Path(place) / "copy")
            count = make_backup(Path(place) / "copy", file)
        told = f"; the deployment runs, and was held still for {still_s:.2f} s"
    typer.echo(f"{count} files are in {file}{told}", err=True)


def restore(
    file: Annotated[Path, typer.Argument(help="The backup.")],
    state_dir: o.StateDir = o.STATE_DIR,
) -> None:
    """Put a backup into an empty state directory; nothing is written where anything in it is damaged."""
    from headgate.service.backup import restore_backup

    count = restore_backup(file, state_dir)
    typer.echo(f"{count} files are in {state_dir}; `headgate up` goes on from there", err=True)
