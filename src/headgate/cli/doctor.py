"""`headgate doctor` and `headgate support`: what is wrong with the machine, and a bundle for whoever helps."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.cli import options as o
from headgate.errors import HeadgateError

_COLOURS = {"good": typer.colors.GREEN, "warning": typer.colors.YELLOW, "bad": typer.colors.RED}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("doctor")(doctor)
    app.command("support")(support)


def doctor(as_json: o.AsJson = False, state_dir: o.StateDir = o.STATE_DIR) -> None:
    """Check what a deployment needs of this machine, and say what to fix; exits with 1 when something is bad."""
    from headgate.service.doctor import BAD, examine

    found = examine(state_dir)
    if as_json:
        typer.echo(json.dumps([each.to_document() for each in found]))
    else:
        for each in found:
            typer.secho(f"{each.state:8}", fg=_COLOURS[each.state], nl=False)
            typer.echo(f"{each.name:12} {each.found}" + (f"\n{'':21}{each.fix}" if each.fix else ""))
    if any(each.state == BAD for each in found):
        raise typer.Exit(1)


def support(
    file: Annotated[Path | None, typer.Argument(help="Where to write it; default: a name with the time, here.")] = None,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Write a bundle for whoever helps: status, checks, versions, ends of logs; no passwords, no tokens, no rows."""
    from headgate.service.doctor import examine
    from headgate.service.support import write_bundle

    documents: dict[str, Any] = {"doctor": [each.to_document() for each in examine(at.state_dir)]}
    try:
        documents |= o.run(_documents(at))
    except HeadgateError as error:
        documents["status"] = {"error": str(error)}
    place = file or Path(f"headgate-support-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    parts = write_bundle(place, at.state_dir, documents)
    typer.echo(f"{place}: {', '.join(parts)}")


async def _documents(at: o.ConnectionOptions) -> dict[str, Any]:
    from headgate.cli.status import read_document, reading
    from headgate.service.support import deployment_document

    status = await read_document(at)
    async with reading(at) as client:
        return {"status": status, "deployment": deployment_document(await client.snapshot())}
