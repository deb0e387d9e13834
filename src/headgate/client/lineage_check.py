"""Whether a reader's place belongs to the stream as it is now: positions and acknowledgements of another past.

A stream whose rows were lost begins a new incarnation, in which the same sequence numbers mean other rows; a deployment
that was put back from a backup gives numbers a second time. A reader from before either is told, and never reads on
quietly.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from headgate.client.errors import ClientError
from headgate.diagnostics import CLIENT, noted
from headgate.fabric import Fabric, FabricError
from headgate.relay.root import committed_head
from headgate.wire.identity import DEPLOYMENT_KEY, Identity, Incarnation, Run, decode_runs, overtaken
from headgate.wire.ledger import Tally

_POLL_S: Final = 5.0


class LossError(ClientError):
    """A reader's place is of another past of its stream."""

    usual_kind = "gone"

    def __init__(self, message: str, hint: str, before: str, now: Incarnation) -> None:
        super().__init__(message, hint=hint)
        self.before = before
        self.incarnation = now


async def read_runs(fabric: Fabric) -> list[Run]:
    """The starts of the service, oldest first; none where no service has run."""
    stored = await fabric.last(fabric.logs.state, fabric.logs.runs)
    return [] if stored is None else decode_runs(stored.data)


async def new_runs(fabric: Fabric) -> AsyncIterator[str]:
    """The id of each run that is not the one before, for ever; the one that is under way first."""
    wake, known = asyncio.Event(), ""
    end = await fabric.listen(fabric.logs.runs, wake)
    try:
        while True:
            wake.clear()
            with noted(CLIENT, "whether the service was started again is asked later", FabricError):
                runs = await read_runs(fabric)
                if runs and runs[-1].id != known:
                    known = runs[-1].id
                    yield known
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await wake.wait()
    finally:
        await end()


async def check_input(fabric: Fabric, stream: str, identity: Identity) -> None:
    """Refuse to publish into a log that the deployment does not read."""
    log = fabric.logs.input(stream)
    info = await fabric.info(log)
    owner = "" if info is None else (info.config.metadata or {}).get(DEPLOYMENT_KEY, "")
    if identity.deployment and owner != identity.deployment:
        what = "is gone" if info is None else f"is of the deployment {owner or 'of nobody'}"
        raise ClientError(
            f"the log {log.name}, into which rows of {stream!r} are published, {what}; the catalog in force is that of "
            f"the deployment {identity.deployment}",
            hint="restore the NATS store; `headgate up` says what does not fit together",
        )


async def check_position(fabric: Fabric, name: str, stream: str, tally: Tally, identity: Identity) -> None:
    """Refuse a position token that does not belong to the stream as it is now."""
    now = identity.incarnations.get(stream)
    if now is None or tally.starts is None:
        return
    if tally.incarnation != now.id:
        raise _other_incarnation(f"the position of {name!r}", stream, tally.incarnation, now, identity)
    runs = await read_runs(fabric)
    head = await committed_head(fabric, stream) or 0
    why = overtaken(tally.run, stream, tally.mark, runs, head) if runs else None
    if why is not None:
        raise LossError(
            f"the position of {name!r} is of another past of the stream {stream!r}: {why}",
            "the deployment was put back from a backup: rows after it may be lost and its numbers be those of other "
            "rows; read on from what was last acknowledged, without a position",
            tally.incarnation,
            now,
        )


def check_acknowledged(name: str, stream: str, tally: Tally, identity: Identity, *, after_loss: bool) -> None:
    """Tell a reader that was there before its stream began anew, once: its next acknowledgement is of the new one."""
    now = identity.incarnations.get(stream)
    if now is None or tally.incarnation == now.id or after_loss:
        return
    if tally.starts is not None:
        raise _other_incarnation(f"what was acknowledged of {name!r}", stream, tally.incarnation, now, identity)
    if now.loss and tally.subscription <= now.before and not tally.incarnation:
        raise _other_incarnation(f"the subscription {name!r}", stream, now.replaced, now, identity)


def began_anew(name: str, stream: str, tally: Tally, identity: Identity) -> LossError:
    """What a reader is told that was reading when its stream began anew."""
    now = identity.incarnations[stream]
    return _other_incarnation(f"the reader of {name!r}", stream, tally.incarnation, now, identity)


def _other_incarnation(what: str, stream: str, before: str, now: Incarnation, identity: Identity) -> LossError:
    loss = f"; rows were lost, and that was accepted: {now.loss}" if now.loss else ""
    return LossError(
        f"{what} is of incarnation {before or 'none'} of the stream {stream!r}, which is now at {now.title} of "
        f"deployment {identity.deployment}{loss}",
        "read the new incarnation from its start, without a position: `client.subscribe(name, after_loss=True)`, "
        "`headgate tail --after-loss`",
        before,
        now,
    )
