"""Every example runs: its deployment file and its code, on relays in this process and rows committed directly."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import yaml
from tests.live import Live, running, until

from headgate.cli.status_sheets import differences
from headgate.model import Schema
from headgate.pipeline.sources import generate
from headgate.pipeline.worker import Address
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    """The code of an example."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run(
    name: str, tmp_path: Path, nats_url: str, work: Callable[[Live, Any], Awaitable[None]], spark: Any = None
) -> None:
    """Run the deployment of an example, and what a test does with it."""

    async def live() -> None:
        text = (EXAMPLES / name / "headgate.yaml").read_text().replace("48 kbit/s", "480 kbit/s")  # a faster ship
        async with running(text, tmp_path, nats_url, spark) as deployment:
            async with asyncio.timeout(300):
                await work(deployment, load(name))
            assert differences(await deployment.runtime.status()) == []

    asyncio.run(live())


def test_there_are_examples_and_each_says_how_to_run_it() -> None:
    names = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    assert len(names) >= 10
    for name in names:
        code = EXAMPLES / name / f"{name}.py"
        assert not code.exists() or load(name).__doc__, f"{name} says nothing about itself"
    assert set(names) == set((EXAMPLES / "README.md").read_text().replace("](", " ").replace("/", " ").split()) & set(
        names
    ), "examples/README.md names every example"


def test_a_fence_sees_who_is_inside_and_can_be_moved(tmp_path: Path, nats_url: str) -> None:
    rows = generate("fleet", 3, 0, 2000)
    near = {(51.5, -0.12): 12.0, (59.91, 10.75): 30.0}

    async def work(live: Live, example: Any) -> None:
        inside = [_within(rows.slice(0, 1000), (51.5, -0.12), 12.0), _within(rows.slice(1000), (59.91, 10.75), 30.0)]
        assert all(inside)
        told: list[str] = []
        fence = example.Fence(told.append)
        await live.commit("fleet", rows.slice(0, 1000), 0)
        await example.follow(live.client, fence, len(inside[0]))
        assert set(fence.inside) == set(inside[0])
        assert len(told) == len(set(inside[0]))
        await example.move(live.client, 59.91, 10.75, near[59.91, 10.75])
        await live.commit("fleet", rows.slice(1000), 1)
        fence = example.Fence(told.append)
        await example.follow(live.client, fence, len(inside[1]))
        assert set(fence.inside) == set(inside[1])

    run("fleet_geofences", tmp_path, nats_url, work)


def _within(rows: pa.RecordBatch, centre: tuple[float, float], radius_km: float) -> list[str]:
    """The vehicles of rows inside a circle, by the formula itself."""
    from math import asin, cos, radians, sin, sqrt

    def away_km(lat: float, lon: float) -> float:
        here, there = radians(lat), radians(centre[0])
        a = sin((here - there) / 2) ** 2 + cos(here) * cos(there) * sin(radians(lon - centre[1]) / 2) ** 2
        return 2 * 6371.0 * asin(sqrt(a))

    return [row["vehicle"] for row in rows.to_pylist() if away_km(row["lat"], row["lon"]) < radius_km]


def test_every_alarm_comes_and_trends_say_what_they_gave_up(tmp_path: Path, nats_url: str) -> None:
    rows = generate("pulse", 7, 0, 3000, patients=40)
    urgent = [row["patient"] for row in rows.to_pylist() if row["alarm"] or row["heart_rate"] > 140 or row["spo2"] < 88]

    async def work(live: Live, example: Any) -> None:
        assert urgent
        told: list[str] = []
        await live.commit("monitors", rows, 0)
        found, counts = await asyncio.gather(
            example.alarms(live.client, len(urgent), told.append), example.trends(live.client, 3000, told.append)
        )
        assert found == len(urgent)
        assert sum(counts.values()) == 3000
        assert 0 < counts["came"] < 3000
        assert any("readings were given up: pulse from" in line for line in told)

    run("hospital_alarms", tmp_path, nats_url, work)


def test_a_map_is_coarse_first_and_finer_when_asked(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live, example: Any) -> None:
        told: list[str] = []

        async def commits() -> None:
            before = live.runtime.catalog.snapshot().revision
            for step in range(4):
                await live.commit("weather", generate("weather", 5, 1024 * step, 1024 * (step + 1)), step)
                if step == 1:
                    await until(lambda: _asked(live, before))

        sailing = asyncio.create_task(example.sail(live.client, ("1/4",), 3, told.append))
        await asyncio.gather(sailing, commits())
        shares = [line.splitlines()[0] for line in told]
        assert shares == [f"step {step}: {share}% of the points" for step, share in enumerate((6, 6, 25))]
        assert sailing.result().kept[:3] == (0, 1, 2)
        assert all(len(line) == 32 for line in told[0].splitlines()[1:])

    run("weather_ship", tmp_path, nats_url, work)


async def _asked(live: Live, before: int) -> bool:
    """Whether a later revision is in force: a finer map was asked for."""
    return (await live.client.snapshot()).revision > before


def test_new_items_are_pushed_to_whoever_asked_for_them(tmp_path: Path, nats_url: str) -> None:
    from headgate.feeds import SCHEMA, Politeness, Poller, Spool, run_feeds
    from headgate.feeds.listing import parse_feeds
    from headgate_studies.workloads.feeds import FeedServer, MadeFeed

    made = {
        "news": MadeFeed("rss", [("n1", "Bridge opened", "city"), ("n2", "Storm ahead", "weather")]),
        "sky": MadeFeed("atom", [("s1", "Gale warning", "weather")]),
    }

    async def work(live: Live, example: Any) -> None:
        spool = Spool(tmp_path / "spool")
        with FeedServer(made) as server:
            feeds = parse_feeds("\n".join(f"{name} {server.url}/{name}" for name in made), "feeds.txt")
            poller = Poller(feeds, Politeness(interval_s=0.0, host_gap_s=0.0))
            await asyncio.to_thread(run_feeds, poller, spool, rounds=1)
        lines = [pa.py_buffer(path.read_bytes()) for path in sorted(spool.items.glob("*"))]
        import json

        items = [json.loads(line) for text in lines for line in text.to_pybytes().decode().splitlines()]
        from datetime import datetime

        for item in items:
            for name in ("published", "fetched"):
                item[name] = None if item.get(name) is None else datetime.fromisoformat(item[name])
        rows = pa.RecordBatch.from_pylist(items, schema=SCHEMA.arrow)
        await live.commit("feeds", rows, 0)
        for name, titles in {
            "storms": ["Storm ahead", "Gale warning"],
            "headlines": ["Bridge opened", "Storm ahead"],
        }.items():
            told: list[str] = []
            await example.read(live.client, name, 2, told.append)
            assert {line.split(" <")[0] for line in told} == set(titles)

    run("feeds_reader", tmp_path, nats_url, work)


def test_players_see_what_is_around_them_where_they_are_now(tmp_path: Path, nats_url: str) -> None:
    def world(*players: tuple[str, float, float]) -> pa.RecordBatch:
        schema = pa.schema(
            {
                "player": pa.string(),
                "x": pa.float64(),
                "y": pa.float64(),
                "health": pa.int32(),
                "at": pa.timestamp("us", "UTC"),
            }
        )
        now = datetime.now(UTC)
        rows = [{"player": name, "x": x, "y": y, "health": 100, "at": now} for name, x, y in players]
        return pa.RecordBatch.from_pylist(rows, schema=schema)

    async def work(live: Live, example: Any) -> None:
        ada = await example.enter(live.client, "ada", "europe", 0.0, 0.0)
        await live.commit("world", world(("ada", 0, 0), ("bob", 10, 20), ("eve", 500, 500)), 0)
        assert [row["player"] for row in await example.watch(ada, 1, lambda _: None)] == ["bob"]
        await example.step(live.client, "ada", 490.0, 510.0)
        await live.commit("world", world(("bob", 11, 21), ("eve", 501, 501), ("ada", 490, 510)), 1)
        again = await live.client.subscribe("around-ada")
        assert [row["player"] for row in await example.watch(again, 1, lambda _: None)] == ["eve"]

    run("game_world", tmp_path, nats_url, work)


def test_a_slow_screen_ends_with_the_newest_price_of_each_symbol(tmp_path: Path, nats_url: str) -> None:
    rows = generate("ticks", 2, 0, 4000, symbols=50)
    newest = {row["symbol"]: row["price"] for row in rows.to_pylist()}

    async def work(live: Live, example: Any) -> None:
        told: list[str] = []
        for batch in range(4):
            await live.commit("ticks", rows.slice(1000 * batch, 1000), batch)
        prices = await example.screen(live.client, draw_s=0.0005, waiting=100, upto=4000, tell=told.append)
        assert prices == newest
        assert " 0 ticks skipped" not in told[-1]

    run("market_ticks", tmp_path, nats_url, work)


def test_a_gateway_counts_every_reading_as_stored_or_given_up(tmp_path: Path, nats_url: str) -> None:
    pytest.importorskip("paho.mqtt.client")

    async def burst() -> Any:
        for number in range(40):
            temps = [40.0 + (number % 7) * 0.1, 60.0 + number]
            for k, temp in enumerate(temps):
                yield {"sensor": f"s{k}", "temp": temp, "battery": 50.0, "at": datetime.now(UTC).isoformat()}

    async def work(live: Live, example: Any) -> None:
        told: list[str] = []
        report = await example.gateway(live.client, burst(), waiting=20, tell=told.append)
        assert report.offered == 80
        assert report.stored + sum(report.reduced.values()) == 80
        assert sum(report.reduced.values()) > 0
        assert any("hottest of them" in line for line in told)

    run("iot_gateway", tmp_path, nats_url, work)


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto's clients are not installed")
def test_sensors_and_panels_speak_mqtt(tmp_path: Path) -> None:
    """Published by the example and by mosquitto_pub, committed as they lie in the input log, read by both."""
    pytest.importorskip("paho.mqtt.client")
    from tests.api.test_mqtt import world

    example = load("iot_gateway")
    document = yaml.safe_load((EXAMPLES / "iot_gateway" / "headgate.yaml").read_text())
    del document["nats"]  # the test chooses a port
    rows = [
        {"sensor": f"s{number}", "temp": 50.0 + number, "battery": 80.0, "at": f"2026-03-01T06:00:{number:02}+00:00"}
        for number in range(20)
    ]

    def commit(url: str) -> None:
        made = [{**row, "at": datetime.fromisoformat(str(row["at"]))} for row in rows]
        schema = Schema.of(document["streams"]["readings"]["schema"]).arrow
        with DirectCommits(Address(url, Logs()), "test") as direct:
            direct.commit("readings", pa.RecordBatch.from_pylist(made, schema), 0, 0.0)

    async def work() -> None:
        async with world(tmp_path, document) as here, asyncio.timeout(300):
            url = f"mqtt://127.0.0.1:{here.port}"
            sensors = await here.password("sensors", publishes=["readings"])
            panel = await here.password("panel", reads=["hot"])
            device = await here.listen("panel", panel, "headgate/hot", "-q", "1", "-i", "stock")
            async with (
                example.connected(url, "sensors", sensors) as sending,
                example.connected(url, "panel", panel) as reading,
            ):
                loop, listening = asyncio.get_running_loop(), asyncio.Event()
                reading.on_subscribe = lambda *_: loop.call_soon_threadsafe(listening.set)
                lines = example.heard(reading, "headgate/hot")
                first = asyncio.create_task(anext(lines))
                await listening.wait()
                for row in rows[:10]:
                    await example.publish(sending, "headgate-in/readings", row)
                for row in rows[10:]:
                    await here.publish("sensors", sensors, "headgate-in/readings", json.dumps(row), 1)
                logs, fabric = here.client.fabric.logs, here.client.fabric

                async def stored() -> list[Any] | None:
                    found = await fabric.read(logs.input("readings"), logs.published("readings"), 0)
                    return [json.loads(each.data) for each in found] if len(found) == len(rows) else None

                assert await until(stored) == rows
                await asyncio.to_thread(commit, here.runtime.url)
                read = [await first, *[await anext(lines) for _ in range(8)]]

                async def all_there() -> bool:
                    return len(device.seqs) == 9

                await until(all_there)
                for found in (read, [row for _, _, row in device.lines]):
                    assert [(row["_seq"], row["sensor"]) for row in found] == [(n + 1, f"s{n}") for n in range(11, 20)]

    asyncio.run(work())


@pytest.mark.long
def test_a_subscription_is_a_source_of_another_spark_job(tmp_path: Path, nats_url: str, spark: Any) -> None:
    import headgate.spark

    rows = generate("fleet", 3, 0, 1500)
    wanted = Counter(row["vehicle"] for row in rows.to_pylist() if row["status"] in ("idle", "fault"))
    low = [row for row in rows.to_pylist() if row["status"] != "moving" and row["fuel"] < 20]
    warned = [{name: row[name] for name in ("vehicle", "fuel", "at")} for row in low]
    assert wanted
    assert warned

    async def work(live: Live, example: Any) -> None:
        options = {"nats": nats_url, "namespace": live.address.logs.namespace}

        async def queries() -> None:
            """Run both queries until they have read everything, as a job does that is started again."""
            kept = example.keep(example.stopped(spark, options), tmp_path)
            frame = example.stopped(spark, {**options, "subscription": "thirsty"})
            for query in (kept, example.warn(frame, tmp_path, options)):
                await asyncio.to_thread(query.processAllAvailable)
                query.stop()

        headgate.spark.register(spark)
        await live.commit("fleet", rows.slice(0, 800), 0)
        await queries()
        await live.commit("fleet", rows.slice(800), 1)
        await queries()
        kept = spark.read.parquet(str(tmp_path / "stopped"))
        assert kept.columns == ["vehicle", "lat", "lon", "fuel", "at"]
        assert Counter(row["vehicle"] for row in kept.collect()) == wanted
        await live.run_queries("warnings")
        live.readers.start(["dispatch"])

        async def all_there() -> bool:  # the last batch of a query is acknowledged when it is started again
            live.readers.check()
            return "dispatch" in live.readers.deliveries and len(live.seqs("dispatch")) >= len(warned)

        await until(all_there)
        assert live.rows("dispatch").to_pylist() == warned

    run("spark_to_spark", tmp_path, nats_url, work, spark)


@pytest.mark.slow
def test_the_notebook_runs_and_holds_what_it_prints() -> None:
    import json

    from headgate_studies.testing.notebooks import charts, executed, printed

    committed = (EXAMPLES / "notebook" / "notebook.ipynb").read_text()
    again = executed(committed)
    assert printed(again) == printed(json.loads(committed)), "run `python -m headgate_studies.testing.notebooks` on it"
    assert charts(again) == charts(json.loads(committed)) == 2
