"""The connection of a user who is no operator: it has no logs, and asks the running service for what it reads.

`headgate.service.gate` is the other side. What a reader of a subscription does works the same as on a connection of an
operator; what only the service, relays and the Spark job do is refused there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as NatsError

from headgate.diagnostics import FABRIC
from headgate.fabric.client import Fabric
from headgate.fabric.crew import cancel_all
from headgate.protocol.port import FabricError, FencedError, LogFullError, LogInfo, NoAnswerError
from headgate.wire.logs import Log, Logs
from headgate.wire.sizes import EXPECTED, USER_REQUEST_BYTES

SUBJECT: Final = "Headgate-Subject"
"""The header of a request that says which subject it is about."""
_WAIT_S: Final = 15.0
_AGAIN_S: Final = 1.0
_ERRORS: Final = {"FencedError": FencedError, "LogFullError": LogFullError}


class GatedFabric(Fabric):
    """As `Fabric`, by requests to the service."""

    def __init__(self, client: Client, logs: Logs) -> None:
        super().__init__(client, logs)
        self._wakes: dict[str, set[asyncio.Event]] = {}
        self._seen: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._waiting: asyncio.Task[None] | None = None

    async def release(self) -> None:
        """End what waits for hints."""
        if self._waiting is not None:
            await cancel_all([self._waiting])
            self._waiting = None

    async def close(self) -> None:
        """Close the connection."""
        await self.release()
        await super().close()

    def _asked(self, verb: str) -> str:
        return self.logs.asked_by(self.user, verb)

    def _question(self, log: Log, request: Mapping[str, Any]) -> tuple[str, bytes]:  # noqa: ARG002 - by subject
        return self._asked("get"), json.dumps(dict(request)).encode()

    async def request(self, subject: str, data: bytes, timeout_s: float = 10.0) -> bytes:
        """Ask the service, as the user; a range that is missing is asked for through it too."""
        control, repair = self.logs.control("x")[:-1], self.logs.repair("x")[:-1]
        if subject.startswith(repair):
            return (await self._answered("repair", data, {SUBJECT: subject}, timeout_s))[0]
        if subject.startswith(control):
            if len(data) > USER_REQUEST_BYTES:
                raise FabricError(
                    f"the request has {len(data):,} bytes, a user's may have {USER_REQUEST_BYTES:,}",
                    hint="ask for fewer things at a time",
                )
            return await super().request(self._asked(subject.removeprefix(control)), data, timeout_s)
        raise FabricError(f"user {self.user!r} may not ask {subject}")

    async def _answered(
        self, verb: str, data: bytes, headers: dict[str, str] | None = None, timeout_s: float = 10.0
    ) -> tuple[bytes, dict[str, str]]:
        try:
            reply = await self._client.request(self._asked(verb), data, timeout=timeout_s, headers=headers)
        except (NatsError, TimeoutError) as error:
            raise NoAnswerError(f"the service does not answer: {error!r}", hint="is the deployment up?") from error
        found = dict(reply.headers or {})
        if "Status" in found:
            raise FabricError(f"{verb}: {found.get('Description', found['Status'])}")
        return bytes(reply.data), found

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        expect: int | None = None,
        replace: bool = False,
        message_id: str | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Publish rows into a stream, or store an acknowledgement through the service."""
        if subject.startswith((self.logs.published_any[:-1], self.logs.outboxes)):
            return await super().publish(
                subject, data, expect=expect, replace=replace, message_id=message_id, timeout_s=timeout_s
            )
        headers = {SUBJECT: subject, **({} if expect is None else {EXPECTED: str(expect)})}
        answer = json.loads((await self._answered("put", data, headers))[0])
        if "error" in answer:
            raise _ERRORS.get(answer.get("code", ""), FabricError)(answer["error"])
        return int(answer["seq"])

    async def subjects(self, log: Log, pattern: str) -> dict[str, int]:  # noqa: ARG002 - it is the log of tables
        """Whether a revision was published: all that a user may ask about subjects."""
        answer = json.loads((await self._answered("has", json.dumps({"subject": pattern}).encode()))[0])
        return dict(answer["has"])

    async def usage(self, log: Log) -> LogInfo | None:
        """How full a log is: a user is not told."""
        raise FabricError(f"user {self.user!r} may not ask about {log.name}")

    async def listen(self, subject: str, *wake: asyncio.Event) -> Callable[[], Awaitable[None]]:
        """Set events when something comes on a subject, as the service says. Returns what ends it."""
        self._wakes.setdefault(subject, set()).update(wake)
        self._changed.set()
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._wait(), name="hints")

        async def end() -> None:
            known = self._wakes.get(subject, set())
            known.difference_update(wake)
            if not known:
                self._wakes.pop(subject, None)
                self._seen.pop(subject, None)

        return end

    async def _wait(self) -> None:
        """Ask what has come, again and again; a question is left when there are new subjects to ask about."""
        while True:
            self._changed.clear()
            asked = {subject: self._seen.get(subject) for subject in self._wakes}
            if not asked:
                await self._changed.wait()
                continue
            question = asyncio.create_task(
                self._answered("wait", json.dumps({"seen": asked}).encode(), None, _WAIT_S), name="wait"
            )
            changed = asyncio.create_task(self._changed.wait())
            try:
                await asyncio.wait([question, changed], return_when=asyncio.FIRST_COMPLETED)
                if question.done():
                    self._heard(json.loads(question.result()[0]))
            except (FabricError, ValueError) as error:
                FABRIC.debug("what has come is asked for again: %s", error)
                await asyncio.sleep(_AGAIN_S)
            finally:
                await cancel_all([question, changed])

    def _heard(self, counts: dict[str, int]) -> None:
        for subject, count in counts.items():
            if subject in self._wakes and self._seen.get(subject) != count:
                self._seen[subject] = count
                for event in self._wakes[subject]:
                    event.set()
