"""The asyncio client."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from headgate.client.delivery import ClientError, Inbox, decode_position
from headgate.errors import nearest
from headgate.fabric import Fabric, Logs
from headgate.fabric.server import running_url
from headgate.relay.tables import Tables
from headgate.wire.ledger import Tally

DEFAULT_STATE_DIR = Path(".headgate")


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


def to_ipc(rows: Any) -> bytes:
    """Rows of any usual shape (record batch, table, pandas frame, list of dicts) as an Arrow IPC stream."""
    match rows:
        case pa.RecordBatch():
            table = pa.Table.from_batches([rows])
        case pa.Table():
            table = rows
        case list():
            table = pa.Table.from_pylist(rows)
        case _:
            table = pa.Table.from_pandas(rows, preserve_index=False)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class Client:
    """A connection to a deployment. Use it as an async context manager.

    ``async for delivery in await client.subscribe("storms"): ...`` reads an existing subscription; with ``stream=``
    and more it is made, or changed, first.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.tables = Tables(fabric)

    @classmethod
    async def connect(
        cls, url: str | None = None, *, state_dir: Path | None = None, namespace: str = "hg", **options: Any
    ) -> Self:
        """Connect by address, or to the deployment that runs in a state directory."""
        return cls(await Fabric.connect(find_url(url, state_dir), Logs(namespace), **options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self.fabric.close()

    async def control(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Ask the running service for a change or a report."""
        answer = await self.fabric.request(self.fabric.logs.control(verb), json.dumps(arguments).encode())
        document: dict[str, Any] = json.loads(answer)
        if "error" in document:
            raise ClientError(document["error"])
        return document

    async def subscribe(
        self,
        name: str,
        *,
        position: str | None = None,
        on_digest: Callable[[Mapping[str, int], int, int], None] | None = None,
        on_gap: Callable[[int, int], None] | None = None,
        **subscription: Any,
    ) -> Inbox:
        """Open a subscription for reading, from a position token or from what was last acknowledged.

        Further keywords (`site`, `stream`, `where`, `select`, ... as in the deployment file) make the subscription,
        or change it if there is one of that name.
        """
        if subscription:
            await self.control("subscribe", name=name, subscription=subscription, change=True)
        snapshot = await anext(self.tables.heads())
        if name not in snapshot.subscription_ids:
            close = nearest(name, snapshot.subscription_ids)
            raise ClientError(f"no subscription {name!r}", hint=f"did you mean {close!r}?" if close else None)
        identity = snapshot.subscription_ids[name]
        stored = await self.fabric.last(self.fabric.logs.state, self.fabric.logs.ack(identity))
        if position is not None:
            tally = decode_position(position, identity)
        else:
            tally = Tally.from_json(stored.data) if stored else Tally(identity)
        return Inbox(
            self.fabric,
            self.tables,
            name,
            snapshot,
            tally,
            stored.sequence if stored else 0,
            on_digest=on_digest,
            on_gap=on_gap,
        )

    async def unsubscribe(self, name: str) -> int:
        """End a subscription; returns the revision from which it is not served."""
        return int((await self.control("unsubscribe", name=name))["revision"])

    async def set_context(self, name: str, **values: Any) -> int:
        """Set values of a subscriber's context; returns the revision from which they hold."""
        return int((await self.control("context", name=name, values=values))["revision"])

    async def publish(self, stream: str, rows: Any) -> int:
        """Publish rows into a stream whose source is `nats`; returns once they are stored."""
        return await self.fabric.publish(self.fabric.logs.published(stream), to_ipc(rows))
