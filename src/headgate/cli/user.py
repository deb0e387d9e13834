"""`headgate user`: who may do what in a running deployment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.cli import options as o
from headgate.cli.groups import Program
from headgate.cli.sheets import Sheet, day_of
from headgate.errors import HeadgateError
from headgate.fabric.place import write_whole

user = Program(help="Users: make them, give them new credentials, put them out.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The user's name.")]
Out = Annotated[Path | None, typer.Option("--out", help="Where to write the credentials; default: NAME.creds.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(user, name="user")
    app.command("mine")(mine)


@dataclass(frozen=True)
class RightsOptions:
    """What a user may do."""

    subscribe: Annotated[
        list[str] | None, typer.Option("--subscribe", help="A stream it may subscribe to, or `*`; repeatable.")
    ] = None
    publish: Annotated[
        list[str] | None, typer.Option("--publish", help="A stream it may publish into, or `*`; repeatable.")
    ] = None
    operator: Annotated[bool, typer.Option("--operator", help="It may do everything.")] = False
    site: Annotated[str | None, typer.Option(help="It is the relay of this site, on another machine.")] = None
    job: Annotated[bool, typer.Option("--job", help="It is the Spark job, on another machine.")] = False


_NOTHING = RightsOptions()


@user.command("add")
def add(
    name: Name,
    expires: Annotated[str | None, typer.Option(help="How long the credentials hold, such as `90 days`.")] = None,
    out: Out = None,
    at: o.ConnectionOptions = o.HERE,
    may: RightsOptions = _NOTHING,
) -> None:
    """Make a user and write its credentials into a file that only you can read. They are not kept anywhere else."""
    place = _new_file(out, name)
    rights = {"subscribe": may.subscribe or [], "publish": may.publish or [], "operator": may.operator}
    answer = at.ask("user-add", name=name, **rights, site=may.site, job=may.job, expires=expires)
    _write(place, answer)


@user.command("grant")
def grant(
    name: Name,
    stream: Annotated[str, typer.Option("--stream", help="The stream, or `*` for all rows and columns of any.")],
    where: Annotated[str | None, typer.Option(help="The rows it may have, as a SQL condition; default: all.")] = None,
    columns: Annotated[str | None, typer.Option(help="The columns it may see, with commas; default: all.")] = None,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Give a user rows and columns of a stream, in place of what it had of it. Its subscriptions follow at once."""
    given: dict[str, Any] = {"stream": stream, "where": where}
    if columns is not None:
        given["columns"] = [each.strip() for each in columns.split(",") if each.strip()]
    _tell(name, at.ask("user-grant", name=name, **given))


@user.command("ungrant")
def ungrant(
    name: Name,
    stream: Annotated[str, typer.Option("--stream", help="The stream.")],
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Take a stream from a user: its subscriptions to it stay and get nothing, what waits for it is withheld."""
    _tell(name, at.ask("user-ungrant", name=name, stream=stream))


@user.command("rotate")
def rotate(
    name: Name,
    grace: Annotated[str, typer.Option(help="How long the credentials of before hold yet.")] = "1 h",
    expires: Annotated[str | None, typer.Option(help="How long the new ones hold, such as `90 days`.")] = None,
    out: Out = None,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Give a user new credentials; those of before go on to hold for a while, so that nobody has to stop."""
    place = _new_file(out, name)
    more = {} if expires is None else {"expires": expires}
    _write(place, at.ask("user-rotate", name=name, grace=grace, **more))


@user.command("revoke")
def revoke(
    name: Name,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Put a user out at once: its connections end. Its subscriptions stay, for an operator to end."""
    at.ask("user-revoke", name=name)
    typer.echo(f"user {name} is out", err=True)


@user.command("list")
def list_users(
    as_json: o.AsJson = False,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """List users and what they may do. Whoever can read the state directory is an operator beside them."""
    users = at.ask("user-list")["users"]
    if as_json:
        typer.echo(json.dumps(users))
        return
    sheet = Sheet("users", "user", "role", "subscribes to", "publishes into", "issued", "expires")
    for each in users:
        streams = ("; ".join(_part(name, each["grants"].get(name)) for name in each["subscribes"]) or "-",
                   " ".join(each["publishes"]) or "-")  # fmt: skip
        role = each["role"] + (" (out: sent too much)" if each.get("out_until_s") else "")
        sheet.add_row(each["name"], role, *streams, day_of(each["issued_s"]), day_of(each["expires_s"]))
    o.wide_console().print(sheet)


def mine(
    as_json: o.AsJson = False,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """List your own subscriptions; for an operator, those that belong to no user."""
    found = at.ask("mine")["subscriptions"]
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, each in found.items():
        if "stopped" in each:
            typer.echo(f"{name} gets nothing: {each['stopped']}", err=True)
    sheet = Sheet("subscriptions", "subscription", "stream", "site", "counted from", "where")
    for name, each in found.items():
        starts = "-" if each["starts"] is None else f"{each['starts']:,}"
        sheet.add_row(name, each["stream"], each["site"], starts, each["where"])
    o.wide_console().print(sheet)


def _new_file(out: Path | None, name: str) -> Path:
    """Where credentials go: nothing is made for a file that is there already."""
    place = out or Path(f"{name}.creds")
    if place.exists():
        raise HeadgateError(f"there is a file {place}", hint="move it away, or give another one with --out")
    if not place.absolute().parent.is_dir():
        raise HeadgateError(f"there is no directory {place.absolute().parent}", hint="make it, or give another --out")
    return place


def _write(place: Path, answer: dict[str, Any]) -> None:
    write_whole(place, answer["credentials"])
    typer.echo(f"{answer['name']} is a {answer['role']}; the credentials are in {place}", err=True)


def _tell(name: str, answer: dict[str, Any]) -> None:
    streams = "; ".join(_part(each, answer["grants"].get(each)) for each in answer["subscribes"]) or "nothing"
    typer.echo(f"{name} may subscribe to {streams}; subscriptions changed: {answer['changed']}", err=True)


def _part(stream: str, granted: dict[str, Any] | None) -> str:
    """A stream that a user may subscribe to, and what of it."""
    found = granted or {}
    columns = f" ({', '.join(found['columns'])})" if "columns" in found else ""
    return stream + columns + (f" where {found['where']}" if "where" in found else "")
