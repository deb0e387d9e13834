"""Grants of rows and columns in a running deployment: what users get, what links carry, what a smaller grant does."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from tests.live import until

from headgate.catalog import parse_deployment
from headgate.client import Client, ClientError
from headgate.fabric import FabricError
from headgate.fabric.registry import UserError
from headgate.filters import parse_filter
from headgate.model import Schema
from headgate.pipeline.worker import Address
from headgate.relay.routes import build_routes
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

pytestmark = pytest.mark.nats
STAFF = {
    "root": "root",
    "source": {"format": "nats"},
    "schema": {"id": "bigint", "site": "string", "speed": "double", "salary": "double", "secret": "string"},
    "key": ["id"],
}
DOCUMENT: dict[str, Any] = {
    "sites": {"root": {}, "leaf": {}},
    "streams": {"staff": STAFF},
    "plan": {"staff": {"leaf": "root"}},
}
HIDDEN = ("salary", "secret", "kodak-4711")


def rows(first: int, stop: int) -> pa.RecordBatch:
    """Rows whose hidden values can be told from everything else."""
    chance = random.Random(first)
    return pa.RecordBatch.from_pylist(
        [
            {
                "id": number,
                "site": chance.choice("abc"),
                "speed": chance.uniform(0, 9),
                "salary": 4711.25 + number,
                "secret": f"kodak-4711-{number}",
            }
            for number in range(first, stop)
        ],
        schema=Schema.of(STAFF["schema"]).arrow,
    )


class World:
    """A deployment with its operator and users."""

    def __init__(self, runtime: Runtime, operator: Client, directory: Path) -> None:
        self.runtime, self.operator, self.directory = runtime, operator, directory
        self._batch = runtime.catalog.head() * 1000
        self.committed: list[pa.RecordBatch] = []

    async def user(self, name: str, **grant: Any) -> Client:
        answer = await self.operator.control("user-add", name=name, subscribe=["staff"])
        path = self.directory / f"{name}.creds"
        path.write_text(answer["credentials"], encoding="utf-8")
        if grant:
            await self.grant(name, **grant)
        return await self.again(name)

    async def again(self, name: str) -> Client:
        return await Client.connect(self.runtime.listens_at, user_credentials=str(self.directory / f"{name}.creds"))

    async def grant(self, name: str, **grant: Any) -> dict[str, Any]:
        return await self.operator.control("user-grant", name=name, stream="staff", **grant)

    async def commit(self, first: int, stop: int) -> None:
        batch = rows(first, stop)

        def work() -> None:
            assert self.runtime.server is not None
            with DirectCommits(Address(self.runtime.server.url, Logs()), "test") as direct:
                direct.commit("staff", batch, self._batch, 0.0)

        await asyncio.to_thread(work)
        self._batch += 1
        self.committed.append(batch)

    async def ledger(self, name: str) -> dict[str, Any]:
        async def settled() -> dict[str, Any] | None:
            found = (await self.runtime.status())["subscriptions"][name]
            return found if found["in_flight"] == 0 else None

        return dict(await until(settled))


@asynccontextmanager
async def world(directory: Path, **more: Any) -> AsyncIterator[World]:
    deployment = parse_deployment(yaml.safe_dump({**DOCUMENT, **more}), "test.yaml")
    async with (
        open_runtime(Settings(state_dir=directory / "state", job=False), deployment) as runtime,
        await Client.connect(state_dir=directory / "state") as operator,
    ):
        yield World(runtime, operator, directory)


async def read(client: Client, name: str, upto: int) -> tuple[pa.Table, dict[str, int]]:
    """Everything that a subscription gets up to a row, what was given up by reason, and what was not looked at."""
    found: list[pa.RecordBatch] = []
    given_up: dict[str, int] = {}
    inbox = await client.subscribe(name)
    async for delivery in inbox:
        found.append(delivery.rows)
        for reason, count in delivery.given_up.items():
            given_up[reason] = given_up.get(reason, 0) + count
        if delivery.unevaluated:
            given_up["unevaluated"] = given_up.get("unevaluated", 0) + delivery.unevaluated
        inbox.done()  # type: ignore[union-attr]
        if delivery.upto >= upto:
            break
    await inbox.close()
    return pa.Table.from_batches([each for each in found if each.num_rows] or found[:1]), given_up


async def everything(client: Client) -> str:
    """All that a user can read of the catalog."""
    snapshot = await client.snapshot()
    return snapshot.to_json() + json.dumps(await client.control("mine"))


def test_rows_and_columns_are_those_of_the_filter_and_the_grant(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            world(tmp_path) as here,
            await here.user("ada", where="secret LIKE '%1' OR site = 'a'", columns=["id", "speed"]) as ada,
            await here.user("eve", columns=["id"]) as eve,
        ):
            await (await ada.subscribe("hers", stream="staff", site="leaf", where="speed > 3")).close()
            await (await eve.subscribe("ids", stream="staff", site="leaf")).close()
            for column in ("salary", "secret", "nosuch"):
                for wish in ({"where": f"{column} IS NULL"}, {"select": ["id", column]}):
                    with pytest.raises(ClientError, match=f"unknown column '{column}'") as failed:
                        await ada.subscribe("more", stream="staff", site="leaf", **wish)  # type: ignore[arg-type]
                    assert not [word for word in HIDDEN if word in str(failed.value).replace(column, "")]
            for levels, digest in (([{"conflate": "salary"}], []), ([], ["max(salary)"]), ([{"conflate": "id"}], [])):
                policy = {"levels": levels or [{"every": 2}], "digest": digest}
                if levels and "id" in levels[0].values():
                    await (await ada.subscribe("more", stream="staff", site="leaf", policy=policy)).close()
                    await ada.unsubscribe("more")
                else:
                    with pytest.raises(ClientError, match="salary"):
                        await ada.subscribe("more", stream="staff", site="leaf", policy=policy)
            crossing: list[bytes] = []

            async def heard(message: Any) -> None:
                crossing.append(message.data)

            fabric = here.operator.fabric
            await fabric._client.subscribe("hg.site.leaf.>", cb=heard)
            await here.commit(0, 200)
            got, given_up = await read(ada, "hers", 200)
            batch = here.committed[0]
            mask = pc.and_(
                pc.greater(batch["speed"], 3.0),
                pc.or_(pc.match_like(batch["secret"], "%1"), pc.equal(batch["site"], "a")),
            )
            assert got.equals(pa.Table.from_batches([batch.filter(mask).select(["id", "speed"])]).cast(got.schema))
            assert given_up == {}
            assert (await read(eve, "ids", 200))[0].column_names == ["id"]
            line = await here.ledger("hers")
            assert (line["matched"], line["difference"]) == (got.num_rows, 0)
            for client in (ada, eve):
                seen = await everything(client)
                assert not [word for word in HIDDEN if word in seen]
            # A link carries what somebody below may have, and nothing else: of rows that only eve gets, the ids.
            routes = build_routes(here.runtime.control.contexts.snapshot, "root", "staff")
            assert routes is not None
            link = routes.children[0].schema
            assert link.names == ["id", "speed"]
            blocks = [fabric.codec.block(each, link) for each in crossing if each]
            crossed = pa.Table.from_batches([each.rows for each in blocks])
            assert crossed["id"].to_pylist() == list(range(200))
            assert crossed["speed"].drop_null().equals(got["speed"])

    asyncio.run(run())


def test_a_grant_that_shrinks_withholds_what_waits_and_survives_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        async with world(tmp_path) as here, await here.user("ada") as ada:
            await (await ada.subscribe("whole", stream="staff", site="leaf")).close()
            await (await ada.subscribe("paid", stream="staff", site="leaf", where="salary > 0")).close()
            await here.commit(0, 60)
            inbox = await ada.subscribe("whole", max_rows=25)
            async for delivery in inbox:  # a part of a message
                assert delivery.rows.num_rows == 25
                inbox.done()  # type: ignore[union-attr]
                break
            await inbox.close()
            changed = await here.grant("ada", where="site = 'a' OR site = 'b'", columns=["id", "site"])
            assert changed["changed"] == 2
            for verb in ("pause", "resume"):
                await ada.control(verb, name="whole")
                await ada.control(verb, name="paid")
            await here.commit(60, 100)
            got, given_up = await read(ada, "whole", 100)
            kept = [each for batch in here.committed for each in batch.to_pylist()][25:]
            expected = [{"id": each["id"], "site": each["site"]} for each in kept if each["site"] in "ab"]
            assert got.to_pylist() == expected
            old = sum(each["site"] == "c" for each in here.committed[0].to_pylist()[25:])
            assert given_up == {"grant": old}
            line = await here.ledger("whole")
            assert line["difference"] == 0
            assert line["reduced"] == old
            # Its filter names what it may no longer see: nothing comes, and what waits says nothing either.
            nothing, given_up = await read(ada, "paid", 100)
            assert (nothing.num_rows, given_up) == (0, {"grant": 60})
            assert nothing.column_names == ["id", "site"]
            assert (await here.ledger("paid"))["difference"] == 0

    async def second() -> None:
        async with world(tmp_path) as here, await here.again("ada") as ada:
            await here.commit(100, 140)
            got, _ = await read(ada, "whole", 140)
            assert set(got["site"].to_pylist()) <= {"a", "b"}
            assert got.column_names == ["id", "site"]
            with pytest.raises((ClientError, UserError)):
                await ada.subscribe("more", stream="staff", site="leaf", select=["salary"])
            await ada.control("pause", name="paid")
            await here.grant("ada")  # and back again
            await ada.control("resume", name="paid")
            await here.commit(140, 180)
            got, _ = await read(ada, "whole", 180)
            assert got.num_rows == 40
            assert set(got.column_names) == set(STAFF["schema"])
            assert (await read(ada, "paid", 180))[0].num_rows == 40
            assert (await here.ledger("paid"))["difference"] == 0
            await here.commit(180, 187)  # waits while the grant goes
            await until(lambda: _in_inbox(here, "whole", 187))
            await here.operator.control("user-ungrant", name="ada", stream="staff")
            await here.commit(187, 200)
            with pytest.raises(ClientError, match="may not subscribe"):
                await ada.subscribe("other", stream="staff", site="leaf")
            seen = await everything(ada)
            assert not [name for name in ("speed", "secret") if name in seen]
            got, given_up = await read(ada, "whole", 200)
            assert (got.num_rows, given_up) == (0, {"grant": 7})
            assert got.column_names == []
            assert (await here.ledger("whole"))["difference"] == 0

    asyncio.run(first())
    asyncio.run(second())


async def _in_inbox(here: World, name: str, upto: int) -> bool:
    fabric, number = here.operator.fabric, here.runtime.control.contexts.snapshot.subscription_ids[name]
    found = await fabric.last(fabric.logs.inbox("leaf"), fabric.logs.delivery("leaf", number))
    return found is not None and fabric.codec.coverage(found.data)[1] >= upto


def test_a_filter_reads_the_same_rows_as_an_oracle_for_random_grants(tmp_path: Path) -> None:
    """Several users at once, each with a grant of its own, over one link."""
    texts = ("true", "speed > 4", "site = 'a'", "salary < 4800", "secret LIKE '%3%'", "id % 3 = 0", "speed IS NULL")
    names = list(STAFF["schema"])

    async def run() -> None:
        chance = random.Random(5)
        async with world(tmp_path) as here:
            wanted: dict[str, tuple[str, str, list[str]]] = {}
            clients = {}
            for number in range(6):
                columns = chance.sample(names, chance.randint(1, 4))
                schema = here.runtime.control.contexts.snapshot.deployment.streams["staff"].schema
                usable = [each for each in texts if parse_filter(each, schema).columns <= set(columns)]
                grant, where = chance.choice(texts), chance.choice(usable)
                clients[number] = await here.user(f"user{number}", where=grant, columns=columns)
                await (await clients[number].subscribe(f"of{number}", stream="staff", site="leaf", where=where)).close()
                wanted[f"of{number}"] = where, grant, columns
            await here.commit(0, 150)
            batch = here.committed[0]
            for number, client in clients.items():
                where, grant, columns = wanted[f"of{number}"]
                got, _ = await read(client, f"of{number}", 150)
                mask = parse_filter(where, schema).evaluate(batch) & parse_filter(grant, schema).evaluate(batch)
                assert got.to_pylist() == batch.filter(pa.array(mask)).select(got.column_names).to_pylist()
                assert set(got.column_names) == set(columns)
                seen = await everything(client)
                assert not [name for name in set(names) - set(columns) - {"id", "site"} if f'"{name}"' in seen]
                await client.close()

    asyncio.run(run())


def test_a_grant_that_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here, await here.user("ada", columns=["id"]) as ada:
            before = (await here.operator.control("user-list"))["users"]
            for wrong in ({"where": "nosuch > 1"}, {"columns": ["nosuch"]}, {"columns": []}, {"where": "speed > $x"}):
                with pytest.raises(ClientError):
                    await here.grant("ada", **wrong)
            with pytest.raises(ClientError, match="no stream"):
                await here.operator.control("user-grant", name="ada", stream="stuff")
            with pytest.raises(ClientError, match="no user"):
                await here.grant("bob")
            with pytest.raises((ClientError, FabricError), match="may not ask"):
                await ada.control("user-grant", name="ada", stream="staff")
            assert (await here.operator.control("user-list"))["users"] == before

    asyncio.run(run())
