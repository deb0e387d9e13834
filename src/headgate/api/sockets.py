"""Receiving rows over a web socket: one connection, many subscriptions, each at the pace at which its client reads."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from headgate.api.access import identify
from headgate.api.gateway import Gateway
from headgate.api.problems import ApiError, problem_of
from headgate.api.readers import HttpReader
from headgate.client import Delivery
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Crew
from headgate.wire.message import json_text

WINDOW: Final = 8
"""Deliveries that a client may have without having confirmed them, where it confirms them itself."""
MOST: Final = 1000
"""Subscriptions that one connection may have open."""
_REFUSED: Final = 1008


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    subscription: Annotated[str, Field(max_length=256)]


class Open(_Strict):
    """Begin to read a subscription."""

    op: Literal["open"]
    position: Annotated[str | None, Field(max_length=16_384)] = None
    max_rows: Annotated[int, Field(ge=1, le=10_000)] = 200
    ack: Literal["held", "client"] = "held"
    peek: bool = False


class Confirm(_Strict):
    """Everything up to a position was dealt with."""

    op: Literal["confirm"]
    position: Annotated[str, Field(max_length=16_384)]


class Close(_Strict):
    """Read a subscription no more."""

    op: Literal["close"]


_REQUEST: Final[TypeAdapter[Open | Confirm | Close]] = TypeAdapter(
    Annotated[Open | Confirm | Close, Field(discriminator="op")]
)


class _Opened:
    """A subscription on a connection."""

    def __init__(self, reader: HttpReader, *, window: int | None) -> None:
        self.reader = reader
        self.task: asyncio.Task[None] | None = None
        self._unconfirmed: list[str] = []
        self._window = window
        self._room = asyncio.Event()
        self._room.set()

    def confirm(self, position: str) -> None:
        """The client has everything up to a position."""
        self.reader.confirm(position)
        if position in self._unconfirmed:
            del self._unconfirmed[: self._unconfirmed.index(position) + 1]
            self._room.set()

    async def sent(self, delivery: Delivery) -> None:
        """A delivery was written; wait while too many are not confirmed."""
        self.reader.written(delivery.position)
        if self._window is not None:
            self._unconfirmed.append(delivery.position)
            if len(self._unconfirmed) >= self._window:
                self._room.clear()
                await self._room.wait()


class Connection:
    """One client of a web socket."""

    def __init__(self, gateway: Gateway, socket: WebSocket, crew: Crew) -> None:
        self._gateway = gateway
        self._socket = socket
        self._crew = crew
        self._opened: dict[str, _Opened] = {}
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Take requests until the client goes."""
        try:
            while True:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                await self._take(message.get("text") or message.get("bytes") or "")
        except WebSocketDisconnect:
            return
        finally:
            for opened in list(self._opened.values()):
                self._gateway.readers.closed(opened.reader)

    async def _take(self, text: str | bytes) -> None:
        try:
            request = _REQUEST.validate_json(text)
        except ValidationError as error:
            said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:4])
            await self._say("error", problem=problem_of(ApiError(f"the message cannot be read: {said}")))
            return
        try:
            await self._do(request)
        except HeadgateError as error:
            await self._say("error", subscription=request.subscription, problem=problem_of(error))

    async def _do(self, request: Open | Confirm | Close) -> None:
        name = request.subscription
        match request:
            case Open():
                await self._open(request)
            case Confirm():
                self._known(name).confirm(request.position)
            case Close():
                opened = self._known(name)
                opened.reader.end()

    def _known(self, name: str) -> _Opened:
        if name not in self._opened:
            raise ApiError(f"{name!r} is not open on this connection", hint="open it first", kind="conflict")
        return self._opened[name]

    async def _open(self, request: Open) -> None:
        name = request.subscription
        if name in self._opened:
            raise ApiError(f"{name!r} is open on this connection already", hint="close it first", kind="conflict")
        if len(self._opened) >= MOST:
            raise ApiError(f"a connection has at most {MOST:,} subscriptions", hint="open another", kind="conflict")
        held = request.ack == "held"
        reader = await self._gateway.readers.open(
            name, request.position, max_rows=request.max_rows, held=held, peek=request.peek
        )
        opened = self._opened[name] = _Opened(reader, window=None if held else WINDOW)
        await self._say("opened", subscription=name)
        opened.task = self._crew.spawn(self._pass_on(name, opened))

    async def _pass_on(self, name: str, opened: _Opened) -> None:
        problem: dict[str, Any] | None = None
        try:
            async for delivery in opened.reader:
                if delivery is not None:
                    for text in self._told(name, delivery):
                        await self._send(text)
                    await opened.sent(delivery)
        except HeadgateError as error:
            problem = problem_of(error)
        finally:
            self._gateway.readers.closed(opened.reader)
            self._opened.pop(name, None)
        if problem is not None:
            await self._say("error", subscription=name, problem=problem)
        await self._say("closed", subscription=name)

    def _told(self, name: str, delivery: Delivery) -> list[str]:
        """The messages of a delivery; its last one has the position. The text of rows is that of all who get them."""
        bare = json_text({"after": delivery.after, "upto": delivery.upto})
        found = self._gateway.texts.events(delivery) or [("range", bare)]
        heads = [json_text({"event": kind, "subscription": name})[:-1] for kind, _ in found]
        texts = [f"{head},{document[1:]}" for head, (_, document) in zip(heads, found, strict=True)]
        texts[-1] = f'{texts[-1][:-1]},"position":{json_text(delivery.position)}}}'
        return texts

    async def _say(self, event: str, **document: Any) -> None:
        await self._send(json_text({"event": event, **document}))

    async def _send(self, text: str) -> None:
        async with self._writing:
            with noted(SERVICE, "the client of a web socket has gone", WebSocketDisconnect, RuntimeError):
                await self._socket.send_text(text)


def install(app: FastAPI) -> None:
    """Add the web socket to an application."""

    @app.websocket("/api/socket")
    async def socket(websocket: WebSocket) -> None:
        gateway: Gateway = websocket.app.state.gateway
        try:
            visitor = await identify(websocket)
            gateway = gateway if visitor.user is None else gateway.of_user(visitor.user)
        except HeadgateError as error:
            await websocket.close(_REFUSED, str(error)[:120])
            return
        await websocket.accept()
        async with Crew() as crew:
            await Connection(gateway, websocket, crew).run()
