"""Spans by OTLP over HTTP in its JSON form, which every collector of OpenTelemetry takes; no library is needed.

A row is a trace, its way to one subscription a span, and each stage of it a span below that.
"""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from headgate import __version__
from headgate.errors import HeadgateError
from headgate.service.tracing.row_trace import RowTrace

_PATH: Final = "/v1/traces"
_POST_S: Final = 10.0
_INTERNAL: Final = 1
_ERROR: Final = 2
_LOST: Final = ("reduced", "expired", "dead", "in-flight")


class OtlpError(HeadgateError):
    """A collector that does not take spans."""

    usual_kind = "unavailable"


def traces_url(endpoint: str) -> str:
    """Where spans are sent: the endpoint as OpenTelemetry names it, with or without its path.

    >>> traces_url("http://127.0.0.1:4318"), traces_url("https://host/otlp/v1/traces")
    ('http://127.0.0.1:4318/v1/traces', 'https://host/otlp/v1/traces')
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OtlpError(f"{endpoint!r} is no address of a collector", hint="write http://HOST:4318")
    return endpoint if parts.path.endswith(_PATH) else endpoint.rstrip("/") + _PATH


def spans_document(traces: Iterable[RowTrace], deployment: str) -> dict[str, Any]:
    """A request to a collector."""
    spans = [span for trace in traces for span in _spans(trace, deployment)]
    resource = {"attributes": _attributes({"service.name": "headgate", "headgate.deployment": deployment})}
    scope = {"name": "headgate", "version": __version__}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]}


def _spans(trace: RowTrace, deployment: str) -> list[dict[str, Any]]:
    if not trace.stages:
        return []
    trace_id = _id(16, deployment, trace.stream, trace.seq)
    whole = _id(8, trace.stream, trace.seq, trace.subscription)
    about = {
        "headgate.stream": trace.stream,
        "headgate.seq": trace.seq,
        "headgate.subscription": trace.subscription,
        "headgate.fate": trace.fate,
    }
    found = [
        {
            **_times(trace.stages[0].begins_ms, trace.stages[-1].ends_ms),
            "traceId": trace_id,
            "spanId": whole,
            "name": f"{trace.stream} to {trace.subscription}",
            "kind": _INTERNAL,
            "attributes": _attributes(about),
            "status": {"code": _ERROR, "message": trace.fate} if trace.fate in _LOST else {},
        }
    ]
    for number, stage in enumerate(trace.stages):
        found.append(
            {
                **_times(stage.begins_ms, stage.ends_ms),
                "traceId": trace_id,
                "spanId": _id(8, whole, number),
                "parentSpanId": whole,
                "name": stage.name,
                "kind": _INTERNAL,
                "attributes": _attributes({"headgate.site": stage.site}),
                "status": {},
            }
        )
    return found


def _times(begins_ms: float, ends_ms: float) -> dict[str, str]:
    """In nanoseconds, as text; clocks of two hosts may differ, and a span never ends before it begins."""
    return {
        "startTimeUnixNano": str(int(begins_ms * 1e6)),
        "endTimeUnixNano": str(int(max(ends_ms, begins_ms) * 1e6)),
    }


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    def value(given: Any) -> dict[str, str]:
        return {"intValue": str(given)} if isinstance(given, int) else {"stringValue": str(given)}

    return [{"key": key, "value": value(given)} for key, given in values.items()]


def _id(size: int, *parts: Any) -> str:
    return hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=size).hexdigest()


def export(url: str, document: dict[str, Any]) -> None:
    """Send spans to a collector."""
    headers = {"Content-Type": "application/json", "User-Agent": f"headgate/{__version__}"}
    request = urllib.request.Request(url, json.dumps(document).encode(), headers, method="POST")  # noqa: S310 - http, see above
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_POST_S):
            pass
    except (OSError, urllib.error.URLError) as error:
        raise OtlpError(f"the collector at {url} does not take spans: {error}", hint="is it running there?") from error
