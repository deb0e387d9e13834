"""A loopback HTTP server with made-up feeds: RSS, Atom, malformed ones, validators, errors; items can be added."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from xml.sax.saxutils import escape


@dataclass(slots=True)
class MadeFeed:
    """One feed: its kind (`rss`, `atom` or `broken`), its items, and how it answers."""

    kind: str = "rss"
    items: list[tuple[str, str, str]] = field(default_factory=list)  # id, title, topic
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    version: int = 0

    def body(self) -> bytes:
        """The document."""
        if self.kind == "broken":
            return b"<html><body>This is not a feed &nbsp; <b></body>"
        newest_first = reversed(self.items)
        if self.kind == "atom":
            entries = "".join(
                f"<entry><id>{escape(i)}</id><title>{escape(t)}</title><category term='{escape(c)}'/>"
                f"<link href='http://127.0.0.1/{escape(i)}'/><updated>2026-01-01T00:00:00Z</updated></entry>"
                for i, t, c in newest_first
            )
            return f"<feed xmlns='http://www.w3.org/2005/Atom'><title>made</title>{entries}</feed>".encode()
        entries = "".join(
            f"<item><guid>{escape(i)}</guid><title>{escape(t)}</title><category>{escape(c)}</category>"
            f"<pubDate>Thu, 01 Jan 2026 00:00:00 GMT</pubDate></item>"
            for i, t, c in newest_first
        )
        return f"<rss version='2.0'><channel><title>made</title>{entries}</channel></rss>".encode()


class FeedServer:
    """Serves `feeds` at /NAME on a free loopback port and counts requests by path and by answer."""

    def __init__(self, feeds: dict[str, MadeFeed] | None = None) -> None:
        self.feeds = feeds or {}
        self.requests: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()
        self._lock = threading.Lock()
        made = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                made.answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's signature
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def listing(self) -> str:
        """A list of all feeds, as `headgate feeds` reads it."""
        return "".join(f"{name} {self.url}/{name}\n" for name in self.feeds)

    def add(self, name: str, *items: tuple[str, str, str]) -> None:
        """New items of a feed."""
        with self._lock:
            self.feeds[name].items.extend(items)
            self.feeds[name].version += 1

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request, with 304 where the validators say so."""
        with self._lock:
            name = request.path.strip("/")
            feed = self.feeds.get(name)
            self.requests[name] += 1
            status = 404 if feed is None else feed.status
            tag = f'"{name}-{feed.version}"' if feed else ""
            stamp = formatdate(1_767_225_600 + (feed.version if feed else 0), usegmt=True)
            known = request.headers.get("If-None-Match") == tag or request.headers.get("If-Modified-Since") == stamp
            if feed is not None and status == 200 and known:
                status = 304
            body = feed.body() if feed is not None and status == 200 else b""
            headers = dict(feed.headers) if feed else {}
            self.answers[status] += 1
        request.send_response(status)
        for key, value in headers.items():
            request.send_header(key, value)
        if status == 200:
            request.send_header("ETag", tag)
            request.send_header("Last-Modified", stamp)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
