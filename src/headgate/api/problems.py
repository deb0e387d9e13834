"""Errors as problem documents (RFC 9457): the one place that says which error is which status of HTTP."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from headgate.diagnostics import SERVICE
from headgate.errors import HeadgateError, masked

MEDIA_TYPE: Final = "application/problem+json"

STATUS: Final[Mapping[str, int]] = {
    "invalid": 422,
    "unknown": 404,
    "conflict": 409,
    "gone": 410,
    "too-large": 413,
    "unsupported": 415,
    "unidentified": 401,
    "denied": 403,
    "too-many": 429,
    "busy": 503,
    "unavailable": 503,
    "full": 507,
}
"""The status of every kind of `HeadgateError`."""
_RETRY_S: Final = {"busy": "1", "unavailable": "5"}


class ApiError(HeadgateError):
    """A request that this API refuses by itself; `members` are further keys of its problem document.

    `retry_after_s` says when it may be made again.
    """

    def __init__(
        self,
        message: str,
        *,
        members: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
        **more: Any,
    ) -> None:
        super().__init__(message, **more)
        self.members = dict(members or {})
        self.retry_after_s = retry_after_s


def problem_of(error: HeadgateError, **more: Any) -> dict[str, Any]:
    """The problem document of an error: `detail` is the text that the command line prints."""
    status = STATUS.get(error.kind, 422)
    found = {
        "type": f"urn:headgate:{error.kind}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": str(error),
    }
    members = error.members if isinstance(error, ApiError) else {}
    return {**found, **({"hint": error.hint} if error.hint else {}), **members, **more}


def problem_response(error: HeadgateError, **more: Any) -> Response:
    """The response to a request that failed with an error."""
    document = problem_of(error, **more)
    headers = {"Retry-After": _RETRY_S[error.kind]} if error.kind in _RETRY_S else {}
    if isinstance(error, ApiError) and error.retry_after_s is not None:
        headers["Retry-After"] = str(max(math.ceil(error.retry_after_s), 1))
    if document["status"] == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(json.dumps(document), document["status"], headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of an application with a problem document."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HeadgateError)
        return problem_response(error)

    async def misread(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = [
            {"where": ".".join(map(str, each["loc"])), "message": masked(str(each["msg"]))} for each in error.errors()
        ]
        said = "; ".join(f"{each['where']}: {each['message']}" for each in errors[:8])
        return problem_response(ApiError(f"the request cannot be read: {said}"), errors=errors[:100])

    async def plain(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        phrase = HTTPStatus(error.status_code).phrase
        document = {"type": "about:blank", "title": phrase, "status": error.status_code, "detail": str(error.detail)}
        return Response(json.dumps(document), error.status_code, dict(error.headers or {}), MEDIA_TYPE)

    async def failed(request: Request, error: Exception) -> Response:
        SERVICE.error("%s %s failed", request.method, request.url.path, exc_info=error)
        document = {"type": "about:blank", "title": "Internal Server Error", "status": 500, "detail": "see the log"}
        return Response(json.dumps(document), 500, None, MEDIA_TYPE)

    app.add_exception_handler(HeadgateError, refused)
    app.add_exception_handler(RequestValidationError, misread)
    app.add_exception_handler(HTTPException, plain)
    app.add_exception_handler(Exception, failed)
