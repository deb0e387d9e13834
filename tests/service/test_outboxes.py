"""Publishing at sites, on real servers: at one that nobody can dial, through another, up to the root at home."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
import yaml
from tests.live import small, until
from tests.service.test_hosts import Hosts
from tests.service.test_users import NOTES, world

from headgate.catalog import parse_deployment
from headgate.client import Client, ClientError
from headgate.fabric import Fabric, FabricError
from headgate.fabric.place import choose_port
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.service.why.answer import Question
from headgate.service.why.asking import why_named
from headgate.wire.logs import Logs
from headgate.wire.parcel import Parcel

pytestmark = pytest.mark.nats
LOGS = Logs()
LINES = {"format": "nats", "payload": "json"}


async def texts(fabric: Fabric) -> list[str]:
    """What the root has of the notes, as the job would read them."""
    log, found = LOGS.input("notes"), []
    for stored in await fabric.read(log, ">", 0, limit=10_000):
        whole = stored.subject == LOGS.carried("notes")
        found += [item.data for item in Parcel.decode(stored.data).items] if whole else [stored.data]
    return [yaml.safe_load(each)["text"] for each in found]


def test_rows_go_up_from_a_site_that_nobody_can_dial_and_a_sender_moves(tmp_path: Path) -> None:
    async def run() -> None:
        document = small()
        document["streams"]["notes"] = {**NOTES, "source": LINES}
        document["plan"] = {"fleet": {"mid": "root"}, "notes": {"mid": "root", "leaf": "mid"}}
        document["subscriptions"] = {
            "all": {"stream": "notes", "site": "leaf"},
            "fleet": {"stream": "fleet", "site": "mid"},
        }
        ports = {"mid": choose_port(), "leaf": choose_port()}
        document["sites"]["mid"]["nats"] = f"nats://127.0.0.1:{ports['mid']}"
        document["sites"]["leaf"]["nats"] = "private"
        deployment = parse_deployment(yaml.safe_dump(document), "test.yaml", GENERATOR_SCHEMAS)
        async with (
            open_runtime(Settings(state_dir=tmp_path / "state", job=False), deployment) as runtime,
            await Client.connect(state_dir=tmp_path / "state") as operator,
        ):
            here = Hosts(runtime, operator, tmp_path)
            here.ports = ports
            home = operator.fabric
            with pytest.raises(ClientError, match="host of its own"):
                await operator.publish("notes", [{"text": "x"}], site="leaf")
            async with here.host("leaf") as leaf:
                home.near["leaf"] = leaf.own
                sender = await operator.sender("notes", site="leaf", batch_rows=10)
                async with sender:
                    sender.publish([{"text": f"a{number}"} for number in range(50)])
                    assert await sender.flush(20)  # stored at the site, while the site above it is away

                    async def kept() -> bool:
                        status = await runtime.status()
                        return bool(status["streams"]["notes"]["outboxes"].get("leaf", {}).get("waiting") == 50)

                    await until(kept)
                    assert await texts(home) == []
                    async with await Client.connect(state_dir=tmp_path / "state") as elsewhere:  # asks the relay there
                        for asking in (operator, elsewhere):
                            told = await why_named(asking, "all", Question(where="text = 'a47'"))
                            assert (told.fate, told.facts["at"]) == ("going-up", "leaf")
                        told = await why_named(elsewhere, "all", Question(where="text = 'a50'"))
                        assert (told.fate, told.facts["silent"]) == ("unfound", ["mid"])
                        assert told.text.endswith("It may also wait at 'mid', where nobody answers.")
                    async with here.host("mid"):
                        await until(lambda: _count(home, 50))
                        sender.move(await operator.entrance("notes", "root"))
                        sender.publish([{"text": f"b{number}"} for number in range(20)])
                        assert await sender.flush(20)
                        await operator.publish("notes", [{"text": "c"}], site="leaf", key="k")
                        await operator.publish("notes", [{"text": "c"}], site="root", key="k")
                        await operator.publish("notes", [{"text": "d"}])
                        await until(lambda: _count(home, 72))

                        async def told() -> bool:
                            status = await runtime.status()
                            found = status["streams"]["notes"]["outboxes"]
                            assert sum(each["waiting"] + each["taken"] for each in found.values()) <= 72
                            return sum(each["taken"] for each in found.values()) == 72 and status["sites"]["leaf"][
                                "upward_bytes"
                            ].keys() == {"mid"}

                        await until(told)
                found = await texts(home)
                assert Counter(found) == Counter(
                    [*(f"a{n}" for n in range(50)), *(f"b{n}" for n in range(20)), "c", "d"]
                )
                assert [each for each in found if each[0] == "a"] == [f"a{number}" for number in range(50)]
                home.near.clear()

    asyncio.run(run())


async def _count(fabric: Fabric, count: int) -> bool:
    return len(await texts(fabric)) == count


def test_a_publisher_publishes_its_stream_at_its_site_only(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            credentials = await here.credentials("pia", publish=["notes@leaf"])
            async with await here.client(credentials) as pia:
                await pia.publish("notes", [{"text": "x"}], site="leaf")
                for elsewhere in (None, "mid"):
                    entrance = await pia.entrance("notes", elsewhere)
                    with pytest.raises(FabricError):
                        await entrance.fabric.publish(entrance.rows, b"{}", timeout_s=0.3)
                with pytest.raises(ClientError, match="no stream"):
                    await pia.publish("fleet", [{"text": "x"}], site="leaf")

            async def came() -> bool:
                return bool(await here.operator.fabric.last(LOGS.input("notes"), LOGS.carried("notes")))

            await until(came)

    asyncio.run(run())
