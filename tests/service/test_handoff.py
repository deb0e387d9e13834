"""Hand-off: a subscription that moves between sites loses nothing and gets nothing twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.client.helpers import live_test, no_difference, read, rows, seqs
from tests.live import Live, running, small, until

from headgate.client import ClientError, Delivery, SyncClient
from headgate.fabric import cancel_all
from headgate.relay.node import RelayNode
from headgate.relay.output import QueueLimits

pytestmark = pytest.mark.nats


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a relay and a client do once in a while they do at once: nothing here is about how often."""
    for place in (
        "relay.upkeep._UPKEEP_S",
        "relay.state.SiteState.stall_s",
        "client.acknowledging._ACK_EVERY_S",
        "client.reader._STALL_S",
        "service.keeper._STORE_S",
    ):
        monkeypatch.setattr(f"headgate.{place}", 0.05)


async def _tens(live: Live, first: int, count: int = 1) -> None:
    """Commit batches of ten rows."""
    for batch in range(first, first + count):
        await live.commit("fleet", rows(10 * batch, 10 * batch + 10), batch)


async def _line(live: Live, name: str = "mine") -> dict[str, Any]:
    found: dict[str, Any] = (await live.runtime.status())["subscriptions"][name]
    return found


class Relays:
    """Relays that can be taken down in the middle of their work; what they knew is gone but for the logs."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self.nodes: dict[str, RelayNode] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def restart(self, *names: str) -> None:
        for site in names:
            await cancel_all([self._tasks[site]] if site in self._tasks else [])
            self.nodes[site] = RelayNode(self._live.client.fabric, site)
            self._tasks[site] = asyncio.create_task(self.nodes[site].run())

    async def stop(self) -> None:
        await cancel_all(self._tasks.values())


def test_a_subscription_is_handed_to_and_fro_while_rows_stream_and_relays_die(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live, relays: Relays) -> None:
        await relays.restart("root", "mid", "leaf")
        live.readers.start(["mine"])
        batch = 0
        for move in range(6):
            await _tens(live, batch, 2)
            await live.client.move("mine", ("mid", "root", "leaf")[move % 3])
            if move % 2:
                await relays.restart(("mid", "leaf", "leaf")[move // 2])
            batch += 2
        await _tens(live, batch)
        status = await live.settle()
        assert live.seqs("mine") == list(range(1, 131))
        line = status["subscriptions"]["mine"]
        assert (line["id"], line["site"], line["moves"], line["to_drain"]) == (1, "leaf", 6, [])
        assert (line["delivered"], line["difference"], line["starts"]) == (130, 0, 0)
        # The inboxes behind are purged: who resumes from an old position gets those rows from the root.
        token = live.readers.deliveries["mine"][0].position
        first = live.readers.deliveries["mine"][0].upto
        await live.readers.stop()
        assert seqs(await read(live.client, "mine", 130 - first, position=token)) == list(range(first + 1, 131))

    async def run() -> None:
        async with running(small(mine={"site": "leaf"}), tmp_path, nats_url, relays=False) as live:
            relays = Relays(live)
            try:
                await work(live, relays)
            finally:
                await relays.stop()

    asyncio.run(run())


def test_who_detaches_reads_the_old_site_first_and_then_the_new_one(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live) -> None:
        found: list[Delivery] = []

        async def consume() -> None:
            inbox = await live.client.subscribe("mine", max_rows=4)
            async for delivery in inbox:
                found.append(delivery)
                assert len(delivery) <= 4

        consuming = asyncio.create_task(consume())
        await _tens(live, 0)
        await until(lambda: _has(found, 4))
        await live.client.detach("mine", expires="1 h")
        await asyncio.wait_for(consuming, 60)
        away = await _line(live)
        assert away["detached_ms"] > 0
        assert away["expires_s"] == 3600.0
        await _tens(live, 1)
        await live.client.move("mine", "mid")
        await _tens(live, 2)
        assert (await _line(live))["reads_at"] == "leaf"
        async with asyncio.timeout(30):
            inbox = await live.client.attach("mine", site="root")
            await _tens(live, 3)
            async for delivery in inbox:
                found.append(delivery)
                if delivery.upto == 40:
                    break
        assert seqs(found) == list(range(1, 41))
        assert [each.after for each in found[1:]] == [each.upto for each in found[:-1]]
        await inbox.close()
        back = await _line(live)
        assert (back["site"], back["moves"], back["detached_ms"]) == ("root", 2, None)

    async def _has(found: list[Delivery], count: int) -> bool:
        return len(seqs(found)) >= count

    live_test(tmp_path, nats_url, small(mine={"site": "leaf"}), work)


def test_a_full_inbox_that_is_left_is_filled_up_while_it_is_drained(tmp_path: Path, nats_url: str) -> None:
    limits = QueueLimits(linger_s=0.0, idle_s=0.0)

    async def run() -> None:
        document = small(mine={"site": "leaf"})
        async with running(document, tmp_path, nats_url, limits=limits, inbox_messages=2) as live:
            leaf = live.runtime.nodes["leaf"]

            async def arrived(upto: int) -> bool:
                return leaf.machine.state.core.coverage("fleet") == upto

            for batch in range(3):
                await _tens(live, batch)
                await until(lambda upto=10 * batch + 10: arrived(upto))
            await until(lambda: _refused(live))
            await live.client.move("mine", "root")
            await _tens(live, 3)
            live.readers.start(["mine"])
            status = await live.settle()
            assert live.seqs("mine") == list(range(1, 41))
            assert status["subscriptions"]["mine"]["difference"] == 0

    async def _refused(live: Live) -> bool:
        return live.runtime.nodes["leaf"].machine.state.totals.refused > 0

    asyncio.run(run())


def test_a_reader_who_comes_after_the_move_begins_where_the_first_site_began(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live) -> None:
        await live.client.control("subscribe", name="mine", subscription={"stream": "fleet", "site": "leaf"})
        await _tens(live, 1)
        await live.client.move("mine", "root")
        await _tens(live, 2)
        assert seqs(await read(live.client, "mine", 20)) == list(range(11, 31))
        line = await _line(live)
        assert (line["starts"], line["delivered"], line["in_flight"], line["difference"]) == (10, 20, 0, 0)

    async def first(live: Live) -> None:
        await _tens(live, 0)
        await work(live)

    live_test(tmp_path, nats_url, small(other={"site": "mid"}), first)


def test_what_a_dead_site_still_owes_comes_from_the_root(
    tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.client.stays._PATIENCE_S", 0.2)
    document = small(mine={"site": "leaf", "where": "speed >= 0"})
    gaps: list[tuple[int, int]] = []

    async def run() -> None:
        async with running(document, tmp_path, nats_url, relays=False) as live:
            relays = Relays(live)
            await relays.restart("root", "mid")
            try:
                await _tens(live, 0)  # the leaf never comes up
                await live.client.move("mine", "mid")
                await _tens(live, 1)
                found = await read(live.client, "mine", 20, on_gap=lambda *gap: gaps.append(gap))
                assert seqs(found) == list(range(1, 21))
                await until(lambda: no_difference(live))
            finally:
                await relays.stop()

    asyncio.run(run())
    assert gaps == [(0, 10)]


def test_rows_left_behind_expire_there_and_are_declared(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live) -> None:
        await _tens(live, 0)
        await live.client.move("mine", "mid")
        await _tens(live, 1)

        async def waiting() -> bool:
            return (await _line(live))["in_flight"] == 20 and bool(await _stored(live, "mid", 1))

        await until(waiting)
        await live.client.detach("mine", expires=0.01)

        async def gone() -> bool:
            held = [await _stored(live, site, stay) for site, stay in (("leaf", 0), ("mid", 1))]
            return all(len(each) == 1 and b'"expired"' in each[0] for each in held)

        await until(gone)
        found = []
        inbox = await live.client.attach("mine", site="leaf")
        await _tens(live, 2)
        async with asyncio.timeout(30):
            async for delivery in inbox:
                found.append(delivery)
                if delivery.upto == 30:
                    break
        await inbox.detach()
        assert sum(each.given_up.get("expired", 0) for each in found) == 20
        assert seqs(found) == list(range(21, 31))
        line = await _line(live)
        assert (line["expired"], line["delivered"], line["difference"]) == (20, 10, 0)

        async def clean() -> bool:
            return not await _stored(live, "leaf", 0) and not await _stored(live, "mid", 1)

        await until(clean)

    async def _stored(live: Live, site: str, stay: int) -> list[bytes]:
        logs = live.client.fabric.logs
        return [each.data for each in await live.client.fabric.read(logs.inbox(site), logs.delivery(site, 1, stay), 0)]

    live_test(tmp_path, nats_url, small(mine={"site": "leaf"}), work)


def test_plain_code_detaches_moves_and_attaches_too(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live) -> None:
        loop = asyncio.get_running_loop()

        def plain() -> None:
            with SyncClient(live.address.url, namespace=live.address.logs.namespace) as client:
                found = []
                for delivery in client.subscribe("mine", timeout_s=20):
                    found.append(delivery)
                    client.detach("mine")
                client.move("mine", "mid")
                asyncio.run_coroutine_threadsafe(_tens(live, 1), loop).result(20)
                for delivery in client.attach("mine", site="mid", timeout_s=20):
                    found.append(delivery)
                    client.detach("mine")
                assert seqs(found) == list(range(1, 21))

        await _tens(live, 0)
        await asyncio.to_thread(plain)
        line = await _line(live)
        assert (line["moves"], line["delivered"], line["in_flight"], line["difference"]) == (1, 20, 0, 0)

    live_test(tmp_path, nats_url, small(mine={"site": "leaf"}), work)


def test_wrong_moves_are_refused_and_stays_are_bounded(
    tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.catalog.change.MAX_LEFT", 4)

    async def work(live: Live) -> None:
        for attempt, said in (
            (live.client.move("mine", "leav"), r"'leav' \(did you mean 'leaf'\?\)"),
            (live.client.move("mein", "leaf"), r"'mein' \(did you mean 'mine'\?\)"),
            (live.client.detach("mein"), r"'mein' \(did you mean 'mine'\?\)"),
        ):
            with pytest.raises(ClientError, match=said):
                await attempt
        revision = (await live.client.snapshot()).revision
        assert await live.client.move("mine", "leaf") == revision
        for move in range(4):
            live.runtime.catalog.move("mine", ("mid", "leaf")[move % 2])
        with pytest.raises(ClientError, match="has moved 5 times since it was last read"):
            await live.client.move("mine", "mid")
        await live.runtime.control.publish()
        await _tens(live, 0)
        assert seqs(await read(live.client, "mine", 10)) == list(range(1, 11))
        assert await live.client.move("mine", "mid") > revision

    live_test(tmp_path, nats_url, small(mine={"site": "leaf"}), work)
