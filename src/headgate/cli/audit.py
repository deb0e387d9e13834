"""`headgate audit`: who changed what, when, from where, before and after."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.cli import options as o
from headgate.cli.sheets import Sheet
from headgate.errors import HeadgateError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many of the newest records to show.")] = 20,
    who: Annotated[str | None, typer.Option(help="Only what this user changed.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the whole chain, and that nothing is missing at its end.")
    ] = False,
    as_json: o.AsJson = False,
    state_dir: o.StateDir = o.STATE_DIR,
    namespace: o.Namespace = "hg",
) -> None:
    """Show who changed what in the deployment of a state directory, newest last. Records of before are checked too."""
    from headgate.service.audit import AUDIT_FILE, read_audit, verify_audit

    path = state_dir / AUDIT_FILE
    if not path.exists():
        raise HeadgateError(f"there is no audit in {state_dir}", hint="give the --state-dir of a deployment")
    if verify:
        newest = verify_audit(path, o.run(_anchor(state_dir, namespace)))
        typer.echo(f"{newest.number} records, the chain is whole; the newest has the hash {newest.hash}")
        return
    records = deque((each for each in read_audit(path) if who in (None, each["who"])), maxlen=count)
    if as_json:
        for record in records:
            typer.echo(json.dumps(record))
        return
    sheet = Sheet("audit", "time", "who", "from", "what", "revision", "changed")
    for record in records:
        revision = "-" if record["revision"] is None else str(record["revision"])
        changed = ", ".join(_change(name, each) for name, each in record["changes"].items()) or "-"
        time, author, origin, what = (record[key] or "-" for key in ("time", "who", "from", "what"))
        sheet.add_row(time[:19], author, origin, what, revision, changed)
    o.wide_console().print(sheet)


def _change(name: str, change: Any) -> str:
    """A changed document in a word: + is new, - is gone."""
    if not isinstance(change, dict) or not {"before", "after"} <= change.keys():
        return name
    return f"{'+' if change['before'] is None else '-' if change['after'] is None else '~'}{name}"


async def _anchor(state_dir: Path, namespace: str) -> Any:
    """The newest record that NATS knows of, None where it does not."""
    from headgate.cli.status import reading
    from headgate.service.anchoring import read_anchor

    async with reading(o.ConnectionOptions(state_dir, namespace=namespace)) as client:
        return await read_anchor(client.fabric)
