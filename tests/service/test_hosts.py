"""Sites that are hosts of their own: each has its server, rows travel over the links of the plan."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.live import small, until
from tests.service.test_users import World

from headgate.catalog import DeploymentError, parse_deployment
from headgate.client import Client, ClientError
from headgate.fabric import Fabric, FabricError, cancel_all
from headgate.fabric.connecting import join
from headgate.fabric.keys import KeyPair
from headgate.fabric.listening import Listening
from headgate.fabric.membership import Invitation, InvitationError, accept
from headgate.fabric.place import choose_port
from headgate.fabric.placed import HostFabric
from headgate.fabric.registry import User
from headgate.fabric.roled import RoleCredentials
from headgate.fabric.rolekeys import site_credentials
from headgate.fabric.wide import WideFabric
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.protocol.records import Entered, EntryRequest
from headgate.protocol.reports import RelayReport
from headgate.relay.hosted import open_host
from headgate.relay.node import RelayNode
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs

pytestmark = pytest.mark.nats
LOGS = Logs()


class Hosts(World):
    """A deployment whose sites `mid` and `leaf` are hosts; each can be started and stopped."""

    ports: dict[str, int]

    @asynccontextmanager
    async def host(self, site: str) -> AsyncIterator[HostFabric]:
        """Run a site as its own host would, with its server in a directory of its own."""
        credentials = site_credentials(self.server.directory, "hg", site)
        async with (
            await join(self.server.url, LOGS, credentials) as home,
            open_host(
                home,
                site,
                self.directory / site,
                Listening(port=self.ports[site]),
                self.runtime.control.contexts.snapshot,
            ) as fabric,
        ):
            node = asyncio.create_task(RelayNode(fabric, site).run())
            try:
                yield fabric
            finally:
                await cancel_all([node])

    async def rows(self, reader: Client, name: str, count: int) -> list[int]:
        """The sequence numbers of so many rows of a subscription, acknowledged."""
        seqs: list[int] = []
        inbox = await reader.subscribe(name)
        async with asyncio.timeout(30):
            async for delivery in inbox:
                seqs += delivery.seqs.tolist()
                inbox.done()
                if len(seqs) >= count:
                    break
        await inbox.close()
        return seqs

    async def settled(self) -> dict[str, Any]:
        """The status, once everything is acknowledged and the ledger's difference is 0."""

        async def done() -> dict[str, Any] | None:
            status = await self.runtime.status()
            rows = status["subscriptions"].values()
            return status if all(each["difference"] == 0 and each["in_flight"] == 0 for each in rows) else None

        found: dict[str, Any] = await until(done)
        return found


@asynccontextmanager
async def hosts(directory: Path) -> AsyncIterator[Hosts]:
    ports = {"mid": choose_port(), "leaf": choose_port()}
    document = small(near={"site": "mid"}, far={"site": "leaf"})
    for site, port in ports.items():
        document["sites"][site]["nats"] = f"nats://127.0.0.1:{port}"
    deployment = parse_deployment(yaml.safe_dump(document), "test.yaml", GENERATOR_SCHEMAS)
    settings = Settings(state_dir=directory / "state", job=False)
    async with (
        open_runtime(settings, deployment) as runtime,
        await Client.connect(state_dir=directory / "state") as operator,
    ):
        here = Hosts(runtime, operator, directory)
        here.ports = ports
        yield here


def test_rows_go_from_server_to_server_and_are_all_accounted_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosts(tmp_path) as here, AsyncExitStack() as stack:
            assert set(here.runtime.nodes) == {"root"}
            mid = await stack.enter_async_context(here.host("mid"))
            leaf = await stack.enter_async_context(here.host("leaf"))
            await here.commit(0, 50)
            # Who is connected to home reads what lies at the sites through their relays.
            assert await here.rows(here.operator, "near", 50) == list(range(1, 51))
            assert await here.rows(here.operator, "far", 50) == list(range(1, 51))
            await here.settled()
            # What is a site's alone is on its own server, and nowhere else.
            home, ids = here.runtime.fabric, here.runtime.control.contexts.snapshot.subscription_ids
            for name, site, own in (("near", "mid", mid.own), ("far", "leaf", leaf.own)):
                subject = LOGS.delivery(site, ids[name])
                assert await own.last(LOGS.inbox(site), subject) is not None
                assert await home.last(LOGS.inbox(site), subject) is None
                assert await here.operator.fabric.last(LOGS.inbox(site), subject) is not None
            # The link's log is at its sender's server, and its receiver has carried it to its own.
            assert await home.subjects(LOGS.site("leaf"), "hg.site.>") == {}
            link = LOGS.link("mid", "leaf", "fleet")
            assert await mid.own.last(LOGS.site("leaf"), link) is not None
            # It reads as messages are stored, by a consumer that its parent, or home, has made for it.
            for site, place in (("mid", home), ("leaf", mid.own)):
                info = await place.info(LOGS.site(site))
                assert info is not None
                assert info.state.consumer_count == 1
            assert await leaf.own.last(LOGS.site("leaf"), link) is not None

            # What the kernels of both hosts know of a link, one of which leads from home and one from a host.
            async def seen() -> bool:
                links = (await here.runtime.status())["links"]
                return all(links.get(each, {}).get("resent") is not None for each in ("root->mid", "mid->leaf"))

            await until(seen)
            for each in (await here.runtime.status())["links"].values():
                assert 0 < each["round_trip_s"] < 5
                assert each["unanswered"] == 0

    asyncio.run(run())


@pytest.mark.long
def test_a_host_that_comes_back_with_an_empty_disk_is_repaired(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosts(tmp_path) as here:
            async with here.host("leaf"):
                async with here.host("mid"):
                    await here.commit(0, 30)
                    assert await here.rows(here.operator, "near", 30) == list(range(1, 31))
                    assert await here.rows(here.operator, "far", 30) == list(range(1, 31))
                    await here.settled()
                    await here.commit(30, 60)
                    await until(lambda: _settled_upto(here, "leaf", 60))
                # It has stated to have passed on rows that nobody has read, and loses them with the keys of its server.
                shutil.rmtree(tmp_path / "mid")
                async with here.host("mid"):
                    await here.commit(60, 80)
                    assert await here.rows(here.operator, "near", 50) == list(range(31, 81))
                    await until(lambda: _settled_upto(here, "leaf", 80))
            shutil.rmtree(tmp_path / "leaf")
            async with here.host("mid"), here.host("leaf"):
                assert await here.rows(here.operator, "far", 50) == list(range(31, 81))
                await here.settled()

    asyncio.run(run())


async def _settled_upto(here: Hosts, site: str, upto: int) -> bool:
    stored = await here.runtime.fabric.last(LOGS.state, LOGS.stats("relay", site))
    return stored is not None and RelayReport.decode(stored.data).settled.get("fleet", (0, 0))[0] >= upto


@pytest.mark.parametrize(
    ("site", "nats", "said"),
    [
        ("root", "nats://127.0.0.1:4222", "the stream starts at 'root', which has a NATS server of its own"),
        ("leaf", "127.0.0.1:4222", "is no address of a site's server"),
        ("leaf", "nats://127.0.0.1", "is no address of a site's server"),
        ("leaf", "nats://user:secret@127.0.0.1:4222", "is no address of a site's server"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(site: str, nats: str, said: str) -> None:
    document = small()
    document["sites"][site]["nats"] = nats
    with pytest.raises(DeploymentError, match=said):
        parse_deployment(yaml.safe_dump(document), "test.yaml", GENERATOR_SCHEMAS)


@pytest.mark.long
def test_a_host_joins_by_an_invitation_that_works_once_and_leaves(tmp_path: Path) -> None:
    state = tmp_path / "joined"

    async def run() -> None:
        async with hosts(tmp_path) as here, here.host("mid"):
            for site, said in (("root", "not a host of its own"), ("paris", "no site 'paris'")):
                with pytest.raises(ClientError, match=said):
                    await here.operator.control("invite", site=site)
            token = (await _headgate("invite", "leaf", "--state-dir", str(tmp_path / "state")))[1].strip()
            with pytest.raises(InvitationError, match="this is no invitation"):
                Invitation.parse(token[:-7])
            with pytest.raises(InvitationError, match="has expired"):
                await accept(replace(Invitation.parse(token), expires_s=1), state, {})
            joined = await asyncio.create_subprocess_exec(*_PROGRAM, "join", token, "--state-dir", str(state))
            try:
                await here.commit(0, 40)
                assert await here.rows(here.operator, "far", 40) == list(range(1, 41))
                assert "leaf" in (await here.runtime.status())["sites"]
                code, _, said = await _headgate("join", token, "--state-dir", str(tmp_path / "other"))
                assert code == 2
                assert "used already" in said, said
                # On the host itself the site's own server is read.
                creds = str(here.server.directory / "operator.creds")
                async with await Client.connect(state_dir=state, user_credentials=creds) as near:
                    assert isinstance(near.fabric, WideFabric)
                    assert set(near.fabric.near) == {"leaf"}
                    await here.commit(40, 60)
                    assert await here.rows(near, "far", 20) == list(range(41, 61))
                assert "site 'leaf' still runs here" in (await _headgate("leave", "--state-dir", str(state)))[2]
            finally:
                joined.terminate()
                await joined.wait()
            assert "1 subscriptions are at 'leaf'" in (await _headgate("leave", "--state-dir", str(state)))[2]
            code, said, _ = await _headgate("leave", "--force", "--state-dir", str(state))
            assert (code, said.strip()) == (0, "this host is no longer site leaf")
            assert not (state / "sites" / "leaf").exists()

            async def put_out() -> bool:
                return "host-leaf" not in here.runtime.people.registry.users

            await until(put_out)

    asyncio.run(run())


def test_a_host_that_is_put_out_at_home_is_put_out_at_the_servers_of_other_hosts(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosts(tmp_path) as here, here.host("mid"):
            people, user = here.runtime.people, User("host-leaf", KeyPair.new("user").public, 1, program="site leaf")
            await people.admit({}, "join leaf", people.registry.added(user), user)
            credentials = site_credentials(here.server.directory, "hg", "leaf")
            address = here.runtime.control.contexts.snapshot.deployment.sites["mid"].dialled_at
            assert address is not None
            async with await join(here.server.url, LOGS, credentials) as home:

                async def enter() -> tuple[RoleCredentials, Fabric]:
                    """Be let in at `mid` as `leaf`, with what let it in."""
                    pair = KeyPair.new("user")
                    asked = EntryRequest(key=pair.public).encode()
                    answer = Entered.decode(await home.request(LOGS.entered("mid", "leaf"), asked))
                    credentials = RoleCredentials(answer.statement, pair)
                    return credentials, await join(address, LOGS, credentials)

                known, there = await enter()
                async with there:
                    assert await there.last(LOGS.site("leaf"), "hg.site.leaf.x") is None
                    began = time.monotonic()
                    await people.admit({}, "revoke", people.registry.removed("host-leaf", int(time.time())), None)
                    assert set(people.registry.out) == {"leaf"}

                    async def out() -> bool:
                        return not there.connected

                    await until(out, 5.0)  # as SECURITY.md promises
                    print(f"put out at another host after {time.monotonic() - began:.2f} s")
                with pytest.raises(FabricError):
                    await join(address, LOGS, known)
                # Who may ask again, because the site has joined anew, is let in as before.

                async def anew() -> bool:
                    try:
                        _, source = await enter()
                    except FabricError:  # within the second in which it was put out
                        return False
                    async with source:
                        return await source.last(LOGS.site("leaf"), "hg.site.leaf.x") is None

                await until(anew)

    asyncio.run(run())


_PROGRAM = (sys.executable, "-m", "headgate.cli")


async def _headgate(*arguments: str) -> tuple[int | None, str, str]:
    """Run the program; its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(*_PROGRAM, *arguments, stdout=PIPE, stderr=PIPE)
    out, error = await process.communicate()
    return process.returncode, out.decode(), error.decode()
