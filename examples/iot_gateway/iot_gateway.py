"""Sensors that speak MQTT: straight to the deployment, or by a gateway on a line that comes and goes.

headgate up headgate.yaml                                  # in one terminal
headgate device add sensors --publish readings             # in another one, in the same directory: makes sensors.mqtt
headgate device add panel --read hot                       # makes panel.mqtt
python iot_gateway.py panel                                # what is hot, read over MQTT
python iot_gateway.py sensors                              # in a third one: readings, published over MQTT

Where the sensors are on a machine that is cut off now and then, they publish to a broker there, and a gateway passes
on what they say: readings wait under a policy meanwhile, and what is given up is declared to everybody.

python iot_gateway.py gateway mqtt://127.0.0.1:2883 plant/+/state

It needs `pip install 'headgate[mqtt]'` (paho-mqtt). To publish into a deployment on another machine use
`Client.connect("nats://...")`. A broker that the service itself can reach needs no gateway: give the stream the source
`{format: mqtt, url: ..., topic: ...}`.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt import client as paho

from headgate.client import Client

DEPLOYMENT = "mqtt://127.0.0.1:1883"
# A tenth of a day of readings may wait. Then changes of less than half a degree go first, then all but the newest.
POLICY = {"key": "sensor", "attribute": "temp", "levels": [{"delta": 0.5}, {"conflate": "sensor"}], "digest": ["max"]}


# -- MQTT


@asynccontextmanager
async def connected(url: str, user: str = "", password: str = "") -> AsyncIterator[paho.Client]:
    """A connection to a server that speaks MQTT."""
    place = urlsplit(url)
    mqtt = paho.Client(paho.CallbackAPIVersion.VERSION2)
    if user:
        mqtt.username_pw_set(user, password)
    loop, let_in = asyncio.get_running_loop(), asyncio.Event()
    mqtt.on_connect = lambda *_: loop.call_soon_threadsafe(let_in.set)
    await asyncio.to_thread(mqtt.connect, place.hostname or "127.0.0.1", place.port or 1883)
    mqtt.loop_start()
    try:
        async with asyncio.timeout(30):
            await let_in.wait()
        yield mqtt
    finally:
        await asyncio.to_thread(mqtt.disconnect)
        await asyncio.to_thread(mqtt.loop_stop)


async def heard(mqtt: paho.Client, topic: str) -> AsyncIterator[dict[str, Any]]:
    """JSON objects that are published on a topic, from now on."""
    loop, came = asyncio.get_running_loop(), asyncio.Queue[bytes]()
    mqtt.on_message = lambda _, __, message: loop.call_soon_threadsafe(came.put_nowait, message.payload)
    mqtt.subscribe(topic, qos=1)
    while True:
        yield json.loads(await came.get())


async def publish(mqtt: paho.Client, topic: str, row: Mapping[str, Any]) -> None:
    """Publish a row, and wait until the server has stored it."""
    sent = mqtt.publish(topic, json.dumps(row, default=datetime.isoformat), qos=1)
    await asyncio.to_thread(sent.wait_for_publish, 30)


# -- what the three of them do


def password_of(device: str) -> str:
    """What `headgate device add` has written."""
    return Path(f"{device}.mqtt").read_text().strip()


async def sensors(count: int = 5, pause_s: float = 1.0) -> AsyncIterator[dict[str, Any]]:
    """Made readings, one of each sensor at a time."""
    while True:
        for number in range(count):
            at = datetime.now(UTC)
            yield {"sensor": f"s{number}", "temp": 40 + random.gauss(0, 8), "battery": 80.0, "at": at}
        await asyncio.sleep(pause_s)


async def gateway(
    client: Client,
    readings: AsyncIterator[dict[str, Any]],
    *,
    waiting: int = 10_000,
    tell: Callable[[str], None] = print,
) -> Any:
    """Publish readings as they come, whether or not the deployment can be reached just now; the report at the end."""

    def lost(counts: Mapping[str, int], digest: Mapping[str, Any]) -> None:
        tell(f"given up here: {dict(counts)}, hottest of them {digest.get('max(temp)')}")

    sender = await client.sender("readings", POLICY, max_rows=waiting, on_digest=lost)
    async with sender:
        async for row in readings:
            sender.publish([{**row, "at": datetime.fromisoformat(str(row["at"]))}])
    return sender.report()


async def main(what: str, url: str = DEPLOYMENT, topic: str = "plant/+/state") -> None:
    """One of the three."""
    if what == "sensors":
        async with connected(url, what, password_of(what)) as mqtt:
            async for row in sensors():
                await publish(mqtt, "headgate-in/readings", row)
    elif what == "panel":
        async with connected(url, what, password_of(what)) as mqtt:
            async for row in heard(mqtt, "headgate/hot"):
                print(f"{row['sensor']} {row['temp']:.1f} degrees, battery {row['battery']:.0f} %")
    elif what == "gateway":
        async with connected(url) as mqtt, await Client.connect() as client:
            print(await gateway(client, heard(mqtt, topic)))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:] or ["help"])))
