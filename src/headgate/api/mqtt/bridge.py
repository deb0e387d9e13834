"""The bridge between a deployment and the devices that speak MQTT to its NATS server."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from headgate.api.bodies import read_bodies
from headgate.api.gateway import Gateway
from headgate.api.mqtt.audience import Audience, Audiences
from headgate.api.mqtt.outlet import Outlet
from headgate.api.problems import ApiError
from headgate.api.publishing import store_body
from headgate.diagnostics import SERVICE
from headgate.errors import HeadgateError
from headgate.fabric import Crew, cancel_all
from headgate.fabric.accounts import BRIDGE_FILE
from headgate.fabric.mqtt import DeviceFabric
from headgate.model import Deployment
from headgate.model.roots import members_named, root_region

_LOOK_S: Final = 0.5
_AGAIN_S: Final = 1.0


class Bridge:
    """Runs an outlet for each subscription that anybody listens to, and stores what devices publish."""

    def __init__(self, gateway: Gateway, url: str, directory: Path) -> None:
        """`directory` is that of the embedded server, which has the credentials."""
        self._gateway = gateway
        self._url = url
        self._directory = directory
        self._outlets: dict[str, tuple[Outlet, asyncio.Task[None]]] = {}
        self._ended: dict[str, Audience] = {}

    async def run(self) -> None:
        """Bridge until cancelled; what fails is tried again."""
        while True:
            try:
                await self._bridge()
            except (HeadgateError, OSError) as error:
                SERVICE.warning("MQTT: %s; tried again", error)
            await asyncio.sleep(_AGAIN_S)

    async def _bridge(self) -> None:
        async with AsyncExitStack() as stack:
            credentials = str(self._directory / BRIDGE_FILE)
            devices = await stack.enter_async_context(
                await DeviceFabric.connect(self._url, user_credentials=credentials)
            )
            audiences = await Audiences.connect(self._url, self._directory, devices)
            stack.push_async_callback(audiences.close)
            async with Crew() as crew:
                crew.spawn(self._take(devices))
                crew.spawn(self._take_unacknowledged(devices))
                crew.spawn(self._serve(devices, audiences))
                await crew.wait()

    async def _serve(self, devices: DeviceFabric, audiences: Audiences) -> None:
        """Run outlets for what is listened to."""
        try:
            while True:
                await audiences.refresh()
                deployment = (await self._gateway.snapshot()).deployment
                names = _names(deployment)
                wanted = {name: audiences.of(name) for name in audiences.wanted(names)}
                self._ended = {name: each for name, each in self._ended.items() if wanted.get(name) == each}
                for name, audience in wanted.items():
                    known = self._outlets.get(name)
                    if known is not None and known[1].done():
                        self._ended[name] = known[0].audience
                        del self._outlets[name]
                    elif known is None and self._same(name, audience):
                        continue
                    elif known is None:
                        readers = self._gateway.of_owner(_owner(deployment, name)).readers
                        outlet = Outlet(name, self._gateway.client, readers, devices)
                        outlet.audience = audience
                        self._outlets[name] = outlet, asyncio.create_task(outlet.run(), name=f"MQTT {name}")
                    else:
                        known[0].audience = audience
                for name in self._outlets.keys() - wanted.keys():
                    _, task = self._outlets.pop(name)
                    await cancel_all([task])
                await asyncio.sleep(_LOOK_S)
        finally:
            await cancel_all([task for _, task in self._outlets.values()])
            self._outlets.clear()

    def _same(self, name: str, audience: Audience) -> bool:
        """Whether an outlet that was taken over, or failed for good, would be for the same listeners again."""
        ended = self._ended.get(name)
        if ended is None:
            return False
        return (ended.sessions, ended.connections.keys()) == (audience.sessions, audience.connections.keys())

    async def _take(self, devices: DeviceFabric) -> None:
        """Store what devices publish and the server has acknowledged: it is kept until it is stored here."""
        async for arrived in devices.arrivals():
            await self._store(arrived.stream, arrived.data, f"mqtt {arrived.identity}")
            await arrived.done()

    async def _take_unacknowledged(self, devices: DeviceFabric) -> None:
        async for stream, data in devices.unacknowledged():
            await self._store(stream, data, None)

    async def _store(self, name: str, data: bytes, identity: str | None) -> None:
        """Store one message of a device. What is no row becomes a dead letter; what is for no stream is dropped."""
        stream = (await self._gateway.snapshot()).deployment.streams.get(name)
        if stream is None or not stream.source.published:
            SERVICE.warning("MQTT: a message for %r was dropped: no stream of that name takes rows", name)
            return
        try:
            bodies = await asyncio.to_thread(read_bodies, data, {"content-type": "application/json"}, stream)
        except ApiError:
            fabric = self._gateway.client.fabric
            await fabric.publish(fabric.logs.published(name), data, message_id=identity)
            return
        for number, body in enumerate(bodies):
            key = None if identity is None else f"{identity} {number}"
            await store_body(self._gateway, stream, body, key, dead=True)


def _owner(deployment: Deployment, name: str) -> str:
    """Whose a subscription is, which may have a part at each root of its stream."""
    known = deployment.subscriptions
    parts = [name] if name in known else members_named(deployment.streams, known, name)
    return next((known[each].owner for each in parts), "")


def _names(deployment: Deployment) -> list[str]:
    """Every subscription, and those that have a part at each root of their stream under their own name too."""
    found = dict.fromkeys(deployment.subscriptions)
    for name, each in deployment.subscriptions.items():
        region = root_region(deployment.streams[each.stream])
        if region is not None:
            found[name.removesuffix(f"-{region.root}")] = None
    return list(found)
