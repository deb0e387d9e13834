"""Logs as a whole: made, purged, deleted, and what the server knows of them."""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Final, Self

from nats.errors import Error as NatsError
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError

from headgate.diagnostics import FABRIC
from headgate.protocol.port import FabricError, LogInfo, NoLogError
from headgate.wire.logs import Log

_EXISTS: Final = 10058
_NO_LOG: Final = 10059


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Whatever NATS raises, as an error of ours."""
    try:
        yield
    except APIError as error:
        kind = NoLogError if error.err_code == _NO_LOG else FabricError
        raise kind(f"{what}: {error.description}") from error
    except (NatsError, TimeoutError, OSError) as error:
        raise FabricError(f"{what}: {error!r}") from error


@dataclass(frozen=True, slots=True)
class LogState:
    """A log as the server describes it: its metadata, its last sequence, how many messages it holds and has lost.

    `lost` are the sequences of messages that the server found to be damaged when it opened its files.
    """

    name: str
    marks: Mapping[str, str]
    last: int
    messages: int
    lost: tuple[int, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From the server's answer."""
        config, state = document["config"], document["state"]
        lost = (state.get("lost") or {}).get("msgs") or ()
        return cls(config["name"], config.get("metadata") or {}, state["last_seq"], state["messages"], tuple(lost))


class Administration(ABC):
    """The part of a connection that looks after logs."""

    prefix = "$JS.API"
    """What the subjects begin with by which JetStream is asked."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self.marks: Mapping[str, str] = {}
        """Written into the metadata of every log that is made through this connection: whose it is."""

    @abstractmethod
    async def request(self, subject: str, data: bytes, timeout_s: float = ...) -> bytes:
        """Ask a service and return its answer."""

    async def ensure(self, log: Log, marks: Mapping[str, str] | None = None, first: int | None = None) -> None:
        """Make a log, or bring it to the table's limits; what it holds is kept.

        A log that is made gets `marks`, and those of the connection, as its metadata, and `first` as the sequence of
        its first message. One that exists keeps its own.
        """
        config = api.StreamConfig(
            name=log.name,
            subjects=list(log.subjects),
            retention=api.RetentionPolicy.LIMITS,
            storage=api.StorageType.FILE,
            discard=api.DiscardPolicy.NEW,
            discard_new_per_subject=log.max_per_subject > 0 and not log.latest_only,
            max_bytes=log.max_bytes,
            max_msgs_per_subject=log.max_per_subject,
            max_age=0,
            duplicate_window=log.id_window_s,
            allow_direct=True,
            allow_rollup_hdrs=True,
            metadata={**self.marks, **(marks or {})} or None,
            first_seq=first,
            republish=None if log.news is None else api.RePublish(*log.news, headers_only=True),
        )
        with translated(f"cannot make the log {log.name}"):
            try:
                await self._js.add_stream(config)
            except APIError as error:
                if error.err_code != _EXISTS:
                    raise
                known = (await self._js.stream_info(log.name)).config
                config.metadata, config.first_seq = known.metadata, known.first_seq
                await self._js.update_stream(config)

    async def purge(self, log: Log, subject: str, below: int) -> None:
        """Delete a subject's messages with a sequence below this one. Only the owner of a log calls this."""
        if below <= 1:  # there are none, and the server takes a 0 for "all of them"
            return
        with translated(f"cannot purge {log.name}"):
            await self._js.purge_stream(log.name, subject=subject, seq=below)

    async def remove(self, log: Log, sequence: int) -> None:
        """Delete one message, such as one that cannot be read."""
        with translated(f"cannot delete message {sequence} of {log.name}"):
            await self._js.delete_msg(log.name, sequence)

    async def info(self, log: Log) -> api.StreamInfo | None:
        """What the server knows of a log, None when it does not exist."""
        with translated(f"cannot ask about {log.name}"):
            try:
                return await self._js.stream_info(log.name)
            except NotFoundError:
                return None

    async def usage(self, log: Log) -> LogInfo | None:
        """How full a log is, None when there is none."""
        info = await self.info(log)
        return None if info is None else LogInfo(info.state.bytes, info.state.messages)

    async def subjects(self, log: Log, pattern: str) -> dict[str, int]:
        """Subjects of a log that hold messages, and how many; none when there is no such log."""
        found: dict[str, int] = {}
        try:
            async for answer in self._pages(f"STREAM.INFO.{log.name}", {"subjects_filter": pattern}, found):
                found |= answer["state"].get("subjects") or {}
        except NoLogError:
            return {}
        return found

    async def infos(self, subject: str) -> dict[str, LogState]:
        """What the server knows of every log that takes messages of a subject (wildcards allowed), by name."""
        found: dict[str, LogState] = {}
        async for answer in self._pages("STREAM.LIST", {"subject": subject}, found):
            found |= {each["config"]["name"]: LogState.of(each) for each in answer.get("streams") or []}
        return found

    async def names(self, subject: str) -> list[str]:
        """The names of all logs that take messages of a subject (wildcards allowed), in order."""
        found: list[str] = []
        async for answer in self._pages("STREAM.NAMES", {"subject": subject}, found):
            found += answer.get("streams") or []
        return sorted(found)

    async def _pages(self, verb: str, asked: Mapping[str, Any], found: Sized) -> AsyncIterator[dict[str, Any]]:
        """The answers of JetStream to a question with many answers; the caller adds each page to `found`."""
        while True:
            before = len(found)
            question = json.dumps({**asked, "offset": before}).encode()
            answer: dict[str, Any] = json.loads(await self.request(f"{self.prefix}.{verb}", question))
            if error := answer.get("error"):
                kind = NoLogError if error.get("err_code") == _NO_LOG else FabricError
                raise kind(f"cannot ask about {verb}: {error.get('description')}")
            yield answer
            if len(found) == before or len(found) >= int(answer.get("total", 0)):
                return

    async def clear(self, log: Log, subject: str) -> None:
        """Delete every message of a subject (wildcards allowed), the last one too; nothing when there is no log."""
        with translated(f"cannot clear {log.name}"):
            try:
                await self._js.purge_stream(log.name, subject=subject)
            except NotFoundError:
                FABRIC.debug("there is no log %s to clear", log.name)

    async def delete(self, log: Log | str) -> None:
        """Delete a whole log."""
        name = log if isinstance(log, str) else log.name
        with translated(f"cannot delete {name}"):
            await self._js.delete_stream(name)

    async def discard(self, log: Log | str) -> None:
        """Delete a whole log, if it is there."""
        try:
            await self.delete(log)
        except NoLogError:
            FABRIC.debug("there is no log %s to delete", log)
