"""The newest record of the audit, kept in NATS beside the file that it is in."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from headgate.diagnostics import SERVICE
from headgate.fabric import Fabric, FabricError
from headgate.service.audit import HOME, Anchor, Audit
from headgate.wire.frame import WireError
from headgate.wire.sealed import seal, unseal

_EVERY_S: Final = 1.0


async def read_anchor(fabric: Fabric) -> Anchor | None:
    """The newest record that was anchored, None when there is none."""
    stored = await fabric.last(fabric.logs.state, fabric.logs.audit)
    try:
        return None if stored is None else Anchor(**json.loads(unseal(stored.data)))
    except (ValueError, TypeError, WireError) as error:
        SERVICE.warning("the newest record of the audit that NATS knows of cannot be read: %s", error)
        return None


async def missing_records(fabric: Fabric, audit: Audit) -> str | None:
    """What is to be said, and is noted in the audit, where its file ends before what NATS knows of; None where not."""
    anchor = await read_anchor(fabric)
    if anchor is None or audit.newest.number >= anchor.number:
        return None
    said = f"the audit ends with record {audit.newest.number}, and there were {anchor.number}"
    audit.record(HOME, said, {})
    return f"{said}: restore {audit.path} from a backup"


async def store_anchor(fabric: Fabric, audit: Audit, known: Anchor | None) -> Anchor:
    """Keep the newest record in NATS, where it is another than `known`."""
    newest = audit.newest
    if newest != known:
        text = json.dumps({"number": newest.number, "hash": newest.hash}).encode()
        await fabric.publish(fabric.logs.audit, seal(text))
    return newest


async def keep_anchor(fabric: Fabric, audit: Audit) -> None:
    """Keep it up to date, for ever."""
    known: Anchor | None = None
    while True:
        try:
            known = await store_anchor(fabric, audit, known)
        except FabricError as error:
            SERVICE.debug("the newest record of the audit is anchored later: %s", error)
        await asyncio.sleep(_EVERY_S)
