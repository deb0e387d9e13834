"""Roles of sites and the job: what a relay or a job that turns hostile tries at a real server, and what it may do."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pyarrow as pa
import pytest
from tests.live import Live, running, small, until
from tests.service.test_users import World, world

from headgate.fabric import Fabric, FabricError
from headgate.fabric.accounts import Keys
from headgate.fabric.connecting import connect_as, join
from headgate.fabric.registry import User
from headgate.fabric.rolebook import ROLE_FILE, RoleBook
from headgate.fabric.roled import RoleFabric
from headgate.fabric.rolekeys import credentials_of
from headgate.fabric.roles import GET, job_rights, site_rights
from headgate.model import Column, Schema, Source, Stream
from headgate.pipeline.sources import generate
from headgate.protocol.records import RangeRequest
from headgate.protocol.reports import RelayReport
from headgate.wire.ledger import Tally
from headgate.wire.logs import Logs

pytestmark = pytest.mark.nats
LOGS = Logs()


@asynccontextmanager
async def as_role(here: World, role: str) -> AsyncIterator[RoleFabric]:
    """A second connection with the credentials of a role: its program, turned hostile."""
    keys = Keys.open(here.server.directory)
    async with await join(here.server.url, LOGS, credentials_of(keys, "hg", role)) as fabric:
        yield fabric


async def _refused(work: Any) -> None:
    with pytest.raises((FabricError, nats.errors.Error, TimeoutError)):
        await work


async def _stored(here: World) -> dict[str, dict[str, int]]:
    """What is stored by log and subject, but for what relays and the service write by themselves as time goes on."""
    by_itself = ("hg.stats.", "hg.mark.", "hg.ledger.", "hg.catalog.")
    fabric = here.operator.fabric
    found = {}
    for name, info in (await fabric.infos("hg.>")).items():
        subjects = await fabric.subjects(LOGS.root(name.removeprefix("HG_ROOT_")), ">") if "ROOT" in name else {}
        found[name] = {**subjects, "last": info.last if name != "HG_STATE" else 0}
    subjects = await fabric.subjects(LOGS.state, "hg.>")
    found["HG_STATE"] |= {each: count for each, count in subjects.items() if not each.startswith(by_itself)}
    return found


async def _settled(here: World, name: str, rows: int) -> None:
    async def done() -> bool:
        return bool((await here.runtime.status())["subscriptions"][name]["delivered"] == rows)

    await until(done)


def test_a_hostile_relay_gets_nowhere(tmp_path: Path) -> None:
    """`mid` stands between the root and `leaf`; whoever has its credentials tries what is not its business."""

    async def run() -> None:
        async with world(tmp_path) as here, as_role(here, "site mid") as mid:
            await here.commit(0, 20)
            inbox = await here.operator.subscribe("theirs")
            seqs: list[int] = []
            async for delivery in inbox:
                seqs += delivery.seqs.tolist()
                inbox.done()
                if len(seqs) == 20:
                    break
            await inbox.close()
            await _settled(here, "theirs", 20)
            number = here.runtime.control.contexts.snapshot.subscription_ids["theirs"]
            before = await _stored(here)
            tried = await _misbehave(mid, number)
            assert tried >= 40, tried
            after = await _stored(here)
            assert after == before
            # The relay itself goes on as before, and whoever listens beside it hears of its own messages alone.
            heard = await _hear_everything(mid)
            await here.commit(20, 40)
            inbox = await here.operator.subscribe("theirs")
            assert len((await anext(aiter(inbox))).seqs) == 20
            await inbox.close()
            stored = await here.operator.fabric.read(LOGS.inbox("leaf"), LOGS.delivery("leaf", number), 0)
            stored += await here.operator.fabric.read(LOGS.root("fleet"), LOGS.commit("fleet"), 0)
            assert len(stored) == 4
            assert not {each.data for each in stored} & set(heard)
            # And what is its own it may do.
            assert await mid.publish(LOGS.hold("mid"), b"x") > 0
            assert (await mid.usage(LOGS.site("mid"))) is not None
            assert await mid.read(LOGS.site("mid"), LOGS.links_into("mid"), 0)
            await mid.purge(LOGS.inbox("mid"), "hg.inbox.mid.9", 1 << 40)
            mine = RangeRequest(stream="fleet", after=0, upto=20, child="mid")
            assert await mid.request(LOGS.repair("root"), mine.encode())

    asyncio.run(run())


async def _hear_everything(fabric: RoleFabric) -> list[bytes]:
    heard: list[bytes] = []

    async def take(message: Any) -> None:
        heard.append(message.data)

    for subject in (">", "hg.>", "hg.inbox.>", "hg.root.>", "_INBOX.>", "hg.new.site.leaf.>", "hg.new.root.>"):
        await fabric._client.subscribe(subject, cb=take)
    await fabric._client.flush()
    return heard


async def _misbehave(mid: RoleFabric, number: int) -> int:
    """Everything that a relay of `mid` has no business with; returns how much that was."""
    client, tried = mid._client, 0
    forged = [
        LOGS.commit("fleet"),  # a manifest, and what goes with it
        LOGS.part("fleet"),
        LOGS.dead("fleet"),
        LOGS.context("fleet"),
        LOGS.pin("fleet"),
        LOGS.head,  # the catalog
        LOGS.filed,
        LOGS.runs,
        LOGS.audit,
        LOGS.purging,
        LOGS.past("fleet"),
        LOGS.table(999),
        LOGS.delivery("leaf", number),  # the inbox of another site
        LOGS.delivery("root", number),
        LOGS.ack(number),  # the acknowledgement of a subscriber
        LOGS.link("root", "mid", "fleet"),  # what its own parent sends
        LOGS.link("root", "leaf", "fleet"),  # as if it were another parent
        LOGS.link("mid", "leaf", "notes"),  # a stream that it does not pass on
        LOGS.link("mid", "root", "fleet"),  # upwards
        LOGS.held("leaf", "1"),
        LOGS.hold("leaf"),
        LOGS.mark("root", "fleet"),
        LOGS.stats("relay", "leaf"),  # another's report
        LOGS.stats("job", "fleet"),
        LOGS.ledger("fleet"),
        LOGS.quarantine("relay-leaf"),
        LOGS.published("notes"),
    ]
    for subject in forged:
        await _refused(Fabric.publish(mid, subject, Tally(number).encode(), timeout_s=1))
        tried += 1
    logs = [LOGS.root("fleet"), LOGS.site("leaf"), LOGS.inbox("leaf"), LOGS.inbox("root"), LOGS.state, LOGS.tables]
    for log in logs:
        for verb in ("STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.GET", "STREAM.MSG.DELETE", "STREAM.UPDATE"):
            for prefix in ("$JS.API", mid.prefix):
                await _refused_by_api(client, f"{prefix}.{verb}.{log.name}")
                tried += 1
    for verb in ("STREAM.DELETE", "STREAM.UPDATE", "STREAM.MSG.DELETE"):  # not even its own log
        await _refused_by_api(client, f"{mid.prefix}.{verb}.{LOGS.site('mid').name}")
    for log, subject in (
        (LOGS.inbox("leaf"), LOGS.delivery("leaf", number)),
        (LOGS.root("fleet"), LOGS.commit("fleet")),
        (LOGS.site("leaf"), LOGS.held("leaf", "1")),
        (LOGS.state, LOGS.filed),
        (LOGS.state, LOGS.stats("relay", "root")),
    ):
        await _refused(mid.last(log, subject))
        await _refused(Fabric.read(mid, log, "hg.>", 0))
        tried += 2
    leaf = RangeRequest(stream="fleet", after=0, upto=20, child="leaf").encode()
    for subject in (LOGS.repair("root"), LOGS.asked_at("root", "leaf"), LOGS.asked_at("leaf", "mid")):
        await _refused(Fabric.request(mid, subject, leaf, 1.0))
        tried += 1
    for request in (  # in its own name, what another is to get
        RangeRequest(stream="fleet", after=0, upto=20, child="leaf"),
        RangeRequest(stream="fleet", after=0, upto=20, subscription=number + 1),
        RangeRequest(stream="fleet", after=0, upto=20, class_id=1, columns=["speed"]),
        RangeRequest(stream="fleet", after=0, upto=20, owed="leaf"),
    ):
        await _refused(mid.request(LOGS.repair("root"), request.encode(), 2.0))
        tried += 1
    for verb in ("user-add", "subscribe", "unsubscribe"):
        await _refused(client.request(LOGS.control(verb), json.dumps({"name": "theirs"}).encode(), timeout=1))
        await _refused(client.request(LOGS.asked_by("ada", verb), b"{}", timeout=1))
        tried += 2
    # Answers whose way leads into a log: with the contents of a message that it has stored itself.
    for target in (LOGS.commit("fleet"), LOGS.ack(number), LOGS.head, LOGS.delivery("leaf", number), "hg.control.x"):
        await client.publish(
            f"$JS.API.DIRECT.GET.{LOGS.site('mid').name}", json.dumps({"last_by_subj": "hg.site.mid.>"}).encode(),
            reply=target,
        )  # fmt: skip
        await client.publish(f"{mid.prefix}.STREAM.INFO.{LOGS.site('mid').name}", b"", reply=target)
        await client.publish(LOGS.asked_at("root", "mid"), leaf, reply=target)
        tried += 3
    await client.flush()
    return tried


async def _refused_by_api(client: Any, subject: str) -> None:
    try:
        answer = await client.request(subject, b'{"seq": 1}', timeout=1)
    except (nats.errors.Error, TimeoutError):
        return
    assert "error" in json.loads(answer.data), subject


def test_a_hostile_job_gets_nowhere(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here, as_role(here, "job") as job:
            await here.commit(0, 10)
            await until(lambda: _delivered(here))
            before = await _stored(here)
            for subject in (
                LOGS.head,
                LOGS.filed,
                LOGS.table(999),
                LOGS.ack(1),
                LOGS.context("fleet"),
                LOGS.commit("other"),
                LOGS.link("root", "mid", "fleet"),
                LOGS.delivery("leaf", 1),
                LOGS.stats("relay", "root"),
                LOGS.hold("root"),
                LOGS.ledger("fleet"),
                LOGS.past("fleet"),
                LOGS.published("notes"),
            ):
                await _refused(job.publish(subject, b"x", timeout_s=1))
            for log in (LOGS.site("leaf"), LOGS.inbox("leaf"), LOGS.state, LOGS.tables):
                await _refused(job.read(log, "hg.>", 0))
                await _refused_by_api(job._client, f"{job.prefix}.STREAM.PURGE.{log.name}")
                await _refused_by_api(job._client, f"{job.prefix}.STREAM.DELETE.{log.name}")
            await _refused_by_api(job._client, f"{job.prefix}.STREAM.DELETE.{LOGS.root('fleet').name}")
            await _refused(job.request(LOGS.repair("root"), b"", 1.0))
            assert await _stored(here) == before
            assert await job.last(LOGS.root("fleet"), LOGS.commit("fleet")) is not None
            assert await job.publish(LOGS.dead("fleet"), b"x") > 0
            # What its source of published rows does.
            await here.operator.publish("notes", pa.table({"text": ["hello"]}))
            info = await job.info(LOGS.input("notes"))
            assert info is not None
            assert info.state.messages == 1
            assert len(await job.read(LOGS.input("notes"), ">", 0)) == 1
            await job.purge(LOGS.input("notes"), LOGS.published("notes"), 2)

    asyncio.run(run())


async def _delivered(here: World) -> bool:
    return await here.operator.fabric.last(LOGS.inbox("leaf"), LOGS.delivery("leaf", 1)) is not None


def test_rights_come_with_the_plan_and_go_when_nothing_is_under_way(tmp_path: Path, nats_url: str) -> None:
    """`leaf` is served by `mid`, then by the root: `mid` may write to it until what was committed before is through."""

    async def run() -> None:
        document = small(mine={"site": "leaf"})
        async with running(document, tmp_path, nats_url) as live:
            logs = live.runtime.fabric.logs
            live.readers.start(["mine"])
            await live.commit("fleet", generate("fleet", 3, 0, 20), 0)
            await live.settle()
            mid, root = await _joined(live, "mid"), await _joined(live, "root")
            async with mid, root:
                link, direct = logs.link("mid", "leaf", "fleet"), logs.link("root", "leaf", "fleet")
                assert await mid.last(logs.site("leaf"), link) is not None
                await _refused(root.publish(direct, b"x", expect=1 << 40, timeout_s=1))
                began = time.monotonic()
                await _replan(live, {"mid": "root", "leaf": "root"})
                with pytest.raises(FabricError, match="wrong last sequence"):  # it may: only the fence stops it
                    await root.publish(direct, b"x", expect=1 << 40)
                assert time.monotonic() - began < 5.0
                await live.commit("fleet", generate("fleet", 3, 20, 40), 1)
                await live.settle()
                assert live.seqs("mine") == list(range(1, 41))

                async def taken_back() -> bool:
                    try:
                        await mid.publish(link, b"x", expect=1 << 40, timeout_s=1)
                    except FabricError as error:
                        return "no log takes this subject" in str(error)
                    return False

                await until(taken_back, 10.0)

    asyncio.run(run())


@pytest.mark.parametrize("served", [True, False])
def test_a_relay_that_comes_back_may_look_up_what_it_has_sent(tmp_path: Path, nats_url: str, *, served: bool) -> None:
    """`leaf` has everything by another way while `mid` was dead: `mid` still has to pass over what lies in its log."""

    async def run() -> None:
        document = small(mine={"site": "leaf"}, **({"other": {"site": "mid"}} if served else {}))
        async with running(document, tmp_path, nats_url, relays=False) as live:
            fabric, logs, roles = live.runtime.fabric, live.runtime.fabric.logs, live.runtime.roles
            assert roles is not None

            async def report(site: str, upto: int) -> None:
                """What a relay says some time after its start, twice."""
                for _ in range(2):
                    now_ms = int(time.time() * 1000)
                    said = RelayReport(site=site, time_ms=now_ms, settled={"fleet": (upto, 1)})
                    await fabric.publish(logs.stats("relay", site), said.encode())
                    await roles._settle()
                    await asyncio.sleep(0.002)

            await live.commit("fleet", generate("fleet", 3, 0, 20), 0)
            for site in ("mid", "leaf"):
                await fabric.ensure(logs.site(site))
            await fabric.publish(logs.link("root", "mid", "fleet"), b"what mid has not passed on")
            await _replan(live, {"mid": "root", "leaf": "root"})
            await live.commit("fleet", generate("fleet", 3, 20, 40), 1)
            await report("leaf", 40)
            async with await _joined(live, "mid") as mid:
                link = logs.link("mid", "leaf", "fleet")
                await report("mid", 10)
                assert await mid.last(logs.site("leaf"), link) is None  # it may ask, and there is nothing
                if served:
                    await report("mid", 40)
                else:
                    await fabric.purge(logs.site("mid"), logs.link("root", "mid", "fleet"), 1 << 40)
                    await report("mid", 10)

                async def taken_back() -> bool:
                    try:
                        await mid.last(logs.site("leaf"), link)
                    except FabricError:
                        return True
                    return False

                await until(taken_back, 10.0)

    asyncio.run(run())


async def _joined(live: Live, site: str) -> RoleFabric:
    assert live.runtime.roles is not None
    return await live.runtime.roles.connect(live.runtime.url, site)


async def _replan(live: Live, parents: dict[str, str]) -> None:
    from headgate.model import Plan, Tree

    def change(catalog: Any) -> None:
        with catalog.edit("plan") as edit:
            edit.set_plan(Plan({"fleet": Tree("fleet", "root", parents)}))

    await live.runtime.clerk.run(change)
    await live.runtime.control.publish()


def test_credentials_of_a_site_elsewhere_are_rotated_and_revoked(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            with pytest.raises(Exception, match=r"no site 'laef'.*did you mean 'leaf'"):
                await here.credentials("edge", site="laef")
            first = await here.credentials("edge", site="leaf")
            fabric = await connect_as(here.server.listens_at, LOGS, user_credentials=first)
            assert isinstance(fabric, RoleFabric)
            async with fabric:
                assert fabric.role == "site leaf"
                await fabric.publish(LOGS.hold("leaf"), b"x")
                second = await here.credentials("edge", "user-rotate", grace="1 h")
                await fabric.publish(LOGS.hold("leaf"), b"x")  # the first ones hold on
                async with await connect_as(here.server.listens_at, LOGS, user_credentials=second) as other:
                    await other.publish(LOGS.hold("leaf"), b"y")
                await here.operator.control("user-revoke", name="edge")
                began = time.monotonic()

                async def out() -> bool:
                    try:
                        await fabric.publish(LOGS.hold("leaf"), b"z", timeout_s=0.5)
                    except FabricError:
                        return True
                    return False

                await until(out)
                assert time.monotonic() - began < 5.0
            for file in (first, second):
                await _refused(connect_as(here.server.listens_at, LOGS, user_credentials=file))
            # The relay of the site has credentials of its own, and answers as before.
            assert await here.operator.fabric.request(LOGS.repair("leaf"), b"") == b""

    asyncio.run(run())


def test_a_server_that_lost_its_accounts_or_the_book_lets_sites_in_again(tmp_path: Path) -> None:
    """What the server keeps of accounts is made again by the service; a start does not wait for what is gone."""
    import shutil

    async def once() -> None:
        async with world(tmp_path) as here:
            await here.commit(0, 10)
            await until(lambda: _delivered(here))

    async def again() -> None:
        began = time.monotonic()
        async with world(tmp_path) as here:
            assert time.monotonic() - began < 20.0
            here._batch = 1
            await here.commit(10, 20)
            await until(lambda: _delivered(here))
            assert await here.operator.fabric.request(LOGS.repair("leaf"), b"") == b""

    asyncio.run(once())
    directory = tmp_path / "state" / "nats"
    assert set(RoleBook.read(directory).chapters["hg"].sites) == {"root", "mid", "leaf"}
    shutil.rmtree(directory / "accounts")
    asyncio.run(again())
    (directory / ROLE_FILE).write_text("{", encoding="utf-8")
    assert RoleBook.read(directory).chapters == {}
    asyncio.run(again_with_more(tmp_path))
    assert set(RoleBook.read(directory).chapters["hg"].sites) == {"root", "mid", "leaf"}


async def again_with_more(directory: Path) -> None:
    async with world(directory) as here:
        here._batch = 2
        await here.commit(20, 30)
        await until(lambda: _delivered(here))


def test_users_and_programs_are_told_apart() -> None:
    assert User("a", "U", 0, program="site leaf").role == "site leaf"
    assert User("a", "U", 0, subscribes=("*",)).role == "subscriber"


def test_a_site_writes_to_units_in_its_own_name_and_only_where_the_tuner_owns_the_plan() -> None:
    sites = ("root", "mid", "leaf")
    plain, tuned = (site_rights(LOGS, "mid", (), (), (), given) for given in ((), sites))
    assert not [each for each in plain.services if ".tune" in each]
    assert {each for each in tuned.services if ".tune" in each} == {
        "hg.tuner.mid",
        "hg.tune.root.mid",
        "hg.tune.leaf.mid",
    }
    assert {"hg.tune.mid", "hg.tune.mid.*"} <= set(tuned.answers)


def test_a_site_sends_up_in_its_own_name_and_only_a_root_takes_into_the_input() -> None:
    notes = Stream("notes", Schema((Column("text", "string"),)), Source("nats"), "root")
    root, mid = (
        site_rights(LOGS, site, [notes], (), ("mid",), (), above) for site, above in (("root", ()), ("mid", ["root"]))
    )
    assert {each for each in mid.services if each.startswith("hg.up.")} == {"hg.up.root.mid"}
    assert not [each for each in mid.services if each.startswith(("hg.in.", "hg.outbox.", "hg.door."))]
    assert {"hg.in.notes.carried", "hg.door.notes.*"} <= set(root.services)
    assert not [each for each in root.services if each.startswith("hg.outbox.")]
    made = Stream("made", notes.schema, Source("generator"), "root")
    assert not [each for each in site_rights(LOGS, "root", [made], ()).services if "outbox" in each.lower()]
    job = job_rights(LOGS, [notes], {}).services
    assert f"{GET}.HG_IN_notes.hg.in.notes.carried" in job
    assert "hg.in.notes.carried" not in job


def test_what_a_site_may_write_is_its_own_and_the_site_logs_of_its_children() -> None:
    """All of it, for a site between the root and two children of which only one gets the stream from it."""
    made = Stream("made", Schema((Column("n", "int"),)), Source("generator"), "root")
    edges = [("made", "root", "mid"), ("made", "mid", "leaf"), ("made", "root", "other")]
    asked = {each for each in site_rights(LOGS, "mid", [made], edges).services if not each.startswith(f"{GET}.")}
    stored = {each for each in asked if not each.startswith("$JS.")}
    assert stored == {
        "hg.site.leaf.in.made.mid",  # its child's site log
        "hg.inbox.mid.*",  # its own inboxes
        "hg.site.mid.held.*",  # what it has decided about them
        "hg.stats.relay.mid",  # its reports
        "hg.stats.process.relay-mid",
        "hg.stats.links.mid",
        "hg.hold.mid",
        "hg.quarantine.relay-mid",
        "hg.repair.root.mid",  # a question to its parent, in its own name
        "hg.linked.leaf.made.mid",  # what it has sent to its child, read for it
    }
    assert {each for each in asked - stored if "PURGE" in each} == {
        "$JS.API.STREAM.PURGE.HG_SITE_mid",
        "$JS.API.STREAM.PURGE.HG_INBOX_mid",
    }
    reads = {each for each in site_rights(LOGS, "mid", [made], edges).services if ".HG_STATE.hg.stats." in each}
    assert {each.rsplit(".", 1)[1] for each in reads} == {"mid", "leaf"}  # its own reports, and of its children
