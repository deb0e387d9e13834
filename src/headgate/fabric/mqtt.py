"""The server's own logs of what devices that speak MQTT publish and acknowledge.

nats-server keeps a message of quality of service 1 or 2 in its log `$MQTT_msgs` until every session that subscribes to
its topic has acknowledged it, and each such session has a consumer there, so that what was acknowledged can be read
from outside. A message is stored there as the server itself stores what comes in over MQTT: under `$MQTT.msgs.SUBJECT`,
with the header `Nmqtt-Pub`. A plain copy on the subject is for those who subscribe with quality of service 0; the
header tells the server not to send that copy to the others. docs/decisions/077 says what this rests on.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError

from headgate.fabric.accounts import BRIDGE_FILE, BRIDGE_PASSWORD
from headgate.fabric.client import Fabric
from headgate.fabric.devices import INTAKE
from headgate.protocol.port import FabricError

_LOG: Final = "$MQTT_msgs"
_KEPT: Final = "$MQTT.msgs."
_QOS: Final = "Nmqtt-Pub"
_BATCH: Final = 100
_HELLO_S: Final = 10.0
_ACCEPTED: Final = b"\x20\x02\x00\x00"


@dataclass(frozen=True, slots=True)
class Session:
    """A subscription of quality of service 1 or 2 of some session: its subject, and the last message acknowledged."""

    name: str
    subject: str
    floor: int


@dataclass(frozen=True, slots=True)
class DeviceMessage:
    """A message of a device: the stream it is for, its bytes, and what tells it from all others."""

    stream: str
    data: bytes
    identity: str
    message: Any

    async def done(self) -> None:
        """It is stored elsewhere: the log need not keep it."""
        await self.message.ack_sync()


class DeviceFabric(Fabric):
    """A connection to the account of devices."""

    async def store(self, subject: str, data: bytes, message_id: str) -> int:
        """Store a message for the sessions that want acknowledged ones, and pass it on to all others.

        Returns its place in the log; the same one where the log has a message of that id already.
        """
        headers = {_QOS: "1", "Nats-Msg-Id": message_id}
        try:
            ack = await self._js.publish(_KEPT + subject, data, headers=headers)
            if not ack.duplicate:
                await self._client.publish(subject, data, headers={_QOS: "1"})
        except (NatsError, APIError, TimeoutError) as error:
            raise FabricError(f"{subject}: not stored for devices: {error!r}") from error
        return int(ack.seq)

    async def tell(self, subject: str, data: bytes) -> None:
        """Pass a message on to whoever is there: nobody acknowledges it."""
        try:
            await self._client.publish(subject, data, headers={_QOS: "0"})
        except NatsError as error:
            raise FabricError(f"{subject}: not passed on to devices: {error!r}") from error

    async def sessions(self) -> list[Session]:
        """Every subscription whose messages are acknowledged."""
        found: list[Session] = []
        while True:
            page = await self._consumers(len(found))
            found += [
                Session(each["name"], each["config"]["filter_subject"].removeprefix(_KEPT), _floor(each))
                for each in page.get("consumers") or ()
            ]
            if not page.get("consumers") or len(found) >= page.get("total", 0):
                return [each for each in found if each.name != INTAKE]

    async def _consumers(self, offset: int) -> dict[str, Any]:
        data = json.dumps({"offset": offset}).encode()
        answer: dict[str, Any] = json.loads(await self.request(f"$JS.API.CONSUMER.LIST.{_LOG}", data))
        return {} if "error" in answer else answer

    async def floors(self, names: Iterable[str]) -> dict[str, int]:
        """The last message that each of these has acknowledged, with all before it; one that is gone has none."""
        found = {}
        for name in names:
            answer = json.loads(await self.request(f"$JS.API.CONSUMER.INFO.{_LOG}.{name}", b""))
            if "error" not in answer:
                found[name] = _floor(answer)
        return found

    async def keep_arrivals(self) -> None:
        """Let the server keep what devices publish for streams until it is stored there."""
        config = ConsumerConfig(
            durable_name=INTAKE, filter_subject=f"{_KEPT}{INTAKE}.>", ack_policy=AckPolicy.EXPLICIT, ack_wait=30
        )
        try:
            await self._js.add_consumer(_LOG, config)
        except (NatsError, APIError, TimeoutError) as error:
            raise FabricError(f"what devices publish cannot be kept: {error!r}") from error

    async def arrivals(self) -> AsyncIterator[DeviceMessage]:
        """What devices publish for streams and the server has acknowledged, until whoever asks leaves."""
        await self.keep_arrivals()
        subscription = await self._js.pull_subscribe_bind(consumer=INTAKE, stream=_LOG)
        while True:
            try:
                batch: Sequence[Any] = await subscription.fetch(_BATCH, timeout=5)
            except TimeoutError:
                continue
            except NatsError as error:
                raise FabricError(f"what devices publish cannot be read: {error!r}") from error
            for message in batch:
                stream = message.subject.removeprefix(f"{_KEPT}{INTAKE}.")
                about = message.metadata
                identity = f"{about.sequence.stream} {about.timestamp.timestamp()}"
                yield DeviceMessage(stream, message.data, identity, message)

    async def unacknowledged(self) -> AsyncIterator[tuple[str, bytes]]:
        """What devices publish with quality of service 0, as stream and bytes; nothing keeps it."""
        subscription = await self._client.subscribe(f"{INTAKE}.>", pending_bytes_limit=16 << 20)
        try:
            async for message in subscription.messages:
                if (message.headers or {}).get(_QOS, "0") == "0":
                    yield message.subject.removeprefix(f"{INTAKE}."), message.data
        finally:
            await subscription.unsubscribe()


def _floor(consumer: Mapping[str, Any]) -> int:
    return int(consumer["ack_floor"]["stream_seq"])


def hears(pattern: str, subject: str) -> bool:
    """Whether whoever subscribes to a pattern gets what is published to a subject.

    >>> hears("headgate.*", "headgate.storms"), hears("headgate.>", "headgate.a.b"), hears("headgate.*", "headgate.a.b")
    (True, True, False)
    """
    wanted, given = pattern.split("."), subject.split(".")
    for number, word in enumerate(wanted):
        if word == ">":
            return len(given) > number
        if number >= len(given) or word not in ("*", given[number]):
            return False
    return len(wanted) == len(given)


async def prepare(url: str, directory: Path, listens_at: tuple[str, int], *, tls: bool) -> None:
    """Let the server make its logs for devices, and keep what they publish for streams from the first message on.

    Without a consumer the server would acknowledge such a message and keep nothing of it.
    """
    context = None
    if tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is our own child on this machine
    await _greet(*listens_at, (directory / BRIDGE_PASSWORD).read_text(encoding="utf-8"), context)
    async with await DeviceFabric.connect(url, user_credentials=str(directory / BRIDGE_FILE)) as fabric:
        await fabric.keep_arrivals()


async def _greet(host: str, port: int, password: str, context: ssl.SSLContext | None) -> None:
    """Connect once as a device, so that the server makes its logs for devices, and leave."""

    def text(value: str) -> bytes:
        data = value.encode()
        return len(data).to_bytes(2, "big") + data

    body = text("MQTT") + b"\x04\xc2\x00\x3c" + text("headgate-bridge") + text("bridge") + text(password)
    size, length = len(body), bytearray()
    while True:
        size, part = divmod(size, 128)
        length.append(part | (0x80 if size else 0))
        if not size:
            break
    try:
        async with asyncio.timeout(_HELLO_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            writer.write(b"\x10" + bytes(length) + body)
            answer = await reader.readexactly(4)
            writer.write(b"\xe0\x00")
            await writer.drain()
            writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise FabricError(f"the MQTT listener at {host}:{port} does not answer: {error!r}") from error
    if answer != _ACCEPTED:
        raise FabricError(f"the MQTT listener at {host}:{port} does not let the bridge in: {answer!r}")
