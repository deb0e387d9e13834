"""What the routes of the API have in common: their gateway, pages of long lists, entity tags."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import JSONResponse, Response

from headgate.api.access import Visitor, identify
from headgate.api.gateway import Gateway
from headgate.api.problems import MEDIA_TYPE, ApiError

MOST: Final = 1000


E = TypeVar("E", bound=Callable[..., Any])
_OPEN: Final = "open_to_users"


def open_to_users(endpoint: E) -> E:
    """Mark an operation that users may ask for: it shows and does only what its gateway allows.

    What is not marked is for operators.
    """
    setattr(endpoint, _OPEN, True)
    return endpoint


async def gateway_of(request: Request, visitor: Annotated[Visitor, Depends(identify)]) -> Gateway:
    """The deployment as whoever makes a request may see it."""
    found: Gateway = request.app.state.gateway
    if visitor.user is None:
        return found
    if not getattr(request.scope["endpoint"], _OPEN, False):
        raise ApiError(f"user {visitor.name!r} may not ask for this", hint="an operator may", kind="denied")
    return found.of_user(visitor.user)


Here = Annotated[Gateway, Depends(gateway_of)]
Limit = Annotated[int, Query(ge=1, le=MOST, description="How many to return at most.")]
After = Annotated[
    str | None, Query(max_length=256, description="Return what comes after this name: `next` of the page before.")
]
_PROBLEM: Final = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"description": "The request is refused; `detail` says why and what to do.", "content": _PROBLEM},
    "5XX": {"description": "The deployment cannot do it for now.", "content": _PROBLEM},
}


def router(tag: str) -> APIRouter:
    """A router for what only somebody who is known may see or do."""
    return APIRouter(prefix="/api", tags=[tag], dependencies=[Depends(identify)], responses=PROBLEMS)


def tagged(request: Request, document: Any, *of: Any) -> Response:
    """A document with an entity tag made of what it depends on: 304 without a body where the asker has it already."""
    tag = f'"{hashlib.sha256(repr((str(request.url.query), of)).encode()).hexdigest()[:24]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return JSONResponse(document, headers=headers)


def page(names: Sequence[str], after: str | None, limit: int) -> tuple[list[str], str | None]:
    """One page of sorted names, and the name to go on after, None at the end.

    >>> page(["a", "b", "c"], "a", 1), page(["a", "b", "c"], "b", 5)
    ((['b'], 'b'), (['c'], None))
    """
    left = [name for name in names if after is None or name > after]
    return left[:limit], left[limit - 1] if len(left) > limit else None
