"""Running the poller: fetch what is due in a few threads, publish what is new, wait for the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from headgate.feeds.fetch import Fetched, fetch
from headgate.feeds.poller import FeedRequest, Polled, Poller
from headgate.feeds.spool import Spool

WORKERS = 16


def run_feeds(
    poller: Poller,
    spool: Spool,
    *,
    stop: Event | None = None,
    rounds: int | None = None,
    clock: Callable[[], float] = time.time,
    tell: Callable[[Polled], None] | None = None,
) -> int:
    """Poll until stopped, or until every feed was asked `rounds` times; returns the items published.

    `tell` hears what each feed brought, once it is published; of a feed that brought nothing it hears nothing.
    """
    stop = stop or Event()
    published = 0
    limit = None if rounds is None else rounds * len(poller.feeds)
    politeness = poller.politeness

    def ask(request: FeedRequest) -> tuple[FeedRequest, Fetched]:
        return request, fetch(
            request.feed.url,
            request.etag,
            request.modified,
            timeout_s=politeness.timeout_s,
            max_bytes=politeness.max_bytes,
            now_s=clock(),
        )

    with ThreadPoolExecutor(WORKERS, "feeds") as threads:
        while not stop.is_set() and (limit is None or poller.counts.requests < limit):
            requests = poller.due(clock())
            polled: list[Polled] = [
                poller.take(request, answer, clock()) for request, answer in threads.map(ask, requests)
            ]
            if polled:
                published += spool.publish(poller, polled, clock())
                for part in polled:
                    if tell is not None and (part.items or part.dead):
                        tell(part)
            following = poller.next_due()
            if following is None:
                break
            if limit is None or poller.counts.requests < limit:
                stop.wait(min(60.0, max(0.0, following - clock())))
    return published
