"""Requests of clients: read from bytes, answered once, whatever they hold and however often they are repeated.

A client gives each request an id. It repeats a request that was not answered in time under the same id: what is under
way is not begun again, and what was done is not done twice; the same answer is given. Changes of the catalog remember
their answers in the transaction that makes them (`Edit.answered`), so this holds after a restart too. Context values
that went through a root log are remembered by the running service only: repeated after a restart they are set again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.fabric import cancel_all
from headgate.wire.packing import is_packed, unpack_text
from headgate.wire.sizes import USER_REQUEST_BYTES

KEPT_ANSWERS: Final = 1024
MAX_ID: Final = 64
_IN_THREAD_BYTES: Final = 64 << 10
UNPACKED_BYTES: Final = 256 << 20
"""How large a packed request of an operator may be; for those of users see `USER_REQUEST_BYTES`."""

Request = Mapping[str, Any]
Handler = Callable[[Request], Awaitable[dict[str, Any]]]

_log = logging.getLogger(__name__)


class RequestError(HeadgateError):
    """A request that cannot be read."""


def read_request(data: bytes, most: int = UNPACKED_BYTES) -> Request:
    """The JSON object of a request, which may be packed into at most so many bytes; an empty one of no bytes."""
    if not data:
        return {}
    data = _unpacked(data, most)
    try:
        found = json.loads(data.decode(), parse_constant=_refuse_constant)
    except RecursionError:
        raise RequestError("the request is nested too deep", hint="it needs less than ten levels") from None
    except UnicodeDecodeError as error:
        raise RequestError(
            f"the request is not text: byte {error.start} is not UTF-8", hint="send a JSON object"
        ) from None
    except ValueError as error:
        raise RequestError(f"the request is not JSON: {error}", hint="send a JSON object") from None
    if not isinstance(found, dict):
        raise RequestError(f"the request is {_kind(found)}", hint="send a JSON object")
    identity = found.get("request")
    if identity is not None and not (isinstance(identity, str) and 0 < len(identity) <= MAX_ID):
        raise RequestError("the id of the request is no text of 1 to 64 characters", hint="leave `request` out")
    return found


def _unpacked(data: bytes, most: int) -> bytes:
    try:
        return unpack_text(data, most)
    except ValueError as error:
        raise RequestError(f"the request cannot be unpacked: {error}", hint="send JSON, or ask for less") from None


def _too_large(size: int) -> RequestError:
    return RequestError(
        f"the request has {size:,} bytes, a user's may have {USER_REQUEST_BYTES:,}",
        hint="ask for fewer things at a time",
        kind="too-large",
    )


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def text_of(request: Request, key: str) -> str:
    """A text of a request."""
    return _whole(str(_typed(request, key, str, "a text")), key)


def texts_of(request: Request, key: str) -> list[str]:
    """A list of different texts of a request."""
    found = _typed(request, key, list, "a list of texts")
    if not all(isinstance(each, str) for each in found) or len(set(found)) != len(found):
        raise RequestError(f"{key!r} of the request is no list of different texts", hint="give each name once")
    return [_whole(each, key) for each in found]


def _whole(text: str, key: str) -> str:
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise RequestError(f"{key!r} of the request has half a character", hint="write both halves of it")
    return text


def mapping_of(request: Request, key: str) -> dict[str, Any]:
    """A mapping of a request."""
    return dict(_typed(request, key, dict, "a mapping"))


def _typed(request: Request, key: str, kind: type, expected: str) -> Any:
    if key not in request:
        raise RequestError(f"the request has no {key!r}", hint=f"give it as {expected}")
    if not isinstance(request[key], kind):
        raise RequestError(f"{key!r} of the request is {_kind(request[key])}", hint=f"give it as {expected}")
    return request[key]


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "a truth value", type(None): "nothing"}
    return names.get(type(value), "a number")


class Answers:
    """Turns handlers of requests into handlers of bytes that always answer, and that do a repeated request once."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, asyncio.Task[dict[str, Any]]] = OrderedDict()

    def answering(
        self, handler: Handler, *, once: bool = True, admit: Callable[[Request], Request] | None = None
    ) -> Callable[[bytes], Awaitable[bytes]]:
        """The handler as `Fabric.serve` takes it; one that only reports need not remember what it said (`once`).

        `admit` looks at a request before anything is done, and may refuse or rewrite it.
        """

        async def answer(data: bytes) -> bytes:
            try:
                most = UNPACKED_BYTES if admit is None else USER_REQUEST_BYTES
                if admit is not None and len(data) > most:
                    raise _too_large(len(data))
                large = len(data) > _IN_THREAD_BYTES or is_packed(data)
                request = await asyncio.to_thread(read_request, data, most) if large else read_request(data)
                request = request if admit is None else admit(request)
                document = await (self._once(handler, request) if once else handler(request))
            except HeadgateError as error:
                document = {"error": str(error), "kind": error.kind}
            except (KeyError, TypeError, ValueError, RecursionError) as error:
                _log.warning("a request could not be read", exc_info=error)
                said = f"the request cannot be read: {type(error).__name__}: {error}"[:500]
                document = {"error": said, "kind": "invalid"}
            return json.dumps(document).encode()

        return answer

    async def _once(self, handler: Handler, request: Request) -> dict[str, Any]:
        identity = request.get("request")
        if identity is None:
            return await handler(request)
        task = self._known.get(identity)
        if task is None:
            task = self._known[identity] = asyncio.create_task(_run(handler, request))
            task.add_done_callback(lambda done: self._ended(identity, done))
        return dict(await asyncio.shield(task))

    async def close(self) -> None:
        """End what is under way; who asked asks again, and what was not made yet is made then."""
        await cancel_all(list(self._known.values()))

    def _ended(self, identity: str, task: asyncio.Task[dict[str, Any]]) -> None:
        """Remember what was done; what was refused may be tried again under the same id."""
        if task.cancelled() or task.exception() is not None:
            self._known.pop(identity, None)
        finished = [each for each, known in self._known.items() if known.done()]
        for each in finished[: max(len(finished) - KEPT_ANSWERS, 0)]:
            del self._known[each]


async def _run(handler: Handler, request: Request) -> dict[str, Any]:
    return await handler(request)
