"""A subject of a NATS server that no log holds: what is published while we listen, and nothing else.

The server sends once and keeps nothing. What is published while the connection is down is lost before Headgate knows
of it, and nobody can say how much it was; a subject that must not lose rows is held by a log and read by `nats`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from nats.errors import Error as NatsError

from headgate.fabric import Fabric, FabricError
from headgate.pipeline.sources.collected_options import CollectedSettings
from headgate.service.collecting.collector_queue import Arrival, CollectorQueue
from headgate.service.collecting.mqtt_session import BrokerError

_LOOK_S: Final = 0.2


class ForeignFabric(Fabric):
    """A connection to a server of somebody else."""

    @property
    def is_connected(self) -> bool:
        """Whether the server is there now."""
        return bool(self._client.is_connected)

    async def hear(self, subject: str, take: Callable[[bytes], object]) -> None:
        """Hand over what is published on a subject from now on."""

        async def came(message: Any) -> None:
            take(message.data)

        await self._client.subscribe(subject, cb=came)
        await self._client.flush()
        if self._client.last_error is not None:  # a subject that this user may not read is refused by the way
            raise FabricError(f"{self._client.last_error}")


class NatsListener:
    """One connection at a time; `read` ends with an error where that ends."""

    def __init__(self, settings: CollectedSettings, intake: CollectorQueue) -> None:
        self._settings = settings
        self._intake = intake

    async def read(self, connected: asyncio.Event) -> None:
        """Take messages in until the connection ends; `connected` is set when the server sends them."""
        settings = self._settings
        options: dict[str, str] = {name: each for name, each in settings.access.items() if name != "password_file"}
        if (password := settings.password()) is not None:
            options["password"] = password
        url = f"{settings.scheme}://{settings.host}:{settings.port}"
        try:
            async with await ForeignFabric.connect(url, None, **options) as fabric:
                await fabric.hear(settings.address, lambda data: self._intake.offer(Arrival(data)))
                connected.set()
                while fabric.is_connected:  # noqa: ASYNC110 - a connection that connects again by itself has no event
                    await asyncio.sleep(_LOOK_S)
        except FabricError as error:
            raise BrokerError(f"{settings.place}: {error.message}", hint=error.hint) from error
        except (NatsError, TimeoutError) as error:
            raise BrokerError(f"{settings.place}: {error!r}") from error
        raise BrokerError(f"{settings.place}: the connection has ended")
