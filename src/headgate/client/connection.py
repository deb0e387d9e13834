"""A connection to a deployment: what is asked of the running service, and what it has published."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from headgate.client.errors import ClientError
from headgate.closing import AsyncClosing
from headgate.fabric import Fabric, NoAnswerError
from headgate.fabric.connecting import connect_as
from headgate.fabric.membership import Membership, connect_near
from headgate.fabric.server import running_url
from headgate.protocol.published import head_revision
from headgate.relay.tables import Tables
from headgate.wire.logs import Logs
from headgate.wire.packing import pack_text
from headgate.wire.snapshot import Snapshot

DEFAULT_STATE_DIR = Path(".headgate")
_TRIES: Final = 3
_PATIENCE_S: Final = 30.0


class BusyError(ClientError):
    """The service could not make a change for now, and made none: try again."""

    usual_kind = "busy"


def find_url(url: str | None, state_dir: Path | None) -> str:
    """The address of NATS: as given, or of the deployment that runs in a state directory."""
    if url is not None:
        return url
    place = state_dir or DEFAULT_STATE_DIR
    found = running_url(place)
    if found is None:
        raise ClientError(
            f"nothing is running in {place}", hint="start it with `headgate up`, or give --state-dir or --nats"
        )
    return found


class ServiceConnection(AsyncClosing):
    """A connection to a deployment. Use it as an async context manager."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.tables = Tables(fabric)
        self._myself = {"origin": f"{socket.gethostname()} pid {os.getpid()}", "operator": fabric.user}

    @classmethod
    async def connect(
        cls, url: str | None = None, *, state_dir: Path | None = None, namespace: str = "hg", **options: Any
    ) -> Self:
        """Connect by address, or to the deployment that runs in a state directory.

        With the state directory of a host that has joined, the inboxes of its site are read at its own server.
        """
        member = Membership.read(state_dir or DEFAULT_STATE_DIR) if url is None else None
        if member is not None:
            return cls(await connect_near(member, state_dir or DEFAULT_STATE_DIR, options))
        return cls(await connect_as(find_url(url, state_dir), Logs(namespace), **options))

    async def close(self) -> None:
        """Release what is held, and close the connection."""
        await self.release()
        await self.fabric.close()

    async def release(self) -> None:
        """Leave the connection to whoever else uses it."""
        await self.fabric.release()

    async def snapshot(self) -> Snapshot:
        """The deployment as it is now."""
        revision = await head_revision(self.fabric)
        if revision is None:
            hint = "is `headgate up` running, is --namespace right?"
            raise ClientError("no deployment is published here", hint=hint, kind="unavailable")
        return await self.tables.snapshot(revision)

    async def control(
        self, verb: str, *, request: str | None = None, timeout_s: float = 10.0, **arguments: Any
    ) -> dict[str, Any]:
        """Ask the running service for a change or a report.

        A request that is not answered in time is repeated, and it is never done twice: it has an id. Who wants to go on
        trying after an error, or after a restart of this program, gives an id of their own as `request`. Who asks more
        often than is allowed waits here, for at most 30 s. `timeout_s` is how long each try waits for an answer.

        Raises:
            BusyError: The catalog is held by another program, or too much was asked for; nothing was changed.
            ClientError: The request was refused, or the service does not answer.
        """
        identity = request or uuid.uuid4().hex
        data = pack_text(json.dumps({**arguments, "request": identity, **self._myself}).encode())
        if len(data) > self.fabric.max_payload:
            taken = f"the request has {len(data):,} bytes, and NATS takes {self.fabric.max_payload:,}"
            raise ClientError(taken, hint="ask for less at a time", kind="too-large")
        given_up_s = time.monotonic() + _PATIENCE_S
        while True:
            document = await self._asked(verb, data, identity, timeout_s)
            again_s = document.get("retry_after_s")
            if again_s is None or time.monotonic() + again_s > given_up_s:
                break
            await asyncio.sleep(again_s)
        if "error" in document:
            kind = document.get("kind")
            raise (BusyError if kind == BusyError.usual_kind else ClientError)(document["error"], kind=kind)
        return document

    async def _asked(self, verb: str, data: bytes, identity: str, timeout_s: float) -> dict[str, Any]:
        """The answer to a request, which may be an error; it is repeated while there is none."""
        for tries_left in reversed(range(_TRIES)):
            try:
                answer = await self.fabric.request(self.fabric.logs.control(verb), data, timeout_s)
                break
            except NoAnswerError as error:
                if not tries_left:
                    raise ClientError(
                        f"the service does not answer to {verb!r}; what was asked for may still be done",
                        hint=f"look with `headgate status`, or ask again with request={identity!r}: it is done once",
                        kind="unavailable",
                    ) from error
        try:
            document = json.loads(answer)
        except ValueError as error:
            raise ClientError(f"the answer to {verb!r} cannot be read: {error}") from error
        if not isinstance(document, dict):
            raise ClientError(f"the answer to {verb!r} cannot be read: it is no JSON object")
        return document

    async def subscribe_many(
        self, subscriptions: Mapping[str, Mapping[str, Any]], *, change: bool = False, timeout_s: float = 600.0
    ) -> dict[str, Any]:
        """Make many subscriptions in one change: all of them or none, and one revision.

        Each is given by its name with the keys of the deployment file (`stream`, `site`, `where`, ...). With `change`
        those that are there already are changed. Returns the `revision` from which they count, and their `count`.
        """
        return await self.control(
            "subscribe",
            timeout_s=timeout_s,
            subscriptions={name: dict(each) for name, each in subscriptions.items()},
            change=change,
            brief=True,
        )

    async def move(self, name: str, site: str) -> int:
        """Deliver a subscription at another site; returns the revision from which it is.

        Whoever reads it, now or later, gets what the old site still holds first, and nothing twice.
        """
        return int((await self.control("move", name=name, site=site))["revision"])

    async def unsubscribe(self, name: str) -> int:
        """End a subscription; returns the revision from which it is not served."""
        return int((await self.control("unsubscribe", name=name))["revision"])

    async def set_context(self, name: str, **values: Any) -> int:
        """Set values of a subscriber's context; returns the place in its stream's order from which they hold.

        Batches that are pinned after it are matched with them. The catalog takes them over later, in bulk.
        """
        return int((await self.control("context", name=name, values=values))["place"])

    async def set_contexts(self, contexts: Mapping[str, Mapping[str, Any]]) -> int:
        """Set values of several subscribers, by name, all or none of them; as `set_context`, and much cheaper each."""
        return int((await self.control("context", contexts=contexts))["place"])

    async def refine(self, name: str, *, add: str | None = None, **resolution: Any) -> list[dict[str, Any]]:
        """Give a running subscription of a gridded stream another resolution, as in ``refine("map", space="1/2")``.

        What is not named of `space` and `time` stays. Later rows come at the new resolution; rows that came before do
        not come again. The answer is what is still missing of the past, as resolutions.

        With `add` the subscription stays as it is, and what it lacks is subscribed to under that name, from the
        earliest row on that the log holds: both together are the finer field, with its past, and no row comes twice.
        """
        return list((await self.control("refine", name=name, resolution=resolution, add=add))["missing"])
