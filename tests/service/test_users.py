"""Users who are no operators: each reaches its own subscriptions and streams, and nothing else, by whatever way."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml
from tests.live import small, until

from headgate.catalog import parse_deployment
from headgate.client import Client, ClientError
from headgate.errors import HeadgateError
from headgate.fabric import FabricError, SyncFabric
from headgate.fabric.gated import GatedFabric
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

pytestmark = pytest.mark.nats
NOTES = {"root": "root", "source": {"format": "nats", "password": "s3cret"}, "schema": {"text": "string"}}


class World:
    """A deployment with an embedded server, its operator, and users with credentials."""

    def __init__(self, runtime: Runtime, operator: Client, directory: Path) -> None:
        self.runtime, self.operator, self.directory = runtime, operator, directory
        assert runtime.server is not None
        self.server = runtime.server
        self._batch = 0

    async def credentials(self, name: str, verb: str = "user-add", **rights: Any) -> str:
        answer = await self.operator.control(verb, name=name, **rights)
        path = self.directory / f"{name}-{answer['key'][:6]}.creds"
        path.write_text(answer["credentials"], encoding="utf-8")
        return str(path)

    async def client(self, credentials: str) -> Client:
        return await Client.connect(self.server.listens_at, user_credentials=credentials)

    async def commit(self, first: int, stop: int) -> None:
        def work() -> None:
            with DirectCommits(Address(self.server.url, Logs()), "test") as direct:
                direct.commit("fleet", generate("fleet", 3, first, stop), self._batch, 0.0)

        await asyncio.to_thread(work)
        self._batch += 1

    async def everything(self) -> dict[str, tuple[int, int]]:
        """What is in each log: who changes anything changes this."""
        infos = await self.operator.fabric.infos("hg.>")
        return {name: (info.last, info.messages) for name, info in infos.items() if name != "HG_STATE"}


@asynccontextmanager
async def world(directory: Path, **more: Any) -> AsyncIterator[World]:
    document = small(theirs={"site": "leaf"})
    document["streams"]["notes"] = {**NOTES, "source": {"format": "nats"}}
    deployment = parse_deployment(yaml.safe_dump({**document, **more}), "test.yaml", GENERATOR_SCHEMAS)
    settings = Settings(state_dir=directory / "state", job=False)
    async with (
        open_runtime(settings, deployment) as runtime,
        await Client.connect(state_dir=directory / "state") as operator,
    ):
        yield World(runtime, operator, directory)


def test_a_user_makes_reads_and_ends_a_subscription_of_its_own(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            world(tmp_path) as here,
            await here.client(await here.credentials("ada", subscribe=["fleet"])) as ada,
        ):
            assert isinstance(ada.fabric, GatedFabric)
            inbox = await ada.subscribe("hers", stream="fleet", site="leaf", select=["vehicle", "speed"])
            snapshot = here.runtime.control.contexts.snapshot
            assert snapshot.deployment.subscriptions["hers"].owner == "ada"
            await here.commit(0, 50)
            seqs: list[int] = []
            async for delivery in inbox:
                seqs += delivery.seqs.tolist()
                assert delivery.rows.schema.names == ["vehicle", "speed"]
                inbox.done()  # type: ignore[union-attr]
                if len(seqs) == 50:
                    break
            await inbox.close()
            await ada.move("hers", "root")  # its own to move
            await here.commit(50, 80)
            inbox = await ada.subscribe("hers")  # goes on behind the move, from what was acknowledged
            async for delivery in inbox:
                seqs += delivery.seqs.tolist()
                inbox.done()
                if len(seqs) >= 80:
                    break
            assert seqs == list(range(1, 81))
            await inbox.close()

            async def settled() -> bool:
                rows = (await here.runtime.status())["subscriptions"]["hers"]
                return rows["delivered"] == 80 and rows["in_flight"] == 0

            await until(settled)
            assert list((await ada.control("mine"))["subscriptions"]) == ["hers"]
            seen = await ada.snapshot()
            assert set(seen.deployment.subscriptions) == {"hers"}
            assert set(seen.deployment.streams) == {"fleet"}
            assert seen.plan is None
            await ada.unsubscribe("hers")

    asyncio.run(run())


@pytest.mark.long
def test_nobody_reaches_what_is_anothers(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            world(tmp_path, limits={"subscriptions": 2}) as here,
            await here.client(await here.credentials("ada", subscribe=["*"])) as ada,
            await here.client(await here.credentials("bob", subscribe=["fleet"], publish=["fleet"])) as bob,
        ):
            inbox = await ada.subscribe(
                "hers", stream="fleet", site="leaf", where="speed > $limit", context={"limit": -1.0}
            )
            await here.commit(0, 20)
            assert len((await anext(aiter(inbox))).seqs) == 20
            await until(lambda: _at_rest(here))
            number = here.runtime.control.contexts.snapshot.subscription_ids["hers"]
            before = await here.everything()
            for name in ("hers", "theirs", "nobodys"):
                asks = (
                    ("subscribe", {"name": name, "subscription": {"stream": "fleet", "site": "root"}, "change": True}),
                    ("move", {"name": name, "site": "root"}),
                    ("unsubscribe", {"name": name}),
                    ("context", {"name": name, "values": {"limit": 2.0}}),
                    ("context", {"contexts": {name: {"limit": 2.0}}}),
                    ("refine", {"name": name, "resolution": {"space": "1/2"}}),
                )
                for verb, request in asks if name != "nobodys" else asks[1:]:
                    with pytest.raises(ClientError, match=f"no subscription '{name}' of yours"):
                        await bob.control(verb, **request)
                with pytest.raises(HeadgateError, match=f"no subscription '{name}'"):
                    await bob.subscribe(name)
            for document, said in (
                ({"stream": "notes"}, "may not subscribe to 'notes'"),
                ({"stream": "fleet", "owner": "ada"}, "cannot subscribe for others"),
                ({"stream": "fleet", "priority": 9}, "only an operator gives a subscription a priority"),
                (
                    {"stream": "fleet", "where": "speed > $limit", "context_from": "hers", "context": {"limit": 1}},
                    "'hers'",
                ),
            ):
                with pytest.raises(ClientError, match=said):
                    await bob.control("subscribe", name="his", subscription={"site": "leaf", **document})
            for verb in ("status", "machine", "user-list", "user-add", "nothing"):
                with pytest.raises(ClientError, match="may not ask for"):
                    await bob.control(verb, name="eve", operator=True)
            logs, fabric = bob.fabric.logs, bob.fabric
            for subject in (
                logs.delivery("leaf", number),
                logs.ack(number),
                logs.ledger("notes"),
                "hg.stats.service._",
            ):
                with pytest.raises(FabricError, match="is not for user 'bob'"):
                    await fabric.last(logs.state, subject)
                with pytest.raises(FabricError, match="is not for user 'bob'"):
                    await fabric.read(logs.state, subject, 0)
                with pytest.raises(FabricError, match="is not for user 'bob'"):
                    await fabric.publish(subject, b"x")
            with pytest.raises(FabricError, match="is not for user 'bob'"):
                await fabric.read(logs.tables, "hg.tables.>", 0)
            assert await here.everything() == before
            # What a user asks for is refused to it, and not to whom it belongs.
            await ada.control("context", name="hers", values={"limit": 2.0})
            await ada.control("subscribe", name="two", subscription={"stream": "fleet", "site": "root"})
            with pytest.raises(ClientError, match="has 2 subscriptions and may have 2"):
                await ada.control("subscribe", name="three", subscription={"stream": "fleet", "site": "root"})
            # Not even the answer to a request of another, by its id.
            answer = await ada.control("move", name="two", site="leaf", request="known")
            with pytest.raises(ClientError, match="no subscription 'two' of yours"):
                await bob.control("move", name="two", site="leaf", request="known")
            assert await ada.control("move", name="two", site="leaf", request="known") == answer
            await here.operator.unsubscribe("two")  # an operator may

    asyncio.run(run())


def test_the_server_itself_keeps_users_apart(tmp_path: Path) -> None:
    """With plain NATS, past our own client: subjects, the JetStream API, replies that lead elsewhere, listening."""

    async def run() -> None:
        async with world(tmp_path) as here, await here.client(await here.credentials("ada", subscribe=["*"])) as ada:
            await ada.subscribe("hers", stream="fleet", site="leaf")
            file = await here.credentials("mallory", subscribe=["notes"], publish=["notes"])
            refused: list[str] = []

            async def noted(error: Exception) -> None:
                refused.append(str(error))

            url = here.server.listens_at
            mallory = await nats.connect(url, user_credentials=file, inbox_prefix=b"_INBOX_mallory", error_cb=noted)
            await here.commit(0, 20)
            await until(lambda: _at_rest(here))
            before = await here.everything()
            targets = ["hg.root.fleet.commit", "hg.root.fleet.part", "hg.ack.1", "hg.catalog.head", "hg.in.fleet",
                       "hg.site.leaf.in.fleet.root", "hg.inbox.leaf.1", "hg.control.unsubscribe",
                       "hg.as.ada.unsubscribe", "hg.as.ada.get", "$JS.API.STREAM.DELETE.HG_STATE",
                       "$JS.API.STREAM.PURGE.HG_ROOT_fleet",
                       "$JS.API.DIRECT.GET.HG_INBOX_leaf", "$JS.API.STREAM.LIST", "$SYS.REQ.CLAIMS.UPDATE"]  # fmt: skip
            for subject in targets:
                with pytest.raises((TimeoutError, nats.errors.Error)):
                    await mallory.request(subject, json.dumps({"name": "hers"}).encode(), timeout=0.1)
                # A reply that is stored would do the same.
                for asked in ("hg.in.notes", "hg.as.mallory.mine", "hg.as.mallory.get"):
                    await mallory.publish(asked, b'{"last_by_subj": "hg.catalog.head"}', reply=subject)
            heard: list[str] = []

            async def hear(message: Any) -> None:
                heard.append(message.subject)

            for subject in (">", "hg.>", "hg.inbox.>", "_INBOX.>", "_INBOX_ada.>", "$SYS.>", "_R_.>", "*.in.*"):
                await mallory.subscribe(subject, cb=hear)
            await here.commit(20, 40)
            await until(lambda: _at_rest(here, 2))
            await ada.control("mine")
            await mallory.flush()
            after = await here.everything()
            own = len(targets)  # what was published into its own stream
            assert after["HG_IN_notes"] == (before["HG_IN_notes"][0] + own, before["HG_IN_notes"][1] + own)
            changed = {name for name in after if after[name] != before.get(name)}
            assert changed == {"HG_IN_notes", "HG_ROOT_fleet", "HG_INBOX_leaf", "HG_SITE_leaf", "HG_SITE_mid"}
            assert after["HG_ROOT_fleet"][0] - before["HG_ROOT_fleet"][0] == before["HG_ROOT_fleet"][0]  # as before
            assert [subject for subject in heard if not subject.startswith("hg.in.notes")] == []
            assert len([text for text in refused if "permissions violation" in text.lower()]) >= len(targets)
            assert "hers" in here.runtime.control.contexts.snapshot.subscription_ids
            await mallory.close()

    asyncio.run(run())


def test_publishers_publish_into_their_streams(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            world(tmp_path) as here,
            await here.client(await here.credentials("pub", publish=["notes"])) as client,
        ):
            assert await client.publish("notes", [{"text": "one"}, {"text": "two"}]) == 1
            with pytest.raises(ClientError, match="no stream 'fleet'"):
                await client.publish("fleet", [{"text": "x"}])
            with pytest.raises(FabricError):
                await client.fabric.publish("hg.in.fleet", b"x", timeout_s=0.5)
            with pytest.raises(ClientError, match="may not subscribe to 'notes'"):
                await client.subscribe("mine", stream="notes", site="leaf")
            async with await client.sender("notes") as sender:
                sender.publish([{"text": "three"}])
            with SyncFabric(here.server.url) as fabric:
                assert len(fabric.read(fabric.logs.input("notes"), "hg.in.notes", 0)) == 2

    asyncio.run(run())


@pytest.mark.long
def test_credentials_end_when_they_are_revoked_replaced_or_old(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            first = await here.credentials("ada", subscribe=["*"])
            async with await here.client(first) as ada:
                await ada.control("mine")
                second = await here.credentials("ada", "user-rotate", grace="1 h")
                async with await here.client(second) as again:  # both hold meanwhile
                    assert await again.control("mine") == await ada.control("mine")
                third = await here.credentials("ada", "user-rotate")
                async with await here.client(third):
                    await _refused(here, second)
                await ada.control("mine")  # the first was given an hour
                began = time.monotonic()
                await here.operator.control("user-revoke", name="ada")

                async def gone() -> bool:
                    return not ada.fabric.connected

                await until(gone, 5.0)
                assert time.monotonic() - began < 5.0
            for file in (first, second, third):
                await _refused(here, file)
            short = await here.credentials("brief", subscribe=["*"], expires="1 s")
            async with await here.client(short) as brief:

                async def expired() -> bool:
                    return not brief.fabric.connected

                await until(expired, 10.0)

            async def kept_out() -> bool:  # it holds to the end of its last second
                try:
                    await (await here.client(short)).close()
                except FabricError:
                    return True
                return False

            await until(kept_out, 30.0)
            here.server.kill()  # it is started again, and knows who is out

            async def listed() -> bool:
                try:
                    users = (await here.operator.control("user-list"))["users"]
                except HeadgateError:
                    return False
                return [user["name"] for user in users] == ["brief"]

            await until(listed, 60.0)
            await _refused(here, first)

    asyncio.run(run())


async def _at_rest(here: World, commits: int = 1) -> bool:
    """Whether everything that was committed lies in both of the inboxes, with nothing under way."""
    logs = await here.everything()
    passed = {logs[name][0] for name in ("HG_SITE_mid", "HG_SITE_leaf")}
    return logs["HG_INBOX_leaf"][0] == 2 * commits and passed == {commits}


async def _refused(here: World, credentials: str) -> None:
    with pytest.raises(FabricError):
        await here.client(credentials)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "*", "operator", "x" * 49, "ü"])
def test_names_of_users(tmp_path: Path, name: str) -> None:
    from headgate.fabric.registry import Registry, User, UserError

    with pytest.raises(UserError, match="cannot be the name of a user"):
        Registry().added(User(name, "U", 0, operator=True))
    with pytest.raises(UserError, match="could do nothing"):
        Registry().added(User("ada", "U", 0))
    known = Registry().added(User("ada", "U", 0, subscribes=("*",)))
    known.write(tmp_path)
    assert Registry.read(tmp_path) == known
    with pytest.raises(UserError, match="there is a user 'ada'"):
        known.added(User("ada", "V", 0, operator=True))
