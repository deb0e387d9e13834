"""Receiving rows over HTTP: as server-sent events for as long as the client stays, or in bulk, one answer at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal

import pyarrow as pa
from fastapi import Header, Query, Request
from pydantic import Field
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from headgate.api.deliveries import RowTexts, given_up, rows
from headgate.api.gateway import Gateway
from headgate.api.problems import problem_of
from headgate.api.readers import HttpReader
from headgate.api.routing import Here, open_to_users, router
from headgate.api.subscriptions import Strict
from headgate.client import Delivery
from headgate.errors import HeadgateError
from headgate.fabric import cancel_all
from headgate.wire.message import json_text

routes = router("receiving")

ARROW: Final = "application/vnd.apache.arrow.stream"
LINES: Final = "application/x-ndjson"
_ALIVE_S: Final = 10.0
_RETRY_MS: Final = 1000
_MORE_S: Final = 0.1
_CHUNK_ROWS: Final = 2000

Position = Annotated[
    str | None, Query(max_length=16_384, description="Read on after this position, which confirms everything up to it.")
]
MaxRows = Annotated[int, Query(ge=1, le=10_000, description="How many rows an event has at most.")]
Ack = Annotated[
    Literal["held", "client"],
    Query(description="`held`: counts as delivered 10 s after it was written; `client`: only when it is confirmed."),
]
Peek = Annotated[bool, Query(description="Read along and acknowledge nothing.")]


class Confirmation(Strict):
    """The position of the last event that was dealt with."""

    position: Annotated[str, Field(max_length=16_384)]


@routes.get(
    "/subscriptions/{name}/events",
    summary="Receive rows as server-sent events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
@open_to_users
async def receive_events(
    here: Here,
    name: str,
    last_event_id: Annotated[str | None, Header(max_length=16_384)] = None,
    position: Position = None,
    max_rows: MaxRows = 200,
    ack: Ack = "held",
    peek: Peek = False,
) -> Response:
    """Events are `rows`, `given-up` (what was given up in a range) and `error`; the id of an event is the position."""
    place = last_event_id or position
    reader = await here.readers.open(name, place, max_rows=max_rows, held=ack == "held", peek=peek)
    return Passing(here, reader, "text/event-stream", _event_stream(reader, here.texts))


@routes.get("/gateway", summary="What readers are served from: by site, how many there are and the bytes in memory")
async def read_gateway(here: Here) -> dict[str, Any]:
    """Readers of users are counted with those of operators."""
    return {"site": here.part.site, "sites": here.feeds.figures}


@routes.post("/subscriptions/{name}/confirm", summary="Confirm what was received", status_code=204)
@open_to_users
async def confirm(here: Here, name: str, body: Confirmation) -> None:
    """For whoever reads with `ack=client`: rows up to the position count as delivered."""
    here.readers.confirm(name, body.position)


@routes.get(
    "/subscriptions/{name}/rows",
    summary="Receive what is there, in bulk: JSON, JSON lines or Arrow",
    response_class=Response,
    responses={200: {"content": {kind: {"schema": {}} for kind in ("application/json", LINES, ARROW)}}},
)
@open_to_users
async def receive_rows(
    request: Request,
    here: Here,
    name: str,
    position: Position = None,
    max_rows: Annotated[int, Query(ge=1, le=1_000_000, description="How many rows to return at most.")] = 10_000,
    wait_s: Annotated[float, Query(ge=0, le=30, description="How long to wait for the first rows.")] = 1.0,
    peek: Peek = False,
) -> Response:
    """Rows are confirmed by the next request, with the last `position` of this answer; without it they come again.

    JSON lines have one line for each range, Arrow (an IPC stream) one record batch, with the rest of the line as the
    batch's custom metadata `headgate`. Ask for them by `Accept`.
    """
    accept = request.headers.get("accept", "")
    limit = min(max_rows, _CHUNK_ROWS)
    reader = await here.readers.open(name, position, max_rows=limit, held=False, peek=peek)
    found = _until(reader, max_rows, wait_s)
    if ARROW in accept:
        return Passing(here, reader, ARROW, _arrow(found))
    if LINES in accept:
        return Passing(here, reader, LINES, _lines(found))
    return Passing(here, reader, "application/json", _array(found))


class Passing(Response):
    """A response that passes on what a reader gets. Its client sets the pace: what it does not take is not read."""

    def __init__(self, gateway: Gateway, reader: HttpReader, media_type: str, body: AsyncIterator[bytes]) -> None:
        super().__init__(media_type=media_type, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._gateway = gateway
        self._reader = reader
        self._body = body

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send until there is nothing more, or the client has gone."""
        work = [asyncio.create_task(each) for each in (self._send(send), _gone(receive))]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_all(work)
            self._gateway.readers.closed(self._reader)
        if not work[0].cancelled() and (error := work[0].exception()) is not None:
            raise error

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for part in self._body:
                await send(_part(part, more=True))
        finally:
            await self._body.aclose()  # type: ignore[attr-defined] # it is a generator
        await send(_part(b"", more=False))


def _part(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _gone(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _event_stream(reader: HttpReader, texts: RowTexts) -> AsyncIterator[bytes]:
    yield f"retry: {_RETRY_MS}\n\n".encode()
    said_s = time.monotonic()
    try:
        async for delivery in reader:
            if delivery is not None:
                yield event_text(delivery, texts).encode()
                reader.written(delivery.position)
            elif time.monotonic() > said_s + _ALIVE_S:
                yield b": still here\n\n"
            else:
                continue
            said_s = time.monotonic()
    except HeadgateError as error:
        yield f"event: error\ndata: {json_text(problem_of(error))}\n\n".encode()


def event_text(delivery: Delivery, texts: RowTexts) -> str:
    """A delivery as events. Its last one has the position as its id; a bare range only moves the id on.

    A client that is cut off before that last one resumes at the id before, and gets the whole delivery again.
    """
    found = [f"event: {name}\ndata: {document}\n" for name, document in texts.events(delivery)]
    last = found.pop() if found else ""
    return "".join(f"{each}\n" for each in found) + f"{last}id: {delivery.position}\n\n"


async def _until(reader: HttpReader, max_rows: int, wait_s: float) -> AsyncIterator[Delivery]:
    """Deliveries until there are so many rows, or none come for a moment; the first ones are waited for longer."""
    deliveries = reader.__aiter__()
    left, wait = max_rows, wait_s
    following: asyncio.Task[Delivery | None] | None = None
    try:
        while left > 0:
            following = following or asyncio.ensure_future(anext(deliveries))
            began_s = time.monotonic()
            done, _ = await asyncio.wait([following], timeout=max(wait, _MORE_S))
            if not done:
                return
            delivery, following = following.result(), None
            if delivery is None:
                wait -= time.monotonic() - began_s
                if wait <= 0:
                    return
                continue
            wait = _MORE_S
            yield delivery
            left -= len(delivery)
            reader.limit(left)
    except StopAsyncIteration:
        return
    finally:
        if following is not None:
            await cancel_all([following])
        await deliveries.aclose()  # type: ignore[attr-defined] # it is a generator


def _document(delivery: Delivery) -> dict[str, Any]:
    lost = given_up(delivery) or {}
    found = rows(delivery) or {"after": delivery.after, "upto": delivery.upto, "rows": []}
    return {**lost, **found, "position": delivery.position}


async def _lines(found: AsyncIterator[Delivery]) -> AsyncIterator[bytes]:
    async for delivery in found:
        yield (json_text(_document(delivery)) + "\n").encode()


async def _array(found: AsyncIterator[Delivery]) -> AsyncIterator[bytes]:
    first = True
    yield b'{"deliveries":['
    async for delivery in found:
        yield (("" if first else ",") + json_text(_document(delivery))).encode()
        first = False
    yield b"]}"


async def _arrow(found: AsyncIterator[Delivery]) -> AsyncIterator[bytes]:
    """An IPC stream; where the subscription was changed to other columns it ends, and the next answer has them."""
    sink = _Sink()
    writer: Any = None
    schema: pa.Schema | None = None
    async for delivery in found:
        batch = pa.RecordBatch.from_arrays(
            [pa.array(delivery.seqs), *delivery.rows.columns], names=["_seq", *delivery.rows.schema.names]
        )
        if schema is not None and batch.schema != schema:
            break
        if writer is None:
            schema = batch.schema
            writer = pa.ipc.new_stream(sink.file, schema)
        about = {**(given_up(delivery) or {}), "after": delivery.after, "upto": delivery.upto}
        writer.write_batch(batch, custom_metadata={"headgate": json_text({**about, "position": delivery.position})})
        yield sink.take()
    if writer is not None:
        writer.close()
        yield sink.take()


class _Sink:
    """Collects what a writer writes, to be taken away in parts."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.file = pa.PythonFile(self, mode="w")
        self.closed = False

    def write(self, data: Any) -> int:
        """Take what the writer writes."""
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """The writer is done."""

    def take(self) -> bytes:
        """What was written since."""
        found, self._parts = b"".join(self._parts), []
        return found
