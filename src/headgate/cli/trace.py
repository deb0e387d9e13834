"""`headgate trace`: sampled rows on their way, stage by stage."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Annotated

import typer

from headgate.cli import options as o


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("trace")(trace)


def trace(
    subscriptions: Annotated[list[str] | None, typer.Argument(help="Subscriptions to follow; default: all.")] = None,
    rate: Annotated[str, typer.Option(help="Which share of rows to follow.")] = "1/1000",
    for_: Annotated[str | None, typer.Option("--for", help="Stop after this long, such as `10 min`.")] = None,
    patience: Annotated[str, typer.Option(help="How long to follow one row at most.")] = "1 min",
    otlp: Annotated[
        str | None,
        typer.Option(
            help="Also send spans there (OTLP over HTTP); default: OTEL_EXPORTER_OTLP_ENDPOINT, else nowhere."
        ),
    ] = None,
    as_json: o.AsJson = False,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Follow sampled rows from their event to their reader, with the time that each stage took, until Ctrl-C.

    Everything is read from the logs: nothing on the way is slowed down, and the same rows are followed by everybody who
    asks for the same share.
    """
    from headgate.model import parse_duration
    from headgate.service.tracing.otlp import export, spans_document, traces_url
    from headgate.service.tracing.row_trace import parse_share

    share = parse_share(rate)
    endpoint = otlp or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    url = None if endpoint is None else traces_url(endpoint)
    limit_s = None if for_ is None else parse_duration(for_)

    async def work() -> None:
        from headgate.service.tracing.follow import RowFollower

        async with await at.connect() as client:
            deployment = (await client.snapshot()).identity.deployment
            follower = RowFollower(client, share, subscriptions or (), parse_duration(patience))
            began_s = time.monotonic()
            rows = follower.run()
            while limit_s is None or time.monotonic() - began_s < limit_s:
                left_s = None if limit_s is None else max(limit_s - (time.monotonic() - began_s), 0.0)
                try:
                    found = await asyncio.wait_for(anext(rows), left_s)
                except TimeoutError:
                    break
                typer.echo(json.dumps(found.to_document()) if as_json else str(found))
                if url is not None:
                    await asyncio.to_thread(export, url, spans_document([found], deployment))
            await rows.aclose()  # type: ignore[attr-defined] # it is a generator

    o.run(work())
