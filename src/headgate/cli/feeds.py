"""`headgate feeds`: polls RSS and Atom feeds and spools new items for a stream."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.quantities import span
from headgate.parts import part

if TYPE_CHECKING:
    from headgate.feeds import Polled


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("feeds")(feeds)


def feeds(
    listing: Annotated[Path, typer.Argument(help="The list of feeds: NAME URL, one a line.")],
    out: Annotated[Path, typer.Argument(help="The directory for items, dead letters and state.")],
    interval: Annotated[str, typer.Option(help="How often each feed is asked.")] = "30 min",
    host_gap: Annotated[str, typer.Option(help="The least time between two requests to one host.")] = "1 s",
    rounds: Annotated[int, typer.Option(help="Stop after every feed was asked so often; 0 goes on.")] = 0,
) -> None:
    """Poll feeds politely and write new items to OUT/items, one JSON row a line; the last line is one JSON object.

    A stream reads them with `source: {format: json, path: OUT/items}` and the schema that `docs/feeds.md` shows.
    """
    from headgate.feeds import Politeness, Poller, Spool, read_feeds, run_feeds
    from headgate.model import parse_duration

    part("feedparser")
    politeness = Politeness(interval_s=parse_duration(interval), host_gap_s=parse_duration(host_gap))
    poller, spool = Poller(read_feeds(listing), politeness), Spool(out)
    spool.restore(poller)
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    def tell(polled: Polled) -> None:
        typer.echo(feed_line(polled, poller.states[polled.feed].due_s - time.time()), err=True)

    published = run_feeds(poller, spool, stop=stop, rounds=rounds or None, tell=tell)
    counts = poller.counts
    typer.echo(
        json.dumps(
            {
                "feeds": len(poller.feeds),
                "requests": counts.requests,
                "unchanged": counts.unchanged,
                "failures": counts.failures,
                "items": published,
                "dead_letters": counts.dead,
                "bytes": counts.bytes,
            }
        )
    )


def feed_line(polled: Polled, wait_s: float) -> str:
    """What a feed brought, by its name, and when it is asked again if it failed.

    >>> from headgate.feeds import DeadLetter, Polled
    >>> feed_line(Polled("news", dead=(DeadLetter("news", "HTTP 503 Service Unavailable"),), failed=True), 7200.0)
    'news: HTTP 503 Service Unavailable; asked again in 2 h'
    """
    found = []
    if polled.items:
        found.append(f"{len(polled.items)} new item{'' if len(polled.items) == 1 else 's'}")
    if polled.failed:
        found += [polled.dead[0].reason, f"asked again in {span(wait_s)}"]
    elif polled.dead:
        reason = polled.dead[0].reason
        found.append(reason if len(polled.dead) == 1 else f"{len(polled.dead)} dead letters, the first: {reason}")
    return f"{polled.feed}: {'; '.join(found)}"
