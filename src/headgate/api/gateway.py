"""What all requests of the API share: one client of the deployment, and reports that are read once for many askers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from headgate.api.deliveries import RowTexts
from headgate.api.keys import IdempotencyKeys
from headgate.api.pacing import PacedQuestions
from headgate.api.problems import ApiError
from headgate.api.readers import MOST_OF_USER, HttpReaders
from headgate.api.recent import RecentStreams, SampledShares
from headgate.api.series import Rates, Series
from headgate.api.users import Users
from headgate.api.views import status_for
from headgate.client import Client
from headgate.client.names import known_names
from headgate.client.reader import Reading
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError, nearest
from headgate.fabric import cancel_all
from headgate.fabric.gated import GatedFabric
from headgate.fabric.registry import User
from headgate.filters import FilterError
from headgate.gateway.feeds import Feeds
from headgate.gateway.memory import MEMORY_BYTES
from headgate.model import RequestLimits
from headgate.planning import PlanResult
from headgate.planning.covering import Comparisons
from headgate.protocol.port import Stored
from headgate.protocol.reports import PlannerReport
from headgate.service.allowances import ByteAllowances
from headgate.service.attainment import Attained, attainment
from headgate.service.describing import filter_document, sharing, subscription_document
from headgate.service.grants import grant_of, granted_name
from headgate.service.proposing import granted, measured_sizes, prediction_document
from headgate.service.reports import read_reports, shown
from headgate.service.status import read_status
from headgate.wire.snapshot import Snapshot

T = TypeVar("T")
SAMPLE_S: Final = 10.0
"""How often figures are kept for time series."""
_GRANTED_S: Final = 10.0
_FRESH_S: Final = 1.0
_STATUS_S: Final = 60.0


class Recent(Generic[T]):
    """A report that everybody who asks within a moment gets the same of; it is read by one at a time.

    One that takes longer than a moment to read, as that of 100,000 subscriptions does, is read again in the background:
    who asks meanwhile gets the one before, and does not wait.
    """

    def __init__(self, read: Callable[[], Awaitable[T]], fresh_s: float = _FRESH_S) -> None:
        self._read = read
        self._fresh_s = fresh_s
        self._turn = asyncio.Lock()
        self._read_s = 0.0
        self._took_s = 0.0
        self._value: T | None = None
        self._again: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """The report, at most `fresh_s` older than the question, or a few times as old as it takes to read."""
        asked_s = time.monotonic()
        if self._value is None or self._took_s <= self._fresh_s or self._failed():
            return await self._at_most(asked_s)
        if self._read_s < asked_s - 3 * self._took_s and (self._again is None or self._again.done()):
            self._again = asyncio.create_task(self._at_most(asked_s))
        return self._value

    def _failed(self) -> bool:
        """Whether it could not be read again: then whoever asks next is told why."""
        task, failed = self._again, False
        if task is not None and task.done():
            self._again, failed = None, task.cancelled() or task.exception() is not None
        return failed

    async def _at_most(self, asked_s: float) -> T:
        async with self._turn:
            if self._value is None or self._read_s < asked_s - max(self._fresh_s, 3 * self._took_s):
                began_s = time.monotonic()
                self._value = await self._read()
                self._read_s = time.monotonic()
                self._took_s = self._read_s - began_s
            return self._value

    async def close(self) -> None:
        """End what is being read."""
        await cancel_all([] if self._again is None else [self._again])


@dataclass(frozen=True, slots=True)
class ServedPart:
    """What of a deployment is served, and how: everything by default.

    `site` is the one site whose readers are served, and nothing but receiving is offered. `limits` are those of
    each user; where users may read so many bytes a second only, the service counts them, so users are read through it.
    """

    site: str | None = None
    limits: RequestLimits = field(default_factory=RequestLimits)
    memory_bytes: int = MEMORY_BYTES
    """What the memory of each site holds at most."""


class Gateway:
    """A deployment as the API sees it."""

    def __init__(self, client: Client, state_dir: Path | None = None, part: ServedPart | None = None) -> None:
        """`state_dir` is where the deployment keeps its state, where that is on this machine."""
        self.client = client
        self.state_dir = state_dir
        self.part = part or ServedPart()
        self.users = Users(state_dir)
        self.texts = RowTexts()
        self.feeds = Feeds(client, None if self.part.site is None else (self.part.site,), self.part.memory_bytes)
        self.feeds.adopt(client)
        self.readers = HttpReaders(client, site=self.part.site)
        self.keys = IdempotencyKeys()
        self.published = ByteAllowances(self.part.limits.publish_bytes_per_s)
        """What users have published over HTTP."""
        self.series = Series()
        self.rates = Rates()
        self.recent = RecentStreams()
        self.shares = SampledShares()
        self._judging = asyncio.Lock()
        self._attained: tuple[tuple[int, int], list[Attained]] | None = None
        self._status = Recent(self._read_status)
        self._granted: tuple[tuple[int, int], PlanResult | None] | None = None
        self._evaluating: asyncio.Task[None] | None = None
        self.compared = Comparisons()
        """Which delivery classes contain which, remembered from one evaluation of the plan to the next."""
        self.questions = PacedQuestions(rest=0.0)
        """Questions of those who come through this gateway that take the processor for a moment."""
        self.asking = asyncio.Lock()
        """Held by a question that takes seconds of the processor: one is answered at a time."""
        self.describe: Callable[[], dict[str, Any]] = dict
        """The OpenAPI document of the application that serves it."""
        self.user: User | None = None
        """Whom this is the gateway of, None for operators."""
        self._of_users: dict[str, UserGateway] = {}

    def of_owner(self, owner: str) -> Gateway:
        """The deployment as the owner of a subscription sees it: nobody is passed on more than the owner may have.

        Subscriptions of operators, and of users that are gone, are read as an operator does.
        """
        user = self.users.registry().users.get(owner)
        return self if user is None or user.operator else self.of_user(user)

    def of_user(self, user: User) -> Gateway:
        """The deployment as a user may see it: everything goes through the gate, in the user's name."""
        found = self._of_users.get(user.name)
        if found is None:
            found = self._of_users[user.name] = UserGateway(self, user)
        found.user = user
        return found

    async def close(self) -> None:
        """End what is still being sent to clients."""
        self.readers.close()
        for each in self._of_users.values():
            await each.close()
        await self.feeds.close()
        await self._status.close()
        await cancel_all([] if self._evaluating is None else [self._evaluating])

    async def snapshot(self) -> Snapshot:
        """The deployment as it is in force now."""
        return await self.client.snapshot()

    async def status(self) -> dict[str, Any]:
        """Everything that `headgate status` says, at most a second old."""
        return await self._status.get()

    async def _read_status(self) -> dict[str, Any]:
        async with asyncio.timeout(_STATUS_S):
            found = await read_status(self.client.fabric, self.client.tables, self.state_dir)
        self.rates.add(found)
        return found

    async def attainment(self) -> list[Attained]:
        """What every subscription attains: worked out once for a reading of the status."""
        snapshot, status = await self.snapshot(), await self.status()
        key = (snapshot.revision, status["time_ms"])
        async with self._judging:
            if self._attained is None or self._attained[0] != key:
                lost = {link: self.rates.of("links", link, "reduced") for link in status["links"]}
                found = await asyncio.to_thread(attainment, snapshot, status, status["planner"], lost.get)
                self._attained = key, found
            return self._attained[1]

    async def sample(self) -> None:
        """Keep the figures of the status as time series, for ever; less often where reading them takes long."""
        while True:
            began_s = time.monotonic()
            with noted(SERVICE, "the status was not sampled", HeadgateError, TimeoutError):
                self.series.add(await self.status())
            await asyncio.sleep(max(SAMPLE_S, 20 * (time.monotonic() - began_s)))

    async def planner(self) -> dict[str, Any]:
        """What the planner last reported, nothing before it has measured anything."""
        return shown((await read_reports(self.client.fabric, PlannerReport)).get("_"))

    async def granted(self) -> PlanResult | None:
        """What the plan in force gives to whom: evaluated once for a revision and a report of the planner.

        Of 100,000 subscriptions that takes a while: who asks waits for some seconds, and gets the one before then.
        """
        snapshot, planner = await self.snapshot(), await self.planner()
        key = (snapshot.revision, planner.get("time_ms", 0))
        until_s = time.monotonic() + _GRANTED_S
        while (self._granted is None or self._granted[0] != key) and time.monotonic() < until_s:
            if self._evaluating is None or self._evaluating.done():
                self._evaluating = asyncio.create_task(self._evaluate(key, snapshot, planner))
            done, _ = await asyncio.wait([self._evaluating], timeout=until_s - time.monotonic())
            for each in done:
                each.result()
        return None if self._granted is None else self._granted[1]

    async def _evaluate(self, key: tuple[int, int], snapshot: Snapshot, planner: Mapping[str, Any]) -> None:
        self._granted = key, await asyncio.to_thread(granted, snapshot, measured_sizes(planner), self.compared)

    async def subscription(self, name: str) -> dict[str, Any]:
        """All that is known of a subscription: as it was written, what its filter means, and what the plan grants it.

        One to a stream of several roots has a part at each of them (`members`).
        """
        snapshot = await self.snapshot()
        names = known_names(name, snapshot)
        members = [await self._member(snapshot, each) for each in names]
        return members[0] if names == [name] else {"name": name, "revision": snapshot.revision, "members": members}

    async def _member(self, snapshot: Snapshot, name: str) -> dict[str, Any]:
        found = snapshot.deployment.subscriptions[name]
        stream = snapshot.deployment.streams[found.stream]
        identity = snapshot.class_ids[name]
        filtered: dict[str, Any] | None = None
        with noted(SERVICE, "a filter names what its owner may no longer see", FilterError):
            filtered = await asyncio.to_thread(filter_document, found, stream)
        plan = await self.granted()
        predicted = None if plan is None else plan.subscriptions.get(name)
        return {
            "name": name,
            "id": snapshot.subscription_ids[name],
            "revision": snapshot.revision,
            "subscription": subscription_document(found),
            "filter": filtered,
            "class": identity,
            "sharing": sharing(snapshot)[identity],
            **await self.matched(name),
            "granted": (
                None if predicted is None or plan is None else prediction_document(predicted, plan.unknown_rates)
            ),
        }

    async def matched(self, name: str) -> dict[str, Any]:
        """The share of its stream's rows that a subscription matched in the last minutes, None where nothing is known.

        The planner has measured it, unless the catalog has changed since: then it is judged by the rows that were drawn
        from the stream last, `matched_sample` of them, and lies in that interval with 95 %.
        """
        snapshot, planner = await self.snapshot(), await self.planner()
        measured = planner.get("subscriptions", {}).get(name, {}).get("selectivity")
        drawn = None
        if name in snapshot.class_ids and (measured is None or planner["revision"] != snapshot.revision):
            with noted(SERVICE, "a filter cannot be judged by the rows that were drawn", FilterError):
                drawn = await self.shares.get(self.client.fabric, snapshot, name)
        if drawn is None:
            return {"matched_share": measured, "matched_sample": None}
        found = {"rows": drawn.rows, "at_least": drawn.at_least, "at_most": drawn.at_most}
        return {"matched_share": drawn.share, "matched_sample": found}


class UserGateway(Gateway):
    """As `Gateway`, with the rights of one user: the connection is the same, and every request names the user.

    The service's gate checks these requests as it checks those of a connection of the user's own.
    """

    def __init__(self, whole: Gateway, user: User) -> None:
        fabric = whole.client.fabric.share(GatedFabric)
        fabric.user = user.name
        super().__init__(Client(fabric), whole.state_dir, whole.part)
        self.readers = HttpReaders(self.client, MOST_OF_USER, self.part.site)
        self.user = user
        self.whole = whole
        self.questions = PacedQuestions()
        self.texts, self.users = whole.texts, whole.users
        self.published = whole.published
        whole.feeds.adopt(self.client, self._shown)

    def _shown(self, reading: Reading, messages: list[Stored]) -> list[Stored] | None:
        """Messages of memory for a reader of the user's: as they are where it may have all of them.

        Where that is not sure, or what it reads is counted, the gate is asked for them instead.
        """
        user = None if self.user is None else self.users.registry().users.get(self.user.name)
        stream = reading.snapshot.deployment.streams[reading.stream]
        expired = user is None or (user.expires_s is not None and time.time() >= user.expires_s)
        if (
            user is None
            or expired
            or self.part.limits.bytes_per_s is not None
            or not user.may_subscribe(granted_name(stream))
        ):
            return None
        return messages if grant_of(user, stream).whole else None

    async def close(self) -> None:
        """End what is still being sent to clients; the connection is not this one's to close."""
        await super().close()
        await self.client.release()

    async def status(self) -> dict[str, Any]:
        """What a status says of the user's own subscriptions, and of its streams how far they are."""
        snapshot = await self.snapshot()
        return status_for(await self.whole.status(), snapshot)

    async def planner(self) -> dict[str, Any]:
        """What was measured of the user's own subscriptions."""
        snapshot, found = await self.snapshot(), await self.whole.planner()
        mine = {name: each for name, each in found.get("subscriptions", {}).items() if name in snapshot.class_ids}
        return {"subscriptions": mine, "time_ms": found.get("time_ms", 0)} if mine else {}

    async def matched(self, name: str) -> dict[str, Any]:
        """As for an operator: the subscription is narrowed by the grant, so that it tells no more than its rows."""
        return await self.whole.matched(name)

    async def _member(self, snapshot: Snapshot, name: str) -> dict[str, Any]:
        """As for an operator, without which link or site binds: that is everybody's."""
        found = await super()._member(snapshot, name)
        granted = found["granted"]
        return {**found, "granted": None if granted is None else {**granted, "binds": None}}

    async def attainment(self) -> list[Attained]:
        """What the user's own subscriptions attain; of the reasons those that are not about links of everybody."""
        mine = (await self.snapshot()).deployment.subscriptions
        found = [each for each in await self.whole.attainment() if each.name in mine]
        own = ("inbox", "reader")
        return [
            each if each.reason is None or each.reason.kind in own else replace(each, reason=None) for each in found
        ]

    async def granted(self) -> PlanResult | None:
        """What the plan in force gives; callers show what of it is the user's."""
        return await self.whole.granted()


def known(items: Mapping[str, T], name: str, what: str) -> T:
    """The item of a name; an unknown one is refused with the nearest."""
    if name not in items:
        close = nearest(name, items)
        hint = f"did you mean {close!r}?" if close else None
        raise ApiError(f"no {what} {name[:100]!r}", hint=hint, kind="unknown")
    return items[name]
