"""Pages for browsers, from files of this package: they work offline, and load nothing from anywhere else."""

from __future__ import annotations

from importlib import resources
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import RedirectResponse, Response

from headgate.api.access import access_of, identify
from headgate.api.problems import ApiError
from headgate.service.access import SESSION_S

routes = APIRouter(include_in_schema=False)

_TYPES: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_HELP: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Headgate</title>
<h1>Headgate</h1><p>This page is for whoever runs the deployment. Print a link that opens it with:</p>
<pre>headgate login</pre></html>"""


def asset(name: str) -> Response:
    """A file of this package's `static` directory."""
    kind = _TYPES.get(name.rpartition(".")[2])
    file = resources.files("headgate.api") / "static" / name
    if kind is None or "/" in name or not file.is_file():
        raise ApiError(f"no page {name[:100]!r}", kind="unknown")
    return Response(file.read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})


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
        access_of(request).identify(request)
    except ApiError:
        return Response(_HELP, 401, {"WWW-Authenticate": "Bearer"}, "text/html")
    return asset("index.html")


@routes.get("/docs")
async def docs(_: Annotated[Any, Depends(identify)]) -> Response:
    """The API's description to read and try."""
    return asset("docs.html")


@routes.get("/static/{name}")
async def static(name: str, _: Annotated[Any, Depends(identify)]) -> Response:
    """A script or a style sheet."""
    return asset(name)
