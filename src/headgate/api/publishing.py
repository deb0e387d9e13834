"""Publishing rows over HTTP: checked at the door where that is asked for, and answered when they are stored."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import Annotated, Any, Final, Literal

import pyarrow as pa
from fastapi import Header, Query, Request

from headgate.api.bodies import KINDS, Body, read_bodies
from headgate.api.gateway import Gateway, known
from headgate.api.problems import ApiError
from headgate.api.routing import Here, open_to_users, router
from headgate.client import ClientError
from headgate.client.entrance import Entrance
from headgate.client.publishing import to_table
from headgate.model import Stream
from headgate.wire.message import json_text

routes = router("publishing")

_NAMED: Final = 100
LEAST_BYTES: Final = 64
"""As which a row counts at least where bytes are limited."""

Check = Annotated[
    Literal["none", "each", "all"],
    Query(
        description="`none`: what does not fit becomes a dead letter of the stream; `each`: it is refused and the rest "
        "is stored; `all`: nothing is stored unless every row fits."
    ),
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=256,
        pattern=r"^[!-~]+$",
        description="Rows that are sent again under the same key, within two hours, are stored once.",
    ),
]
AtSite = Annotated[
    str | None, Query(description="Store them at this site, from where they go up to the root of the stream.")
]


@routes.post(
    "/streams/{name}/rows",
    summary="Publish rows into a stream whose source is `nats`",
    openapi_extra={"requestBody": {"required": True, "content": {kind: {"schema": {}} for kind in KINDS}}},
)
@open_to_users
async def publish(
    request: Request, here: Here, name: str, check: Check = "none", key: Key = None, site: AtSite = None
) -> dict[str, Any]:
    """Answered once all rows are stored. A CloudEvent is stored once by its source and id."""
    stream = known((await here.snapshot()).deployment.streams, name, "stream")
    if here.user is not None and not here.user.may_publish(name, site):
        raise ApiError(f"user {here.user.name!r} may not publish into {name!r}", hint="an operator may", kind="denied")
    _admit(here)
    entrance = await here.client.entrance(name, site)
    data = await request.body()
    digest = hashlib.sha256(data).hexdigest()
    if key is not None:
        here.keys.check(f"{name}\n{key}", digest)
    bodies = await asyncio.to_thread(read_bodies, data, dict(request.headers), stream)
    _took(here, len(data), sum(body.rows.num_rows + len(body.raw) for body in bodies))
    misfits = [each for body in bodies for each in body.misfits]
    if misfits and check == "all":
        raise _refused(misfits, stored=0)
    stored, sequence = 0, 0
    for number, body in enumerate(bodies):
        identity = body.key if key is None else f"{key}\n{digest}\n{number}"
        count, place = await store_body(here, stream, body, identity, dead=check == "none", entrance=entrance)
        stored, sequence = stored + count, max(sequence, place)
    if misfits and check == "each":
        raise _refused(misfits, stored=stored)
    return {"stored": stored, "misfits": [each.document() for each in misfits[:_NAMED]], "sequence": sequence}


def _admit(here: Gateway) -> None:
    """Refuse a user who has published more than it may, before the rows are read."""
    wait_s = 0.0 if here.user is None else here.published.wait_s(here.user.name, time.monotonic())
    if here.user is not None and wait_s > 0:
        rate = here.part.limits.publish_bytes_per_s or 0.0
        raise ApiError(
            f"{here.user.name!r} publishes more than it may, {rate:,.0f} bytes a second; nothing was stored (try again "
            f"in {wait_s:.1f} s)",
            hint="publish less, or ask an operator for a higher limit (`limits: {publish: ...}`)",
            kind="too-many",
            retry_after_s=wait_s,
        )


def _took(here: Gateway, size: int, rows: int) -> None:
    """Count what a user publishes; a row counts as `LEAST_BYTES` at least, as one that does not fit is a message."""
    if here.user is not None:
        here.published.took(here.user.name, max(size, rows * LEAST_BYTES), time.monotonic())


async def store_body(
    here: Gateway, stream: Stream, body: Body, identity: str | None, *, dead: bool, entrance: Entrance | None = None
) -> tuple[int, int]:
    """Store the rows of a body, with `dead` also those that will be dead letters; how many, and the last sequence."""
    whose = "" if here.user is None else f"{here.user.name}\n"  # nobody's keys make another's rows a repetition
    key = None if identity is None else hashlib.sha256(f"{whose}{stream.name}\n{identity}".encode()).hexdigest()[:40]
    stored, place = body.rows.num_rows, 0
    if stored:
        place = await here.client.publish(
            stream.name, body.rows, key=key, site=None if entrance is None else entrance.site
        )
    entrance = entrance or Entrance.at_home(here.client.fabric, stream.name)
    for number, row in enumerate(body.raw if dead else ()):
        message = _as_written(row, arrow=stream.source.options.get("payload", "arrow") == "arrow")
        identity = None if key is None else f"{key}-{number}"
        place = await entrance.fabric.publish(entrance.rows, message, message_id=identity)
        stored += 1
    return stored, place


def _as_written(row: Any, *, arrow: bool) -> bytes:
    """A message with a row that does not fit: what is wrong with it is found where dead letters are made.

    A row that no Arrow table can hold goes as text, which is no Arrow stream either.
    """
    text = json_text(row).encode()
    if not arrow or not isinstance(row, dict):
        return text
    try:
        table = to_table([row])
    except (ClientError, OverflowError, pa.ArrowException):
        return text
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _refused(misfits: list[Any], *, stored: int) -> ApiError:
    what = "row does not fit" if len(misfits) == 1 else "rows do not fit"
    first = misfits[0]
    return ApiError(
        f"{len(misfits):,} {what} the stream, {stored:,} stored; row {first.row}: {first.reason}",
        members={"stored": stored, "count": len(misfits), "misfits": [each.document() for each in misfits[:_NAMED]]},
    )
