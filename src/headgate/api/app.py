"""The application: routes, errors, access, and the document that describes them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.responses import JSONResponse, Response

from headgate import __version__
from headgate.api import (
    advice,
    changing,
    metrics,
    overview,
    pages,
    previews,
    problems,
    publishing,
    receiving,
    reports,
    sockets,
    subscriptions,
)
from headgate.api.access import Access, HostGuard, Visitor, identify
from headgate.api.door import ApiDoor
from headgate.api.gateway import Gateway
from headgate.api.routing import Here
from headgate.catalog.document import SiteEntry, StreamEntry, SubscriptionEntry
from headgate.fabric import FabricError
from headgate.service.heartbeat import read_pulse

_ABOUT = """What a running deployment does, and requests to it: the same as the command line's.

Errors are problem documents (RFC 9457). Send the token of the state directory's `http/token` as a bearer token."""


def make_app(gateway: Gateway, access: Access, hosts: Iterable[str]) -> FastAPI:
    """The application for one deployment, which answers requests that name one of these hosts."""
    app = FastAPI(
        title="Headgate",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.gateway = gateway
    app.state.access = access
    problems.install(app)
    app.add_middleware(ApiDoor, access=access, limits=gateway.part.limits)
    app.add_middleware(HostGuard, hosts=hosts)
    served = (overview, previews, advice, subscriptions, changing, receiving, publishing, reports, metrics, pages)
    for module in served if gateway.part.site is None else (receiving,):
        app.include_router(module.routes)
    sockets.install(app)
    _add_health(app)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign] # FastAPI's own way to say so
    gateway.describe = app.openapi
    return app


def _add_health(app: FastAPI) -> None:
    @app.get("/healthz", tags=["health"], summary="Whether this process answers")
    async def healthz() -> dict[str, str]:
        return {"state": "ok"}

    @app.get("/readyz", tags=["health"], summary="Whether the deployment takes and delivers rows")
    async def readyz(here: Here, _: Annotated[Visitor, Depends(identify)]) -> Response:
        state = "unreachable"
        if here.client.fabric.connected:
            try:
                await here.snapshot()
                state = (await read_pulse(here.client.fabric, _now_ms()))["state"]
            except FabricError:
                state = "unreachable"
        return JSONResponse({"state": state}, 200 if state == "running" else 503)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(_: Annotated[Visitor, Depends(identify)]) -> Response:
        return JSONResponse(app.openapi(), headers={"Cache-Control": "no-cache"})


def _now_ms() -> int:
    return int(time.time() * 1000)


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the keys of a subscription and of a problem as they are."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = found.setdefault("components", {}).setdefault("schemas", {})
        for model in (SubscriptionEntry, StreamEntry, SiteEntry):
            entry = model.model_json_schema(ref_template="#/components/schemas/{model}", mode="validation")
            schemas |= entry.pop("$defs", {})
            schemas[model.__name__] = entry
        schemas["Problem"] = {
            "type": "object",
            "required": ["type", "title", "status", "detail"],
            "properties": {
                "type": {"type": "string"},
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "detail": {"type": "string"},
                "hint": {"type": "string"},
            },
        }
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
        for path, operations in found["paths"].items():
            for operation in operations.values():
                operation.get("responses", {}).pop("422", None)  # one of the problems
                if path == "/healthz":
                    operation["security"] = []
        app.openapi_schema = found
    return app.openapi_schema
