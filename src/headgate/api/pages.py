"""Pages for browsers, from files of this package: they work offline, and load nothing from anywhere else."""

from __future__ import annotations

import hashlib
from functools import cache
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import RedirectResponse, Response

from headgate.api.access import access_of, identify
from headgate.api.problems import ApiError
from headgate.service.access import SESSION_S

routes = APIRouter(include_in_schema=False)

_TYPES: Final = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "json": "application/json",
    "svg": "image/svg+xml",
    "ts": "text/plain",
}
_HELP: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Headgate</title>
<h1>Headgate</h1><p>Whoever runs the deployment opens this page with the link that this command prints:</p>
<pre>headgate login</pre><p>A user of it, with its credentials, on whatever machine they are:</p>
<pre>headgate login --creds FILE --address ADDRESS</pre></html>"""


def static_files() -> dict[str, Traversable]:
    """Every file of this package's `static` directory, by its path below it."""
    found: dict[str, Traversable] = {}

    def collect(place: Traversable, path: str) -> None:
        for each in place.iterdir():
            if each.is_dir():
                collect(each, f"{path}{each.name}/")
            elif each.name.rpartition(".")[2] in _TYPES:
                found[path + each.name] = each

    collect(resources.files("headgate.api") / "static", "")
    return found


@cache
def _files() -> dict[str, Traversable]:
    return static_files()


def asset(request: Request, name: str, user: str | None = None) -> Response:
    """A file of the `static` directory; whoever has it already is told so. A page says which user it is for."""
    file = _files().get(name)
    if file is None:
        raise ApiError(f"no page {name[:100]!r}", kind="unknown")
    data = file.read_bytes()
    if user is not None:
        data = data.replace(b"<body>", f'<body class="user" data-user="{escape(user)}">'.encode())
    tag = f'"{hashlib.sha256(data).hexdigest()[:24]}"'
    headers = {"Cache-Control": "no-cache", "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)


@routes.get("/login")
async def login(request: Request, code: Annotated[str, Query(max_length=1024)]) -> Response:
    """Open a session for the browser that followed a login link."""
    access = access_of(request)
    response = RedirectResponse("/", 303)
    response.set_cookie(
        access.cookie, access.session(code), max_age=int(SESSION_S), httponly=True, samesite="strict", path="/"
    )
    return response


@routes.get("/")
async def index(request: Request) -> Response:
    """The first page; who is not logged in reads how to."""
    try:
        visitor = access_of(request).identify(request)
    except ApiError:
        return Response(_HELP, 401, {"WWW-Authenticate": "Bearer"}, "text/html")
    return asset(request, "index.html", None if visitor.user is None else visitor.name)


@routes.get("/docs")
async def docs(request: Request, _: Annotated[Any, Depends(identify)]) -> Response:
    """The API's description to read and try."""
    return asset(request, "docs.html")


@routes.get("/static/{name:path}")
async def static(request: Request, name: str, _: Annotated[Any, Depends(identify)]) -> Response:
    """A script, a style sheet or data of a page."""
    return asset(request, name)
