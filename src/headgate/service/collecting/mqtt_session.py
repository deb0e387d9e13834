"""A session at an MQTT broker: messages of a topic, acknowledged when they are stored.

With quality of service 1 the session outlives the connection, so the broker keeps what is published while nobody is
connected, and sends again what was not acknowledged. A message that was stored, and whose acknowledgement was lost with
the connection, comes again marked as sent before, under its number: it is recognised and not stored a second time.
Across a restart of this process that is not known, so the few messages on their way then may come twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.parts import part
from headgate.pipeline.sources.collected_options import CollectedSettings
from headgate.service.collecting.collector_queue import Arrival, CollectorQueue

_CONNECT_S: Final = 10.0
_KEEPALIVE_S: Final = 20
_REFUSED: Final = 128


class BrokerError(HeadgateError):
    """A broker that cannot be reached, or does not give what was asked for."""


class MqttSession:
    """One connection at a time; `read` ends with an error where that ends."""

    def __init__(self, settings: CollectedSettings, client_id: str, intake: CollectorQueue) -> None:
        self._settings = settings
        self._client_id = settings.client_id or client_id
        self._intake = intake
        self._done: dict[int, bytes] = {}
        self.again = 0
        """How many messages came again that were stored already."""

    async def read(self, connected: asyncio.Event) -> None:
        """Take messages in until the connection ends; `connected` is set when the broker has agreed to send them."""
        loop = asyncio.get_running_loop()
        end: asyncio.Future[None] = loop.create_future()

        def fail(why: str) -> None:
            if not end.done():
                end.set_exception(BrokerError(f"{self._settings.place}: {why}"))

        def on_connect(client: Any, _: Any, __: Any, code: Any, ___: Any) -> None:
            if code.is_failure:
                loop.call_soon_threadsafe(fail, f"the broker does not let this client in: {code}")
            else:
                client.subscribe(self._settings.address, self._settings.qos)

        def on_subscribe(_: Any, __: Any, ___: Any, codes: list[Any], ____: Any) -> None:
            if codes[0].value >= _REFUSED:
                loop.call_soon_threadsafe(fail, f"the broker does not give this topic: {codes[0]}")
            else:
                loop.call_soon_threadsafe(connected.set)

        def on_message(client: Any, _: Any, message: Any) -> None:
            loop.call_soon_threadsafe(self._take, client, message)

        def on_disconnect(_: Any, __: Any, ___: Any, code: Any, ____: Any) -> None:
            loop.call_soon_threadsafe(fail, f"the connection has ended: {code}")

        client = self._client()
        client.on_connect, client.on_subscribe, client.on_message = on_connect, on_subscribe, on_message
        client.on_disconnect = on_disconnect
        try:
            await asyncio.to_thread(client.connect, self._settings.host, self._settings.port, _KEEPALIVE_S)
        except (OSError, ValueError) as error:
            raise BrokerError(f"{self._settings.place} cannot be reached: {error}") from error
        client.loop_start()
        try:
            async with asyncio.timeout(_CONNECT_S) as patience:
                waiting = asyncio.create_task(connected.wait())
                try:
                    either: list[asyncio.Future[Any]] = [waiting, end]
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiting.cancel()
                patience.reschedule(None)
                await end
        except TimeoutError:
            raise BrokerError(f"{self._settings.place}: the broker does not answer") from None
        finally:
            client.on_disconnect = None
            await asyncio.to_thread(self._close, client)

    @staticmethod
    def _close(client: Any) -> None:
        client.disconnect()
        client.loop_stop()

    def _client(self) -> Any:
        mqtt = part("paho.mqtt.client")
        settings, access = self._settings, self._settings.access
        client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            clean_session=settings.qos == 0,
            manual_ack=True,
            reconnect_on_failure=False,
        )
        client.connect_timeout = _CONNECT_S
        if "user" in access:
            client.username_pw_set(access["user"], settings.password())
        if settings.tls:
            try:
                context = ssl.create_default_context(cafile=access.get("tls_ca"))
                if "tls_cert" in access:
                    context.load_cert_chain(access["tls_cert"], access["tls_key"])
            except (OSError, ssl.SSLError) as error:
                raise BrokerError(f"{settings.place}: a file of a certificate cannot be used: {error}") from error
            client.tls_set_context(context)
        return client

    def _take(self, client: Any, message: Any) -> None:
        """Take one message in, within the loop."""
        if message.qos == 0:
            self._intake.offer(Arrival(message.payload))
            return
        number = message.mid
        print_of = hashlib.blake2b(message.topic.encode() + b"\0" + message.payload, digest_size=16).digest()

        def stored() -> None:
            self._done[number] = print_of
            client.ack(number, message.qos)

        if message.dup and self._done.get(number) == print_of:
            self.again += 1
            client.ack(number, message.qos)
        else:
            self._done.pop(number, None)
            self._intake.offer(Arrival(message.payload, stored))
