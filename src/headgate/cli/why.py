"""`headgate why`: what became of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli import options as o

if TYPE_CHECKING:
    from headgate.service.why.answer import Fate, Question


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("why")(why)


def why(
    subscription: Annotated[str, typer.Argument(help="The subscription that should have got the row.")],
    where: Annotated[str | None, typer.Option(help="The row, as a SQL expression; the newest that fits.")] = None,
    seq: Annotated[int | None, typer.Option(help="The row's sequence number.", min=1)] = None,
    key: Annotated[str | None, typer.Option(help="The row's key; several columns with commas between them.")] = None,
    as_json: o.AsJson = False,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Say what became of a row for a subscription.

    It was not read yet, is dead, did not match (and why not), was thinned out or given up (and where), is under way, or
    was delivered. Works also when nothing is running.
    """
    from headgate.service.why.answer import Question
    from headgate.wire.message import json_text

    question = Question(seq, where, key)
    found = o.run(_ask(subscription, question, at))
    typer.echo(json_text(found.to_document()) if as_json else found.text)


async def _ask(name: str, question: Question, at: o.ConnectionOptions) -> Fate:
    from headgate.cli.status import reading
    from headgate.service.why.asking import why_named

    async with reading(at) as client:
        return await why_named(client, name, question)
