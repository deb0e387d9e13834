"""Fair turns: a flood costs the others nothing, limits hold at the limit, and a refusal says when to come back."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.live import running, small, until

from headgate.client import Client
from headgate.model import RequestLimits
from headgate.model.caller import Caller
from headgate.service.request_desk import HELD_S, MOST_HELD, Desk
from headgate.service.request_turns import RequestTurns


def test_limits_hold_at_the_limit() -> None:
    turns: RequestTurns[int] = RequestTurns(RequestLimits(requests_per_s=10.0, burst=3, waiting=5))
    assert [turns.offer("a", number, 0.0) for number in range(3)] == [None] * 3
    again_s = turns.offer("a", 3, 0.0)
    assert again_s is not None
    assert abs(again_s - 0.1) < 1e-9
    assert turns.offer("a", 3, again_s - 0.01) is not None
    assert turns.offer("a", 3, again_s) is None
    assert turns.offer("b", 0, 0.0) is None  # another one has limits of its own
    full: RequestTurns[int] = RequestTurns(RequestLimits(requests_per_s=1e6, burst=1000, waiting=4))
    assert [full.offer("a", number, 0.0) is None for number in range(6)] == [True] * 4 + [False] * 2
    assert full.take() == 0
    assert full.offer("a", 6, 0.0) is None
    assert full.refused == 2


@given(st.lists(st.sampled_from("abc"), max_size=60))
def test_everybody_is_served_in_turn_and_in_order(flows: list[str]) -> None:
    turns: RequestTurns[tuple[str, int]] = RequestTurns(RequestLimits())
    for number, flow in enumerate(flows):
        assert turns.offer(flow, (flow, number), 0.0) is None
    served = []
    while (found := turns.take()) is not None:
        served.append(found)
    assert len(turns) == 0
    assert sorted(served, key=lambda each: each[1]) == list(zip(flows, range(len(flows)), strict=True))
    for flow in set(flows):
        mine = [number for name, number in served if name == flow]
        assert mine == sorted(mine)
        places = [place for place, (name, _) in enumerate(served) if name == flow]
        # Between two of somebody's requests everybody else has at most one turn.
        assert all(later - earlier <= len(set(flows)) for earlier, later in itertools.pairwise(places))


def test_a_flood_of_one_does_not_hold_up_another(tmp_path: Path, nats_url: str) -> None:
    """3,000 requests at once of one connection; a `subscribe` of another one is served with the first of them."""

    async def run() -> None:
        async with (
            running(small(here={"site": "leaf"}), tmp_path, nats_url) as live,
            await Client.connect(nats_url, namespace=live.address.logs.namespace) as flooding,
        ):
            fabric = flooding.fabric
            answers: asyncio.Queue[bytes] = asyncio.Queue()

            async def keep(message: object) -> None:
                answers.put_nowait(message.data)  # type: ignore[attr-defined]

            inbox = fabric._client.new_inbox()
            await fabric._client.subscribe(f"{inbox}.*", cb=keep)
            subject = fabric.logs.control("subscribe")
            for number in range(3000):
                wanted = {"name": f"f{number}", "subscription": {"stream": "fleet", "site": "leaf"}}
                await fabric._client.publish(subject, json.dumps(wanted).encode(), reply=f"{inbox}.{number}")
            await fabric._client.flush()

            async def flooded() -> bool:
                return live.runtime.control._changes.turns.refused >= 2500

            await until(flooded)
            before = len([name for name in live.runtime.catalog.snapshot().subscription_ids if name[0] == "f"])
            began = time.monotonic()
            await live.client.control("subscribe", name="honest", subscription={"stream": "fleet", "site": "leaf"})
            took_s = time.monotonic() - began
            after = len([name for name in live.runtime.catalog.snapshot().subscription_ids if name[0] == "f"])
            assert after - before <= 8, took_s  # those that were being served, and one in its turn
            refused = [json.loads(answers.get_nowait()) for _ in range(100)]
            assert all("retry_after_s" in each or "id" in each for each in refused)

    asyncio.run(run())


def test_who_asks_too_often_waits_and_is_served(tmp_path: Path, nats_url: str) -> None:
    async def run() -> None:
        document = {**small(here={"site": "leaf"}), "limits": {"requests": "20/s", "burst": 2, "waiting": 2}}
        async with running(document, tmp_path, nats_url) as live:
            answers = await asyncio.gather(*(live.client.control("machine") for _ in range(8)))
            assert len(answers) == 8
            assert live.runtime.control._reports.turns.refused > 0

    asyncio.run(run())


def test_a_request_that_is_charged_more_leaves_fewer_for_later() -> None:
    turns: RequestTurns[int] = RequestTurns(RequestLimits(requests_per_s=10, burst=20, waiting=100))
    assert [turns.offer("eve", number, 0.0) for number in range(2)] == [None, None]
    for _ in range(2):
        turns.charge("eve", 9)
    assert turns.offer("eve", 2, 0.0) == 0.1
    assert turns.offer("ada", 3, 0.0) is None
    assert turns.offer("eve", 2, 0.1) is None
    assert turns.charge("nobody", 9) == ([], 0.0)


def test_what_waits_of_a_flow_that_was_charged_too_much_is_given_back() -> None:
    turns: RequestTurns[int] = RequestTurns(RequestLimits(requests_per_s=10, burst=20, waiting=100))
    for number in range(8):
        assert turns.offer("eve", number, 0.0) is None
    assert turns.offer("ada", 100, 0.0) is None
    assert turns.take() == 0
    assert turns.charge("eve", 12) == ([], 0.0)  # 20 - 8 - 12: none left, none owed
    assert turns.take() == 100
    waiting, again_s = turns.charge("eve", 9)
    assert (waiting, again_s, turns.refused) == ([1, 2, 3, 4, 5, 6, 7], 1.0, 7)
    assert turns.take() is None
    assert turns.offer("eve", 8, 0.99) is not None
    assert turns.offer("eve", 8, 1.01) is None
    assert turns.take() == 8


def test_a_refusal_is_held_back_and_not_longer_than_it_says() -> None:
    """Somebody with 32 questions open asks again with every answer: it gets a few answers in the time of one."""

    async def run() -> None:
        answers: list[dict[str, object]] = []

        @dataclass(frozen=True)
        class Call:
            data: bytes = b"x" * 1000

            async def reply(self, data: bytes) -> None:
                answers.append(json.loads(data))

        desk = Desk(RequestLimits(requests_per_s=100.0, burst=1, waiting=1), 1)
        caller = Caller("eve", "subscriber")

        async def nothing(_: Caller, __: bytes) -> None:
            return None

        desk.turns.offer(caller.flow, (caller, Call(), nothing), time.monotonic())  # type: ignore[arg-type]
        desk.turns.charge(caller.flow, 1_000)
        for _ in range(32):
            await desk.take(caller, Call(), nothing)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert answers == []
        await asyncio.gather(*desk._held)
        assert len(answers) == 32
        assert all(9 < float(str(each["retry_after_s"])) <= 10 - HELD_S + 0.1 for each in answers)
        for _ in range(MOST_HELD + 3):
            await desk.take(caller, Call(), nothing)  # type: ignore[arg-type]
        assert len(answers) == 32 + 3  # past the limit they are told at once
        await desk.close()

    asyncio.run(run())
