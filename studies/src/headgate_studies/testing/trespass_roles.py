"""Requests of a relay or a Spark job that has turned hostile: with its credentials, for what is not its role's.

As in `headgate_studies.testing.trespass`, nothing outside of what the role may do is to change, and nothing to come
back but refusals.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from typing import Final

import nats

from headgate.fabric.accounts import Keys
from headgate.fabric.address import directory_of
from headgate.fabric.connecting import join
from headgate.fabric.roled import RoleFabric
from headgate.fabric.rolekeys import credentials_of
from headgate.fabric.roles import GET, HOME_API, JOB, SITE, Rights, job_rights, local_subject, site_rights
from headgate.protocol.records import RangeRequest
from headgate.service.roles import edges_of
from headgate.service.runtime import Runtime
from headgate.wire.ledger import Tally
from headgate.wire.logs import Logs

ROLES: Final = ("site leaf", "job")
_LOGS: Final = Logs()
_VERBS: Final = ("INFO", "PURGE", "DELETE", "MSG.GET", "MSG.DELETE", "UPDATE", "SNAPSHOT")
_SAMPLES: Final = (
    _LOGS.commit("fleet"),
    _LOGS.context("fleet"),
    _LOGS.head,
    _LOGS.filed,
    _LOGS.table(4711),
    _LOGS.ack(1),
    _LOGS.link("root", "leaf", "fleet"),
    _LOGS.link("leaf", "root", "fleet"),
    _LOGS.delivery("root", 1),
    _LOGS.stats("relay", "root"),
    _LOGS.hold("root"),
    _LOGS.ledger("fleet"),
)
_WAIT_S: Final = 0.3


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject is one of a pattern's.

    >>> matches("hg.inbox.leaf.*", "hg.inbox.leaf.7"), matches("a.>", "a.b.c"), matches("a.*", "a.b.c")
    (True, True, False)
    """
    wanted, given = pattern.split("."), subject.split(".")
    for at, word in enumerate(wanted):
        if word == ">":
            return len(given) > at
        if at >= len(given) or word not in ("*", given[at]):
            return False
    return len(given) == len(wanted)


class HostileRole:
    """Asks in a role for what is not that role's."""

    def __init__(self, fabric: RoleFabric, rights: Rights, subjects: list[str], logs: list[str], seed: int) -> None:
        self._fabric = fabric
        self._client = fabric._client  # noqa: SLF001 - a hostile program has no manners
        self._allowed = [local_subject(each) for each in rights.services]
        self._subjects = [*subjects, *_SAMPLES]
        self._logs = logs
        self._random = random.Random(seed)
        self.requests = 0
        self.leaked: list[str] = []

    def may(self, subject: str) -> bool:
        """Whether the role may publish to a subject."""
        return any(matches(each, subject) for each in self._allowed)

    async def ask(self) -> None:
        """One request of any kind."""
        kinds: tuple[Callable[[], Awaitable[None]], ...]
        kinds = (self._publish, self._manage, self._read, self._control, self._lead_astray, self._range)
        self.requests += 1
        await self._random.choice(kinds)()

    async def _refused(self, subject: str, data: bytes) -> None:
        """Ask where the role may not: whatever answers must refuse."""
        if self.may(subject):
            return
        try:
            answer = await self._client.request(subject, data, timeout=_WAIT_S)
        except (TimeoutError, nats.errors.Error):
            return
        headers = answer.headers or {}
        refused = "Status" in headers or "Nats-Service-Error" in headers
        if not refused and b'"error"' not in answer.data:
            self.leaked.append(f"{self._fabric.role}: {subject} was answered: {answer.data[:100]!r}")

    def _subject(self) -> str:
        tokens = self._random.choice(self._subjects).split(".")
        if self._random.random() < 0.2:
            tokens[self._random.randrange(1, len(tokens))] = self._random.choice(("1", "root", "leaf", "x"))
        return ".".join(tokens)

    async def _publish(self) -> None:
        await self._refused(self._subject(), self._random.choice((Tally(1).encode(), b"x")))

    async def _manage(self) -> None:
        prefix, verb = self._random.choice(("$JS.API", HOME_API)), self._random.choice(_VERBS)
        await self._refused(f"{prefix}.STREAM.{verb}.{self._random.choice(self._logs)}", b'{"seq": 1}')

    async def _read(self) -> None:
        log, subject = self._random.choice(self._logs), self._subject()
        await self._refused(f"{GET}.{log}.{subject}", b"")
        await self._refused(f"{GET}.{log}", json.dumps({"seq": 1, "next_by_subj": "hg.>"}).encode())

    async def _control(self) -> None:
        verb = self._random.choice(("subscribe", "unsubscribe", "user-add", "status"))
        await self._refused(self._random.choice((_LOGS.control(verb), _LOGS.asked_by("ada", verb))), b"{}")

    async def _lead_astray(self) -> None:
        """An answer that is allowed, on a way that leads to where the role may not write."""
        target, asked = self._subject(), self._random.choice(self._allowed)
        reads = asked.startswith("$JS.") and "PURGE" not in asked  # it may purge its own logs
        if reads and not self.may(target) and not {"*", ">"} & set(asked):
            await self._client.publish(asked, b"", reply=target)

    async def _range(self) -> None:
        other = RangeRequest(stream="fleet", after=0, upto=50, child=self._random.choice(("root", "nobody")))
        site = self._fabric.site
        subject = _LOGS.asked_at("root", site) if site and self._random.random() < 0.5 else _LOGS.asked_at("leaf", "x")
        try:
            answer = await self._client.request(subject, other.encode(), timeout=_WAIT_S)
        except (TimeoutError, nats.errors.Error):
            return
        if answer.data:
            self.leaked.append(f"{self._fabric.role}: rows for another site: {answer.data[:100]!r}")


def _rights(runtime: Runtime, role: str) -> Rights:
    """What a role should be able to do, whatever the server was told."""
    snapshot = runtime.control.contexts.snapshot
    streams = list(snapshot.deployment.streams.values())
    if role == JOB:
        return job_rights(_LOGS, streams, {})
    return site_rights(_LOGS, role.removeprefix(f"{SITE} "), streams, sorted(edges_of(snapshot)))


async def trespass_in_roles(
    runtime: Runtime, subjects: list[str], logs: list[str], requests: int, seed: int
) -> tuple[int, list[str], Callable[[str], bool]]:
    """Ask in every role; returns how much was asked, what leaked, and which subjects a role may have changed."""
    directory = directory_of(runtime.url)
    assert directory is not None
    asked = 0
    leaked: list[str] = []
    written: list[str] = []
    for role in ROLES:
        credentials = credentials_of(Keys.open(directory), _LOGS.namespace, role)
        rights = _rights(runtime, role)
        async with await join(runtime.url, _LOGS, credentials) as fabric:
            hostile = HostileRole(fabric, rights, subjects, logs, seed)
            while hostile.requests < requests:
                await hostile.ask()
            await fabric._client.flush()  # noqa: SLF001 - a hostile program has no manners
        asked, leaked, written = asked + hostile.requests, leaked + hostile.leaked, [*written, *rights.services]
    return asked, leaked, lambda subject: any(matches(each, subject) for each in written)
