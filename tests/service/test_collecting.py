"""Topics of MQTT and subjects of NATS that other people's brokers have, as sources of streams."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nats
import pytest
from tests.live import sites, until
from tests.service.brokers import MOSQUITTO, free_port, mosquitto, nats_server, send

from headgate.catalog import parse_deployment
from headgate.fabric import Fabric, cancel_all
from headgate.model import Source
from headgate.pipeline.sources.collected_options import CollectedSettings
from headgate.pipeline.sources.options import SourceError
from headgate.protocol.reports import CollectorReport
from headgate.service.collecting.collector_queue import DROPPED, Arrival, CollectorQueue
from headgate.service.collecting.collectors import Collector, Collectors
from headgate.service.collecting.mqtt_session import MqttSession
from headgate.service.reports import read_reports
from headgate.wire.logs import Logs
from headgate.wire.unsent import decode_unsent

REFUSALS = [
    line.split(" -> ")
    for line in (Path(__file__).parents[1] / "data" / "collected-refusals.txt").read_text().splitlines()
    if not line.startswith("#")
]
needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")


@pytest.mark.parametrize(("written", "said"), REFUSALS)
def test_what_cannot_work_is_refused_with_what_to_do(written: str, said: str) -> None:
    form, *options = written.split(" ")
    with pytest.raises(SourceError) as error:
        CollectedSettings.of(form, dict(option.split("=", 1) for option in options))
    assert str(error.value).startswith(said)


def test_a_password_is_read_from_its_file_and_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("s3cret\n")
    given = {"url": "mqtts://far.example", "topic": "a/#", "user": "me", "password_file": str(tmp_path / "word")}
    settings = CollectedSettings.of("mqtt", given)
    assert (settings.port, settings.tls, settings.password()) == (8883, True, "s3cret")
    del given["password_file"]
    assert "s3cret" not in repr(CollectedSettings.of("mqtt", {**given, "password": "s3cret"}))
    with pytest.raises(SourceError, match="cannot be read"):
        CollectedSettings.of("mqtt", {**given, "password_file": str(tmp_path / "none")}).password()


@asynccontextmanager
async def home(url: str, name: str) -> AsyncIterator[Fabric]:
    """The deployment's own server, with the input log of the stream `s`."""
    async with await Fabric.connect(url, Logs(name)) as fabric:
        await fabric.ensure(fabric.logs.state)
        await fabric.ensure(fabric.logs.input("s"))
        yield fabric


async def stored(fabric: Fabric) -> list[bytes]:
    """What the input log holds, in order."""
    found: list[bytes] = []
    place = 0
    while batch := await fabric.read(fabric.logs.input("s"), fabric.logs.published("s"), place):
        place = batch[-1].sequence
        found += [each.data for each in batch]
    return found


@asynccontextmanager
async def collecting(fabric: Fabric, form: str, **options: Any) -> AsyncIterator[Collector]:
    collector = Collector(fabric, "s", Source(form, {name: str(value) for name, value in options.items()}))
    task = asyncio.create_task(collector.run())
    try:
        yield collector
    finally:
        await cancel_all([task])  # while nats-py connects, it may take a cancellation for its own


async def holds(fabric: Fabric, wanted: list[str]) -> None:
    async def all_there() -> bool:
        return len(await stored(fabric)) >= len(wanted)

    await until(all_there, 60)
    assert [each.decode() for each in await stored(fabric)] == wanted


def lines(first: int, last: int) -> list[str]:
    return [json.dumps({"number": number}) for number in range(first, last)]


@pytest.mark.nats
@needs_mosquitto
def test_messages_of_mqtt_come_once_and_in_order_while_brokers_and_collectors_come_and_go(
    tmp_path: Path, nats_url: str
) -> None:
    port = free_port()
    options = {"url": f"mqtt://127.0.0.1:{port}", "topic": "plant/+/state", "client_id": "collector"}

    async def run() -> None:
        with ExitStack() as stack:
            broker = stack.enter_context(mosquitto(tmp_path / "broker", port))
            async with home(nats_url, "mq1") as fabric:
                async with collecting(fabric, "mqtt", **options) as collector:
                    await asyncio.wait_for(collector.connected.wait(), 30)
                    await asyncio.to_thread(send, port, "plant/a/state", lines(0, 300), "-q", "1")
                    await asyncio.to_thread(send, port, "plant/other", lines(900, 910), "-q", "1")
                    await holds(fabric, lines(0, 300))
                # Nobody is connected: the broker keeps what comes for the session.
                await asyncio.to_thread(send, port, "plant/b/state", lines(300, 350), "-q", "1")
                async with collecting(fabric, "mqtt", **options) as collector:
                    await holds(fabric, lines(0, 350))
                    broker.terminate()  # it writes its sessions
                    await asyncio.to_thread(broker.wait, 30)

                    async def away() -> bool:
                        return not collector.connected.is_set()

                    await until(away, 60)
                    stack.enter_context(mosquitto(tmp_path / "broker", port))
                    await asyncio.wait_for(collector.connected.wait(), 60)
                    await asyncio.to_thread(send, port, "plant/c/state", lines(350, 400), "-q", "1")
                    await holds(fabric, lines(0, 400))

    asyncio.run(run())


@pytest.mark.nats
def test_a_message_is_acknowledged_when_it_is_stored_and_recognised_when_it_comes_again(nats_url: str) -> None:
    settings = CollectedSettings.of("mqtt", {"url": "mqtt://localhost", "topic": "#"})

    async def run() -> None:
        async with home(nats_url, "mq2") as fabric:
            intake = CollectorQueue(fabric, "s")
            session = MqttSession(settings, "collector", intake)
            acknowledged: list[int] = []
            client = SimpleNamespace(ack=lambda number, _: acknowledged.append(number))

            def came(number: int, text: str, *, again: bool = False) -> None:
                message = {"mid": number, "qos": 1, "topic": "a", "payload": text.encode(), "dup": again}
                session._take(client, SimpleNamespace(**message))

            came(1, "one")
            came(2, "two")
            assert acknowledged == []  # nothing is stored yet
            task = asyncio.create_task(intake.run())
            await holds(fabric, ["one", "two"])

            async def both() -> bool:
                return acknowledged == [1, 2]

            await until(both, 20)
            came(2, "two", again=True)  # its acknowledgement was lost with the connection
            assert (acknowledged, session.again) == ([1, 2, 2], 1)
            came(2, "two")  # the same words again, under a number that is free again
            came(1, "other", again=True)  # this one never came before
            await holds(fabric, ["one", "two", "two", "other"])
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(run())


@pytest.mark.nats
def test_what_nobody_sends_again_is_dropped_past_the_bound_and_declared(nats_url: str) -> None:
    async def run() -> None:
        async with home(nats_url, "mq3") as fabric:
            intake = CollectorQueue(fabric, "s", most=10)
            taken = [intake.offer(Arrival(str(number).encode())) for number in range(13)]
            assert taken == [True] * 10 + [False] * 3
            held: list[int] = []
            assert intake.offer(Arrival(b"kept", lambda: held.append(1)))  # its broker waits for us
            too_large = b"x" * (fabric.max_payload + 1)
            assert intake.offer(Arrival(too_large, lambda: held.append(2)))
            task = asyncio.create_task(intake.run())
            await holds(fabric, [*map(str, range(10)), "kept", "\0" + "x" * 4096])
            logs = fabric.logs

            async def declared() -> Any:
                return await fabric.last(logs.input("s"), logs.unsent("s"))

            assert dict(decode_unsent((await until(declared, 20)).data).reasons) == {DROPPED: 3}
            assert (held, intake.stored, intake.dropped, intake.waiting) == ([1, 2], 12, 3, 0)
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(run())


@pytest.mark.nats
def test_a_full_log_holds_messages_back_and_stores_each_once(nats_url: str) -> None:
    async def run() -> None:
        async with home(nats_url, "mq4") as fabric:
            log = fabric.logs.input("s")
            await fabric.ensure(replace(log, max_bytes=3000))
            intake, done = CollectorQueue(fabric, "s"), []
            wanted = [f"{number:03d}" + "x" * 300 for number in range(40)]
            for number, text in enumerate(wanted):
                intake.offer(Arrival(text.encode(), lambda number=number: done.append(number)))
            task = asyncio.create_task(intake.run())

            async def some() -> bool:
                return len(done) > 0

            await until(some, 20)
            assert len(done) < 40
            await fabric.ensure(log)
            await holds(fabric, wanted)
            assert done == list(range(40))
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(run())


@pytest.mark.nats
def test_a_subject_without_a_log_is_heard_and_heard_again_when_its_server_is_back(nats_url: str) -> None:
    port = free_port()

    async def publish(first: int, last: int) -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}", user="me", password="word")
        for line in lines(first, last):
            await client.publish("plant.a.state", line.encode())
        await client.publish("plant.other", b"nothing")
        await client.flush()
        await client.close()

    async def run() -> None:
        with ExitStack() as stack:
            options = {"url": f"nats://127.0.0.1:{port}", "subject": "plant.*.state", "user": "me"}
            async with home(nats_url, "mq5") as fabric:
                async with collecting(fabric, "nats-core", **options, password="word") as collector:
                    server = stack.enter_context(nats_server(port, "--user", "me", "--pass", "word"))
                    await asyncio.wait_for(collector.connected.wait(), 60)
                    await publish(0, 200)
                    await holds(fabric, lines(0, 200))
                    server.kill()
                    await asyncio.to_thread(server.wait, 30)

                    async def away() -> bool:
                        return not collector.connected.is_set()

                    await until(away, 60)
                    stack.enter_context(nats_server(port, "--user", "me", "--pass", "word"))
                    await asyncio.wait_for(collector.connected.wait(), 60)
                    await publish(200, 210)
                    await holds(fabric, lines(0, 210))
                async with collecting(fabric, "nats-core", **options, password="wrong"):
                    await says(fabric, lambda report: "not connected" in report.state and bool(report.error))

    asyncio.run(run())


async def says(fabric: Fabric, check: Callable[[CollectorReport], bool]) -> CollectorReport:
    async def told() -> CollectorReport | None:
        found = (await read_reports(fabric, CollectorReport)).get("s")
        return found if found is not None and check(found) else None

    report: CollectorReport = await until(told, 60)
    return report


@pytest.mark.nats
@needs_mosquitto
def test_a_broker_that_refuses_is_named_with_its_reason(tmp_path: Path, nats_url: str) -> None:
    port = free_port()
    words = tmp_path / "words"
    words.touch(0o600)
    subprocess.run(["mosquitto_passwd", "-b", str(words), "me", "right"], check=True, capture_output=True)
    options = {"url": f"mqtt://127.0.0.1:{port}", "topic": "a", "user": "me"}

    async def run() -> None:
        async with home(nats_url, "mq6") as fabric:
            async with collecting(fabric, "mqtt", **options, password="right"):
                report = await says(fabric, lambda report: report.error is not None)
                assert "cannot be reached" in (report.error or "")
            with mosquitto(tmp_path / "broker", port, "allow_anonymous false", f"password_file {words}"):
                async with collecting(fabric, "mqtt", **options, password="wrong"):
                    report = await says(fabric, lambda report: "does not let" in (report.error or ""))
                    assert "wrong" not in str(report)
                async with collecting(fabric, "mqtt", **options, password="right") as collector:
                    await asyncio.wait_for(collector.connected.wait(), 30)
                    await says(fabric, lambda report: report.state == "connected" and report.error is None)

    asyncio.run(run())


@pytest.mark.nats
def test_collectors_follow_the_deployment(nats_url: str) -> None:
    def deployment(**sources: dict[str, str]) -> Any:
        streams = {
            name: {"root": "oslo", "schema": {"v": "double"}, "source": source} for name, source in sources.items()
        }
        return parse_deployment(json.dumps({"sites": sites("oslo"), "streams": streams}), "d.yaml")

    async def run() -> None:
        far = {"format": "nats-core", "url": "nats://127.0.0.1:1", "subject": "a"}
        async with home(nats_url, "mq7") as fabric:
            collectors = Collectors(fabric)
            await collectors.follow(deployment(one=far, two={**far, "subject": "b"}, own={"format": "nats"}))
            before = dict(collectors.by_stream)
            assert set(before) == {"one", "two"}
            await collectors.follow(deployment(one=far, two={**far, "subject": "c"}))
            assert collectors.by_stream["one"] is before["one"]
            assert collectors.by_stream["two"] is not before["two"]
            await collectors.follow(deployment(own={"format": "nats"}))
            assert collectors.by_stream == {}
            await collectors.close()

    asyncio.run(run())
