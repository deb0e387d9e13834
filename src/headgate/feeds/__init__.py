"""RSS and Atom feeds as a stream: poll politely, publish only new items, keep malformed ones as dead letters.

The application of the XPORT paper: the root of a stream polls the feeds once for everybody, and subscribers get new
items pushed. `poller` decides without I/O, `fetch` and `spool` are its adapters. Imports `model`; needs feedparser.
"""

from headgate.feeds.fetch import Fetched, Fetcher, fetch
from headgate.feeds.items import SCHEMA, DeadLetter, Item
from headgate.feeds.listing import Feed, FeedsError, read_feeds
from headgate.feeds.parse import parse_feed
from headgate.feeds.poller import FeedRequest, Polled, Poller
from headgate.feeds.schedule import Politeness
from headgate.feeds.service import run_feeds
from headgate.feeds.spool import Spool

__all__ = [
    "SCHEMA",
    "DeadLetter",
    "Feed",
    "FeedRequest",
    "FeedsError",
    "Fetched",
    "Fetcher",
    "Item",
    "Politeness",
    "Polled",
    "Poller",
    "Spool",
    "fetch",
    "parse_feed",
    "read_feeds",
    "run_feeds",
]
