"""Getting a feed: conditional HTTP requests and files, within a size and a time, in Python's own client."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import TypeAlias
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

AGENT = "headgate-feeds"


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer: HTTP's status (200 with a body, 304 unchanged), validators for next time, or what went wrong.

    `status` is 0 when there was no answer at all.
    """

    status: int
    body: bytes = b""
    etag: str | None = None
    modified: str | None = None
    retry_after_s: float | None = None
    error: str | None = None


Fetcher: TypeAlias = Callable[[str, str | None, str | None], Fetched]


def fetch(
    url: str,
    etag: str | None = None,
    modified: str | None = None,
    *,
    timeout_s: float = 20.0,
    max_bytes: int = 5_000_000,
    now_s: float = 0.0,
) -> Fetched:
    """Fetch a feed, or learn that it has not changed since the validators were given."""
    if urlsplit(url).scheme == "file":
        return _file(Path(unquote(urlsplit(url).path)), modified, max_bytes)
    headers = {
        "User-Agent": AGENT,
        "Accept-Encoding": "gzip",
        "Accept": "application/atom+xml, application/rss+xml, */*",
    }
    if etag:
        headers["If-None-Match"] = etag
    if modified:
        headers["If-Modified-Since"] = modified
    try:
        with build_opener(_OnlyHttp).open(Request(url, headers=headers), timeout=timeout_s) as answer:  # noqa: S310 - schemes are checked when the list is read
            body = answer.read(max_bytes + 1)
            if len(body) > max_bytes:
                return Fetched(0, error=f"more than {max_bytes} bytes")
            if answer.headers.get("Content-Encoding") == "gzip":
                body = _unpacked(body, max_bytes)
            return Fetched(answer.status, body, answer.headers.get("ETag"), answer.headers.get("Last-Modified"))
    except HTTPError as error:
        with error:
            wait = _retry_after(error.headers.get("Retry-After"), now_s)
            if error.code == 304:
                return Fetched(304, b"", etag, modified, wait)
            return Fetched(error.code, retry_after_s=wait, error=f"HTTP {error.code} {error.reason}")
    except (URLError, HTTPException, OSError, zlib.error, EOFError, ValueError) as error:
        return Fetched(0, error=f"{type(error).__name__}: {error}")


class _OnlyHttp(HTTPRedirectHandler):
    """Follows redirects to HTTP only: a server must not send us to a local file."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise URLError(f"redirected to {newurl!r}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _file(path: Path, modified: str | None, max_bytes: int) -> Fetched:
    try:
        stamp = str(path.stat().st_mtime_ns)
        if stamp == modified:
            return Fetched(304, modified=stamp)
        with path.open("rb") as file:
            body = file.read(max_bytes + 1)
    except OSError as error:
        return Fetched(0, error=f"{type(error).__name__}: {error}")
    if len(body) > max_bytes:
        return Fetched(0, error=f"more than {max_bytes} bytes")
    return Fetched(200, body, modified=stamp)


def _unpacked(body: bytes, max_bytes: int) -> bytes:
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    plain = unpacker.decompress(body, max_bytes + 1)
    if len(plain) > max_bytes:
        raise ValueError(f"more than {max_bytes} bytes when unpacked")
    if not unpacker.eof:
        return gzip.decompress(body)  # says what is wrong with it
    return plain


def _retry_after(text: str | None, now_s: float) -> float | None:
    if not text:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_s)
    except (TypeError, ValueError):
        return None
