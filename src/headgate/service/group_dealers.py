"""The dealers of a deployment's groups: each is started by the first member that asks, and ends when all are gone.

Members ask on `NAMESPACE.control.deal`, users by the gate. A dealer is the one reader of its group's inbox
(`headgate.gateway.dealer`); that of a user's group reads through the gate, in the user's name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

import numpy as np

from headgate.client import Client
from headgate.client.reader import STORE
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError, nearest
from headgate.fabric import Fabric, FabricError
from headgate.fabric.gated import GatedFabric
from headgate.fabric.runner import Runner
from headgate.gateway.dealer import DEAL, DealerMachine
from headgate.gateway.ranks import rank_of
from headgate.model import GroupRule, Subscription
from headgate.protocol.deals import Dealt, MemberCall
from headgate.protocol.reports import GroupsReport, MemberReport
from headgate.service.rights import unknown
from headgate.wire.frame import WireError
from headgate.wire.snapshot import Snapshot

_EVERY_S: Final = 1.0
_IDLE_S: Final = 30.0


class GroupDealer:
    """One dealer that runs."""

    def __init__(self, number: int, rule: GroupRule, client: Client, machine: DealerMachine, runner: Runner) -> None:
        self.number = number
        self.rule = rule
        self.client = client
        self.machine = machine
        self.used_s = time.monotonic()
        self._runner = runner

    @property
    def failed(self) -> bool:
        """Whether it has ended by an error, such as that somebody has taken over."""
        return self._runner.failure.done()

    async def ask(self, call: MemberCall) -> Dealt:
        """The answer to a member; raises what the dealer has failed with."""
        self.used_s = time.monotonic()
        asked = asyncio.ensure_future(self._runner.ask(DEAL, call))
        try:
            await asyncio.wait([asked, self._runner.failure], return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                await self._runner.failure
            found: Dealt = await asked
            return found
        finally:
            asked.cancel()
            self.used_s = time.monotonic()

    async def close(self) -> None:
        """End it: what members are done with is acknowledged."""
        if not self.failed:
            with noted(SERVICE, "what a group is done with was not acknowledged", HeadgateError, asyncio.TimeoutError):
                async with asyncio.timeout(_EVERY_S):
                    await self._runner.ask(STORE)
        await self._runner.__aexit__()
        await self.client.release()


class GroupDealers:
    """All groups of a deployment. `current` is the catalog in force."""

    def __init__(self, fabric: Fabric, current: Callable[[], Snapshot], users: Callable[[], set[str]]) -> None:
        """`users` are the names of those who are no operators: what they own is read in their name."""
        self._fabric = fabric
        self._current = current
        self._users = users
        self._dealers: dict[str, GroupDealer] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._reported = b""

    async def run(self) -> None:
        """Answer members until cancelled."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            stack.push_async_callback(await self._fabric.serve(self._fabric.logs.control("deal"), self.answer))
            while True:
                await asyncio.sleep(_EVERY_S)
                await self._sweep()
                with noted(SERVICE, "the groups were not reported", FabricError):
                    await self._report()

    async def answer(self, data: bytes, user: str | None = None) -> bytes:
        """Answer a member's question; `user` is who asks, None for an operator."""
        turn = 0
        try:
            call = MemberCall.decode(data)
            turn = call.turn
            found = await self._deal(call, user)
        except (HeadgateError, WireError) as error:
            nothing = np.zeros(0, dtype=np.uint64)
            found = Dealt(turn, nothing, None, stored=False, error=error.message, hint=error.hint, kind=error.kind)
        return found.encode()

    async def _deal(self, call: MemberCall, user: str | None) -> Dealt:
        snapshot = self._current()
        wanted = snapshot.deployment.subscriptions.get(call.name)
        if user is not None and (wanted is None or wanted.owner != user):
            raise unknown(call.name)
        if wanted is None:
            close = nearest(call.name, snapshot.deployment.subscriptions)
            hint = f"did you mean {close!r}?" if close else None
            raise HeadgateError(f"no subscription {call.name!r}", hint=hint, kind="unknown")
        rule = wanted.group
        if rule is None:
            raise HeadgateError(
                f"{call.name!r} is no group: it has one reader",
                hint="make it one with `headgate subscribe --group`, or read it with `headgate tail`",
                kind="conflict",
            )
        strange = sorted(call.context.keys() - rule.context.keys())
        if strange:
            known = ", ".join(sorted(rule.context)) or "none"
            raise HeadgateError(f"members of {call.name!r} have no value {strange[0]!r}", hint=f"values are {known}")
        if call.leave and call.name not in self._dealers and not call.done:
            return Dealt(call.turn, np.zeros(0, dtype=np.uint64), None)
        return await (await self._dealer(wanted, rule, snapshot)).ask(call)

    async def _dealer(self, wanted: Subscription, rule: GroupRule, snapshot: Snapshot) -> GroupDealer:
        """The dealer of a group, which is started where there is none, or one by another rule."""
        name, number = wanted.name, snapshot.subscription_ids[wanted.name]
        async with self._opening.setdefault(name, asyncio.Lock()):
            known = self._dealers.get(name)
            if known is not None and not known.failed and (known.number, known.rule) == (number, rule):
                return known
            if known is not None:
                await self._dealers.pop(name).close()
            client = self._client_of(wanted.owner)
            reading = await client.reading(snapshot, name, confirming=True)
            fabric = client.fabric
            machine = DealerMachine(
                reading,
                rule,
                fabric.logs,
                fabric.max_payload,
                fabric.codec,
                fabric.quarantine,
                rank=rank_of(rule),
            )
            runner = await Runner(fabric, machine, client.tables.snapshot, log=SERVICE).__aenter__()
            found = self._dealers[name] = GroupDealer(number, rule, client, machine, runner)
            return found

    def _client_of(self, owner: str) -> Client:
        if owner not in self._users():
            return Client(self._fabric)
        fabric = self._fabric.share(GatedFabric)
        fabric.user = owner
        return Client(fabric)

    async def _sweep(self) -> None:
        """End dealers of groups that are gone or changed, that have failed, or that nobody has asked for a while."""
        snapshot, now_s = self._current(), time.monotonic()
        for name, dealer in list(self._dealers.items()):
            wanted = snapshot.deployment.subscriptions.get(name)
            now = None if wanted is None else (snapshot.subscription_ids[name], wanted.group)
            idle = not dealer.machine.dealing.members and now_s > dealer.used_s + _IDLE_S
            if dealer.failed or idle or now != (dealer.number, dealer.rule):
                async with self._opening.setdefault(name, asyncio.Lock()):
                    if self._dealers.get(name) is dealer:
                        await self._dealers.pop(name).close()

    async def _report(self) -> None:
        """Say which members there are, and what each has had."""
        groups = {
            name: {
                each.name: MemberReport(held=each.held, dealt=each.dealt, done=each.done, stalled=each.stalled)
                for each in dealer.machine.dealing.members.values()
            }
            for name, dealer in self._dealers.items()
        }
        data = GroupsReport(groups=groups).encode()
        if data != self._reported:
            await self._fabric.publish(self._fabric.logs.stats("groups", "_"), data)
            self._reported = data

    async def _close(self) -> None:
        for name in list(self._dealers):
            await self._dealers.pop(name).close()
