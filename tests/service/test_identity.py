"""State that was moved away, put back or exchanged: told at the start, at a reader's connect and at publish."""

import asyncio
import functools
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from tests.live import until

from headgate.catalog import parse_deployment
from headgate.client import Client, ClientError, Inbox, LossError
from headgate.client.delivery import closing
from headgate.errors import HeadgateError
from headgate.pipeline.worker import Address
from headgate.protocol.reports import RelayReport
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.identity import encode_runs
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

STREAM = {"root": "home", "schema": {"n": "long"}, "source": {"format": "nats", "payload": "json"}}
DOCUMENT: dict[str, Any] = {
    "sites": {"home": {}, "away": {}},
    "streams": {"one": STREAM, "two": STREAM},
    "plan": {"one": {"away": "home"}, "two": {"away": "home"}},
    "subscriptions": {
        "all-one": {"stream": "one", "site": "away"},
        "all-two": {"stream": "two", "site": "away"},
    },
}
pytestmark = pytest.mark.live


def sync(test: Callable[..., Any]) -> Callable[..., None]:
    """A test on an event loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


@asynccontextmanager
async def up(place: Path, **settings: Any) -> AsyncIterator[tuple[Runtime, Client]]:
    """A deployment with a NATS server of its own, without Spark."""
    deployment = parse_deployment(yaml.safe_dump(DOCUMENT), "test.yaml")
    chosen = Settings(state_dir=place, job=False, **settings)
    async with open_runtime(chosen, deployment) as runtime:
        assert runtime.server is not None or chosen.nats is not None
        url = chosen.nats or runtime.server.url  # type: ignore[union-attr]
        async with await Client.connect(url, namespace=chosen.namespace) as client:
            yield runtime, client


def commit(runtime: Runtime, batch: int, first: int, count: int = 10, stream: str = "one") -> None:
    """Commit rows as the Spark job does."""
    assert runtime.server is not None
    with DirectCommits(Address(runtime.server.url, Logs()), "test") as direct:
        direct.commit(stream, pa.record_batch({"n": pa.array(range(first, first + count), pa.int64())}), batch)


async def read(client: Client, name: str, count: int, **reading: Any) -> tuple[list[int], str]:
    """The next so many rows of a subscription, and the position after them."""
    found: list[int] = []
    inbox = await client.subscribe(name, **reading)
    async with closing(inbox) as deliveries:
        async for delivery in deliveries:
            found += [row["n"] for row in delivery.to_pylist()]
            if len(found) >= count:
                inbox.done()
                return found, delivery.position
    raise AssertionError("unreachable")


async def stated(runtime: Runtime, site: str, stream: str) -> int:
    """How far a relay has reported a stream as settled."""
    logs = runtime.fabric.logs
    stored = await runtime.fabric.last(logs.state, logs.stats("relay", site))
    return 0 if stored is None else RelayReport.decode(stored.data).settled.get(stream, (0, 0))[0]


async def first_run(place: Path) -> str:
    """A run that commits ten rows and reads them; the position after them."""
    async with up(place) as (runtime, client):
        commit(runtime, 0, 0)
        rows, position = await read(client, "all-one", 10)
        assert rows == list(range(10))
    return position


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A stopped deployment after a first run, and a reader's position in it."""
    place = tmp_path_factory.mktemp("lived") / "state"
    return place, asyncio.run(first_run(place))


@pytest.fixture
def place(lived: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of that deployment."""
    return Path(shutil.copytree(lived[0], tmp_path / "state"))


@pytest.fixture
def position(lived: tuple[Path, str]) -> str:
    """The position of the reader that has read all of the first run."""
    return lived[1]


async def refused(place: Path, **settings: Any) -> str:
    """What a start says that does not come up."""
    with pytest.raises(HeadgateError) as caught:
        async with up(place, **settings):
            pass
    return str(caught.value)


@sync
async def test_a_second_start_on_the_same_state_goes_on(place: Path, position: str) -> None:
    async with up(place) as (runtime, client):
        commit(runtime, 1, 10)
        assert (await read(client, "all-one", 10, position=position))[0] == list(range(10, 20))
        assert runtime.told == []


@sync
async def test_a_store_that_is_gone_is_refused_and_its_loss_declared(place: Path, position: str) -> None:
    (place / "nats").rename(place / "moved")
    text = await refused(place)
    assert "NATS holds nothing under the namespace 'hg'" in text
    assert "restore the NATS store; or accept that rows are lost with `headgate up --accept-loss`" in text
    async with up(place, accept_loss=True) as (runtime, client):
        assert any("stream one begins incarnation 2" in line for line in runtime.told)
        with pytest.raises(LossError, match=r"of incarnation \w+ of the stream 'one', which is now at incarnation 2"):
            await client.subscribe("all-one", position=position)
        with pytest.raises(LossError, match="the NATS store is gone"):
            await client.subscribe("all-one")
        commit(runtime, 1, 100)
        assert (await read(client, "all-one", 10, after_loss=True))[0] == list(range(100, 110))
        status = await runtime.status()
        assert "the NATS store is gone" in status["streams"]["one"]["incarnation"]["loss"]
        await client.subscribe("all-one")  # told once: it has acknowledged the new incarnation
        assert (await client.publish("one", [{"n": 1}])) == 1
    shutil.rmtree(place / "nats")
    (place / "moved").rename(place / "nats")
    assert "is of incarnation" in await refused(place)  # the first store comes back: it is not this one's any more


@sync
@pytest.mark.long
async def test_an_older_store_is_refused(place: Path) -> None:
    shutil.copytree(place / "nats", place / "backup")
    async with up(place) as (runtime, _):
        commit(runtime, 1, 10)
    shutil.rmtree(place / "nats")
    (place / "backup").rename(place / "nats")
    text = await refused(place)
    assert "the log HG_ROOT_one ends at message" in text
    assert "it is an older copy" in text
    assert await refused(place) == text  # a start that is refused changes nothing, not even what is known
    async with up(place, accept_loss=True) as (runtime, client):
        with pytest.raises(LossError, match="it is an older copy"):
            await client.subscribe("all-one")
        commit(runtime, 2, 20)
        code, _, errors = await tail(place, "all-one", "--count", "10")
        assert (code, "`headgate tail --after-loss`" in errors) == (2, True)
        code, output, errors = await tail(place, "all-one", "--count", "10", "--after-loss", "--json")
        assert (code, errors) == (0, "")
        assert [json.loads(line)["n"] for line in output.splitlines()] == list(range(20, 30))


async def tail(place: Path, *words: str) -> tuple[int | None, str, str]:
    """`headgate tail` as a program: its exit code, and what it wrote."""
    command = (sys.executable, "-m", "headgate.cli", "tail", *words, "--state-dir", str(place))
    pipe = asyncio.subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environment)
    output, errors = await program.communicate()
    return program.returncode, output.decode(), " ".join(errors.decode().split())


@pytest.mark.long
@sync
async def test_one_stream_that_lost_its_log_leaves_the_other_alone(tmp_path: Path) -> None:
    async with up(tmp_path) as (runtime, client):
        for stream in ("one", "two"):
            commit(runtime, 0, 0, stream=stream)
        one = (await read(client, "all-one", 10))[1]
        two = (await read(client, "all-two", 5, max_rows=5))[1]
        # What a relay has stated of the lost rows must not be taken for the rows that come in their place.
        await until(lambda: stated(runtime, "away", "one"))
    shutil.rmtree(next((tmp_path / "nats" / "data").rglob("HG_ROOT_one")))
    text = await refused(tmp_path)
    assert "the log HG_ROOT_one is gone" in text
    assert "HG_ROOT_two" not in text
    async with up(tmp_path, accept_loss=True) as (runtime, client):
        commit(runtime, 1, 10, stream="two")
        assert (await read(client, "all-two", 15, position=two))[0] == list(range(5, 20))
        with pytest.raises(LossError):
            await client.subscribe("all-one", position=one)
        commit(runtime, 0, 50)
        assert (await read(client, "all-one", 10, after_loss=True))[0] == list(range(50, 60))
        status = await runtime.status()
        assert [each["difference"] for each in status["subscriptions"].values()] == [0, 0]


@pytest.mark.long
@sync
async def test_state_of_two_deployments_is_not_exchanged(place: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    await first_run(other)
    mine = place / "checkpoints" / "one"
    mine.rename(tmp_path / "kept")
    assert "the checkpoint of the stream 'one' is gone" in await refused(place)
    shutil.copytree(other / "checkpoints" / "one", mine)
    assert "the checkpoint of the stream 'one' is of incarnation" in await refused(place)
    async with up(place, new_lineage=True) as (runtime, _):
        assert "was moved to" in runtime.told[0]
    shutil.rmtree(place / "nats")
    shutil.copytree(other / "nats", place / "nats")
    text = await refused(place, accept_loss=True)  # another deployment's rows are nothing to give up
    assert "NATS holds logs of the deployment" in text
    assert "--accept-loss" not in text


@pytest.mark.long
@sync
async def test_a_catalog_that_is_gone_is_rebuilt_as_it_was(place: Path, position: str) -> None:
    async with up(place) as (runtime, client):
        await client.control("subscribe", name="gone", subscription={"stream": "one", "site": "home", "where": "n > 5"})
        await client.control("unsubscribe", name="gone")
        await client.control("subscribe", name="late", subscription={"stream": "one", "site": "home", "where": "n > 3"})
        await client.move("all-two", "home")
        before, filed = runtime.catalog.snapshot(), runtime.catalog.filed()
    (place / "catalog.db").unlink()
    text = await refused(place)
    assert "is empty" in text
    assert "--rebuild-catalog" in text
    async with up(place, rebuild_catalog=True) as (runtime, client):
        assert runtime.catalog.snapshot() == before
        assert runtime.catalog.filed() == filed
        commit(runtime, 1, 10)
        assert (await read(client, "all-one", 10, position=position))[0] == list(range(10, 20))
        await client.control("subscribe", name="new", subscription={"stream": "one", "site": "home", "where": "n > 7"})
        after = runtime.catalog.snapshot()
        assert after.subscription_ids["new"] > before.identity.last_subscription
        assert after.class_ids["new"] > before.identity.last_class
    assert "start without --rebuild-catalog" in await refused(place, rebuild_catalog=True)


@pytest.mark.long
@sync
async def test_an_older_catalog_is_refused_and_rebuilt(place: Path) -> None:
    shutil.copy(place / "catalog.db", place / "backup.db")
    async with up(place) as (runtime, client):
        await client.control("subscribe", name="late", subscription={"stream": "one", "site": "home"})
        before = runtime.catalog.snapshot()
    for ending in ("", "-wal", "-shm"):
        (place / f"catalog.db{ending}").unlink(missing_ok=True)
    (place / "backup.db").rename(place / "catalog.db")
    text = await refused(place, accept_loss=True)
    assert f"revision {before.revision} is in force in NATS: the catalog is older" in text
    async with up(place, rebuild_catalog=True) as (runtime, _):
        assert runtime.catalog.snapshot() == before


@sync
async def test_a_position_from_before_a_backup_is_refused(place: Path, tmp_path: Path) -> None:
    """Everything is put back together, so only the position knows what was lost."""
    shutil.copytree(place, tmp_path / "backup")
    async with up(place) as (runtime, client):
        commit(runtime, 1, 10)
        late = (await read(client, "all-one", 10))[1]
    shutil.rmtree(place)
    (tmp_path / "backup").rename(place)
    async with up(place) as (runtime, client):
        for batch in (1, 2):
            commit(runtime, batch, 100 * batch)
        with pytest.raises(LossError, match="that this deployment knows nothing of"):
            await client.subscribe("all-one", position=late)
        assert (await read(client, "all-one", 20))[0] == [*range(100, 110), *range(200, 210)]


@sync
async def test_a_reader_that_is_there_hears_of_a_new_run_and_of_a_new_incarnation(tmp_path: Path) -> None:
    async with up(tmp_path) as (runtime, client):
        commit(runtime, 0, 0)
        inbox = await client.subscribe("all-one")
        deliveries = inbox.__aiter__()
        assert len(await anext(deliveries)) == 10
        run = runtime.catalog.begin_run({"one": 10, "two": 0})[-1]
        await runtime.fabric.publish(runtime.fabric.logs.runs, encode(runtime))
        commit(runtime, 1, 10)
        delivery = await anext(deliveries)
        assert isinstance(inbox, Inbox)

        async def followed() -> bool:
            return inbox.tally.run == run.id

        await until(followed)
        known = runtime.catalog.snapshot().identity.incarnations["one"]
        runtime.catalog.begin_incarnations({"one": known.next("a test", 1, 2)})
        await runtime.control.publish()
        runtime.catalog.begin_run({"one": 0, "two": 0})
        await runtime.fabric.publish(runtime.fabric.logs.runs, encode(runtime))
        with pytest.raises(LossError, match="the reader of 'all-one'"):
            await anext(deliveries)
        assert len(delivery) == 10


def encode(runtime: Runtime) -> bytes:
    return encode_runs(runtime.catalog.runs())


@sync
async def test_two_deployments_in_one_namespace(tmp_path: Path, nats_url: str) -> None:
    settings = {"nats": nats_url, "namespace": "twice"}
    async with up(tmp_path / "a", **settings):
        assert "a deployment is already running in this NATS" in await refused(tmp_path / "b", **settings)
    text = await refused(tmp_path / "b", **settings)
    assert "give it a --namespace of its own" in text


@sync
async def test_a_log_of_another_deployment_takes_no_rows(place: Path) -> None:
    async with up(place) as (runtime, client):
        await runtime.fabric.delete(runtime.fabric.logs.input("one").name)
        with pytest.raises(ClientError, match="HG_IN_one, into which rows of 'one' are published, is gone"):
            await client.publish("one", [{"n": 1}])
        runtime.fabric.marks = {"headgate_deployment": "another"}
        await runtime.fabric.ensure(runtime.fabric.logs.input("one"))
        with pytest.raises(ClientError, match="is of the deployment another"):
            await client.publish("one", [{"n": 1}])


def damage(place: Path, log: str, text: bytes) -> None:
    """Flip a bit behind the last place where a file of a log holds a text."""
    for file in next((place / "nats" / "data").rglob(log)).rglob("*.blk"):
        data = bytearray(file.read_bytes())
        at = data.rfind(text)
        if at >= 0:
            data[at + len(text) + 2] ^= 0x10
            file.write_bytes(data)
            return
    raise AssertionError(f"{text!r} is not in {log}")


@sync
async def test_what_is_damaged_and_can_be_made_again_is(place: Path, position: str) -> None:
    damage(place, "HG_TABLES", b"hg.tables.1")
    damage(place, "HG_STATE", b"hg.catalog.head")
    async with up(place) as (runtime, client):
        assert [line.partition(":")[0] for line in runtime.told] == [
            "HG_STATE, hg.catalog.head",
            "HG_TABLES, hg.tables.1",
        ]
        commit(runtime, 1, 10)
        assert (await read(client, "all-one", 10, position=position))[0] == list(range(10, 20))


@sync
async def test_what_is_damaged_and_cannot_be_made_again_is_named(place: Path) -> None:
    damage(place, "HG_STATE", b"hg.ack.1")
    assert "the log HG_STATE is damaged: the last message of hg.ack.1 cannot be read" in await refused(place)
    damage(place, "HG_ROOT_one", b"hg.root.one.commit")
    text = await refused(place)
    assert "the log HG_ROOT_one is damaged: the last message of hg.root.one.commit cannot be read" in text
    async with up(place, accept_loss=True) as (runtime, client):
        assert any("HG_STATE, hg.ack.1: the value" in line for line in runtime.told)
        commit(runtime, 0, 20)
        assert (await read(client, "all-one", 10, after_loss=True))[0] == list(range(20, 30))
