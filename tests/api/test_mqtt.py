"""Stock MQTT clients against the listener of the embedded server: what they get, and what counts as delivered."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.api.mosquitto import Mosquitto, listen
from tests.live import small, until

from headgate.api.gateway import Gateway
from headgate.api.mqtt import outlet
from headgate.api.mqtt.bridge import Bridge
from headgate.catalog import parse_deployment
from headgate.client import Client, ClientError
from headgate.fabric import Fabric, FabricError, cancel_all
from headgate.fabric.listening import Listening
from headgate.fabric.place import choose_port
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.relay.node import RelayNode
from headgate.relay.output import QueueLimits
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

pytestmark = [
    pytest.mark.nats,
    pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto's clients are not installed"),
]
READINGS = {
    "root": "root",
    "source": {"format": "nats", "payload": "json"},
    "schema": {"station": "string", "level": "double"},
}


class World:
    """A deployment whose server listens for devices."""

    def __init__(self, runtime: Runtime, client: Client, port: int) -> None:
        self.runtime, self.client, self.port = runtime, client, port
        self.bridging: asyncio.Task[None] | None = None
        self.devices: list[Mosquitto] = []
        self._batch = 0

    def bridge(self) -> None:
        server = self.runtime.server
        assert server is not None
        bridge = Bridge(Gateway(self.client, server.directory.parent), server.url, server.directory)
        self.bridging = asyncio.create_task(bridge.run())

    async def unbridge(self) -> None:
        if self.bridging is not None:
            await cancel_all([self.bridging])

    async def password(self, name: str, **rights: Any) -> str:
        return str((await self.client.control("device-add", name=name, **rights))["password"])

    def login(self, name: str, password: str) -> list[str]:
        return ["-h", "127.0.0.1", "-p", str(self.port), "-u", name, "-P", password]

    async def listen(self, name: str, password: str, topic: str, *more: str) -> Mosquitto:
        device = await listen(*self.login(name, password), "-t", topic, *more)
        self.devices.append(device)
        return device

    async def publish(self, name: str, password: str, topic: str, message: str, qos: int) -> None:
        arguments = [*self.login(name, password), "-t", topic, "-q", str(qos), "-m", message]
        process = await asyncio.create_subprocess_exec("mosquitto_pub", *arguments)
        await process.wait()

    async def commit(self, first: int, stop: int) -> None:
        def work() -> None:
            with DirectCommits(Address(self.runtime.url, Logs()), "test") as direct:
                direct.commit("fleet", generate("fleet", 3, first, stop), self._batch, 0.0)

        await asyncio.to_thread(work)
        self._batch += 1

    async def delivered(self, name: str) -> int:
        return int((await self.runtime.status())["subscriptions"][name]["delivered"])


@asynccontextmanager
async def world(directory: Path, document: dict[str, Any], **more: Any) -> AsyncIterator[World]:
    deployment = parse_deployment(yaml.safe_dump(document), "test.yaml", GENERATOR_SCHEMAS)
    port = choose_port()
    settings = Settings(state_dir=directory, listening=Listening(mqtt=("127.0.0.1", port)), job=False, **more)
    async with (
        open_runtime(settings, deployment) as runtime,
        await Client.connect(state_dir=directory) as client,
    ):
        found = World(runtime, client, port)
        found.bridge()
        try:
            yield found
        finally:
            for device in found.devices:
                await device.end()
            await found.unbridge()


def mqtt_test(
    directory: Path, document: dict[str, Any], work: Callable[[World], Awaitable[None]], **settings: Any
) -> None:
    async def run() -> None:
        async with world(directory, document, **settings) as found:
            await work(found)

    asyncio.run(run())


def test_what_a_device_acknowledges_is_what_counts(tmp_path: Path) -> None:
    async def work(here: World) -> None:
        password = await here.password("buoy", reads=["all"])
        await here.commit(0, 30)
        first = await here.listen("buoy", password, "headgate/all", "-q", "1", "-i", "one")
        await until(lambda: _seen(first, 30))
        assert {qos for _, qos, _ in first.lines} == {1}
        assert first.seqs == list(range(1, 31))
        row = generate("fleet", 3, 0, 1).to_pylist()[0]
        assert first.lines[0][2]["vehicle"] == row["vehicle"]
        await until(lambda: _delivered(here, 30))
        # A device that stands still acknowledges nothing; what it held goes to whoever comes next.
        first.process.send_signal(signal.SIGSTOP)
        await here.commit(30, 50)
        await until(lambda: _pending(here, 20))
        assert await here.delivered("all") == 30
        first.process.kill()
        await first.process.wait()
        second = await here.listen("buoy", password, "headgate/all", "-q", "1", "-i", "two")
        await until(lambda: _seen(second, 20))
        assert second.seqs == list(range(31, 51))
        await until(lambda: _delivered(here, 50))
        # The bridge comes back in the middle: rows that are on their way are not sent twice.
        second.process.send_signal(signal.SIGSTOP)
        await here.commit(50, 60)
        await until(lambda: _pending(here, 10))
        await here.unbridge()
        here.bridge()
        await here.commit(60, 70)
        await until(lambda: _pending(here, 20))
        second.process.send_signal(signal.SIGCONT)
        await until(lambda: _delivered(here, 70))
        assert second.seqs == list(range(31, 71))
        status = await here.runtime.status()
        assert status["subscriptions"]["all"]["difference"] == 0
        assert status["findings"] == []

    mqtt_test(tmp_path, small(all={"site": "leaf"}), work)


def test_a_device_that_acknowledges_nothing_gets_rows_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "HOLD_S", 1.0)

    async def work(here: World) -> None:
        password = await here.password("display", reads=["all", "fast"])
        plain = await here.listen("display", password, "headgate/all")
        both = await here.listen("display", password, "headgate/fast", "-q", "1", "-i", "both")
        wild = await here.listen("display", password, "headgate/fast/#")
        await until(lambda: _heard(here, "all", "fast"))
        await here.commit(0, 40)
        await until(lambda: _seen(plain, 40))
        fast = [n + 1 for n, row in enumerate(generate("fleet", 3, 0, 40).to_pylist()) if row["speed"] > 10]
        await until(lambda: _seen(both, len(fast)))
        await until(lambda: _seen(wild, len(fast)))
        assert (plain.seqs, both.seqs, wild.seqs) == (list(range(1, 41)), fast, fast)
        assert ({qos for _, qos, _ in plain.lines}, {qos for _, qos, _ in both.lines}) == ({0}, {1})
        await until(lambda: _delivered(here, 40))

    mqtt_test(tmp_path, small(all={"site": "leaf"}, fast={"site": "mid", "where": "speed > 10"}), work)


def test_a_device_gets_what_the_owner_of_the_subscription_may_have_now(tmp_path: Path) -> None:
    async def work(here: World) -> None:
        await here.client.control("user-add", name="ada", subscribe=["fleet"])
        password = await here.password("buoy", reads=["hers"])
        await here.commit(0, 30)  # waits in the inbox while the grant shrinks
        await until(lambda: _in_inbox(here, "hers"))
        grant = {"where": "speed > 30", "columns": ["vehicle", "speed"]}
        await here.client.control("user-grant", name="ada", stream="fleet", **grant)
        device = await here.listen("buoy", password, "headgate/hers", "-q", "1", "-i", "one")
        allowed = [row for row in generate("fleet", 3, 0, 30).to_pylist() if row["speed"] > 30]
        await until(lambda: _seen(device, len(allowed)))
        rows = [each for topic, _, each in device.lines if topic.count("/") == 1]
        assert [set(each) for each in rows] == [{"_seq", "vehicle", "speed"}] * len(allowed)
        assert [each["speed"] for each in rows] == [row["speed"] for row in allowed]

    mqtt_test(tmp_path, small(hers={"site": "leaf", "owner": "ada"}), work)


async def _in_inbox(here: World, name: str) -> bool:
    number = here.runtime.control.contexts.snapshot.subscription_ids[name]
    logs = here.client.fabric.logs
    found = await here.client.fabric.last(logs.inbox("leaf"), logs.delivery("leaf", number))
    return found is not None and here.client.fabric.codec.coverage(found.data)[1] >= 30


def test_what_was_given_up_has_a_topic_of_its_own(tmp_path: Path) -> None:
    policy = {"levels": [{"conflate": "vehicle"}], "digest": [{"max": "speed"}]}

    async def work(here: World) -> None:
        password = await here.password("buoy", reads=["*"])
        for batch in range(3):
            await here.commit(batch * 60, batch * 60 + 60)
        relay = asyncio.create_task(RelayNode(here.client.fabric, "root", limits=QueueLimits(max_rows=50)).run())
        device = await here.listen("buoy", password, "headgate/#", "-q", "1", "-i", "one")

        async def told() -> bool:
            lost = [each for topic, _, each in device.lines if topic == "headgate/few/given-up"]
            count = sum(sum(each["given_up"].values()) for each in lost)
            return count > 0 and len(device.seqs) + count == 180 and "max(speed)" in lost[0]["digest"]

        await until(told)
        await until(lambda: _settled(here, "few"))
        await cancel_all([relay])

    mqtt_test(tmp_path, small(few={"site": "root", "policy": policy}), work, relays=False)


def test_what_devices_publish_is_stored_once_and_only_where_they_may(tmp_path: Path) -> None:
    async def work(here: World) -> None:
        logs, fabric = here.client.fabric.logs, here.client.fabric
        password = await here.password("gauge", publishes=["readings"])
        await here.listen("gauge", password, "headgate/all", "-q", "1")

        async def stored() -> list[dict[str, Any]]:
            found = await fabric.read(logs.input("readings"), logs.published("readings"), 0)
            return [json.loads(each.data) for each in found]

        async def count(wanted: int) -> bool:
            return len(await stored()) == wanted

        for number, qos in enumerate((1, 0, 2)):
            await here.publish("gauge", password, "headgate-in/readings", f'{{"station":"n","level":{number}}}', qos)
            await until(lambda number=number: count(number + 1))
        assert [each["level"] for each in await stored()] == [0, 1, 2]
        await here.unbridge()  # the server says that it has a message, and keeps it until it is stored
        await here.publish("gauge", password, "headgate-in/readings", '[{"station":"n","level":3},{"level":"x"}]', 1)
        await here.publish("gauge", password, "headgate-in/other", '{"station":"n"}', 1)
        await here.publish("gauge", password, "headgate/all", '{"_seq":1}', 1)
        assert len(await stored()) == 3
        here.bridge()
        await until(lambda: count(5))
        await here.publish("gauge", password, "headgate-in/readings", "no json", 1)

        async def garbage() -> bool:
            found = await fabric.read(logs.input("readings"), logs.published("readings"), 0)
            return found[-1].data == b"no json"

        await until(garbage)
        assert here.devices[0].lines == []  # it may not read
        listed = (await here.client.control("device-list"))["devices"]
        assert [(each["name"], each["publishes"]) for each in listed] == [("gauge", ["readings"])]
        await here.client.control("device-revoke", name="gauge")
        await here.publish("gauge", password, "headgate-in/readings", '{"station":"late"}', 1)
        assert "late" not in str(await fabric.read(logs.input("readings"), logs.published("readings"), 0))
        with pytest.raises(ClientError, match="no device 'gauge'"):
            await here.client.control("device-revoke", name="gauge")
        with pytest.raises(ClientError, match="could do nothing"):
            await here.client.control("device-add", name="idle")
        with pytest.raises(FabricError):  # a password counts over MQTT only
            await Fabric.connect(f"nats://{here.runtime.listens_at.split('//')[1]}", user="gauge", password=password)

    document = small(all={"site": "leaf"})
    document["streams"]["readings"] = READINGS
    mqtt_test(tmp_path, document, work)


def test_beyond_this_machine_only_with_tls() -> None:
    with pytest.raises(FabricError, match=r"listen on 0\.0\.0\.0, which others can reach, without TLS"):
        Listening(mqtt=("0.0.0.0", 1883))


async def _seen(device: Mosquitto, count: int) -> bool:
    return len(device.seqs) >= count


async def _delivered(here: World, count: int) -> bool:
    return await here.delivered("all") >= count


async def _settled(here: World, name: str) -> bool:
    line = (await here.runtime.status())["subscriptions"][name]
    return bool(line["in_flight"] == 0 and line["difference"] == 0)


async def _pending(here: World, count: int) -> bool:
    """Whether so many messages wait for acknowledgements."""
    server = here.runtime.server
    assert server is not None
    async with await Fabric.connect(server.url, user_credentials=str(server.directory / "bridge.creds")) as fabric:
        found = json.loads(await fabric.request("$JS.API.STREAM.INFO.$MQTT_msgs", b""))
        return bool(found["state"]["messages"] == count)


async def _heard(here: World, *names: str) -> bool:
    """Whether the bridge reads these subscriptions."""
    snapshot = await here.client.snapshot()
    fabric, logs = here.client.fabric, here.client.fabric.logs
    found = [await fabric.last(logs.state, logs.ack(snapshot.subscription_ids[name])) for name in names]
    return all(each is not None for each in found)
