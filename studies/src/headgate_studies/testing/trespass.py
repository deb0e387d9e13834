"""Requests by users without the right to them: ``python -m headgate_studies.testing.trespass --requests 10000``.

A deployment runs with three users. One of them owns a subscription; another asks, publishes and listens at random:
control requests about what is the first one's, reads and acknowledgements of every subject that there is, the JetStream
API of every log, requests in the first one's name, replies that lead into logs, every operation of the HTTP API. The
third may have some rows and columns of the first one's stream, and asks for the others
(`headgate_studies.testing.trespass_grants`). Nothing may change and nothing may come back but refusals and what is
everybody's. Then the owner asks for the same, and is served. A quarter as many requests each are made with the
credentials of a site and of the Spark job, a tenth as a device over MQTT, and a hundredth as commands of `headgate`
(`headgate_studies.testing.trespass_faces`). The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import nats
import pyarrow as pa

from headgate.api.gateway import Gateway
from headgate.api.mqtt.bridge import Bridge
from headgate.api.server import serving
from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric import cancel_all
from headgate.fabric.gated import SUBJECT
from headgate.fabric.listening import Listening
from headgate.fabric.place import choose_port
from headgate.fabric.tokens import API, make_user_token
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.protocol.deals import Dealt, MemberCall
from headgate.service.access import make_token
from headgate.service.http_process import address_of, listen
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.ledger import Tally
from headgate.wire.logs import Log, Logs
from headgate_studies.direct import DirectCommits
from headgate_studies.testing.trespass_faces import (
    heard_as_owner,
    listen_as_owner,
    trespass_by_cli,
    trespass_by_mqtt,
)
from headgate_studies.testing.trespass_grants import GRANT, GrantTrespasser
from headgate_studies.testing.trespass_outcome import TrespassOutcome
from headgate_studies.testing.trespass_roles import trespass_in_roles

DEPLOYMENT: Final = """
sites: {root: {}, leaf: {}}
streams:
  fleet: {root: root, source: {format: generator, kind: fleet, seed: 3}, key: vehicle, event_time: at}
  notes: {root: root, source: {format: nats}, schema: {text: string}}
plan: {fleet: {leaf: root}, notes: {leaf: root}}
limits: {requests: 100000/s, burst: 1000000, waiting: 10000}  # what is refused is refused for its own sake
"""
OWNED: Final = "hers-4711"
FILTER: Final = "speed > $limit AND speed > -4711.25"
_VERBS: Final = (
    "subscribe",
    "move",
    "unsubscribe",
    "context",
    "refine",
    "status",
    "machine",
    "user-add",
    "user-revoke",
    "user-grant",
    "user-ungrant",
    "user-list",
    "user-rotate",
    "device-add",
    "device-list",
    "device-revoke",
    "invite",
    "pause",
    "resume",
    "change",
    "plan-propose",
    "plan-approve",
    "plan-reject",
    "plan-history",
    "tune",
    "lines",
)
_API: Final = ("STREAM.INFO", "STREAM.PURGE", "STREAM.DELETE", "STREAM.MSG.GET", "STREAM.MSG.DELETE", "DIRECT.GET",
               "STREAM.UPDATE", "CONSUMER.CREATE", "STREAM.SNAPSHOT")  # fmt: skip
# Where nothing may have been stored yet: outboxes of sites, inputs, services of sites that serve parts of grids.
_UNUSED: Final = (
    *(f"hg.outbox.{site}.{stream}.{kind}" for site in ("root", "leaf") for stream in ("fleet", "notes")
      for kind in ("rows", "unsent")),
    "hg.in.fleet", "hg.in.notes", "hg.in.notes.unsent", "hg.grid.leaf.eve", "hg.grid.leaf.root",
)  # fmt: skip
_BODIES: Final[tuple[dict[str, Any], ...]] = (
    {"name": OWNED, "stream": "fleet", "site": "leaf", "where": "speed > 0"},
    {"target": 0.5},
    {"changes": ["site leaf upload=1bit/s"]},
    {"values": {"limit": 1.0}},
    {"resolution": {"space": "1/2"}},
)
# What every user may read: that there is a revision, and what of it is its own.
_EVERYBODYS: Final = ("hg.catalog.head", "hg.catalog.runs", "hg.tables.")


class Trespasser:
    """Asks for what is not its own."""

    def __init__(
        self,
        connection: Any,
        http: httpx.AsyncClient,
        paths: list[tuple[str, str]],
        name: str,
        subjects: list[str],
        logs: list[str],
        outcome: TrespassOutcome,
    ) -> None:
        self._connection, self._name, self._subjects, self._logs = connection, name, subjects, logs
        self._http, self._paths = http, paths
        self._random = random.Random(outcome.seed)
        self._outcome = outcome
        self._tally = Tally(1).encode()

    async def ask(self) -> None:
        """One request of any kind."""
        kinds = (
            *(
                self._join,
                self._control,
                self._read,
                self._write,
                self._publish,
                self._api,
                self._impersonate,
                self._lead_astray,
            ),
            self._over_http,
        )
        kind = self._random.choice(kinds)
        self._outcome.requests += 1
        self._outcome.kinds[kind.__name__.strip("_")] += 1
        await kind()

    async def _asked(self, verb: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        subject = f"hg.as.{self._name}.{verb}"
        try:
            answer = await self._connection.request(subject, data, timeout=2, headers=headers)
        except (TimeoutError, nats.errors.Error):
            return
        self.look_at(f"{verb} {data[:80]!r}", answer)

    def look_at(self, what: str, answer: Any) -> None:
        """An answer must be a refusal, or of something that is everybody's."""
        headers = answer.headers or {}
        stored = headers.get("Nats-Subject")
        if "Status" in headers or (stored or "").startswith(_EVERYBODYS):
            clear = answer.data
        elif stored is not None:
            self._outcome.leaked.append(f"{what}: a message of {stored}")
            return
        else:
            document = json.loads(answer.data or b"{}")
            if "error" not in document and not document.keys() <= {"has", "subscriptions"}:
                self._outcome.leaked.append(f"{what}: {answer.data[:100]!r}")
            clear = answer.data
        if OWNED.encode() in clear.replace(f"{OWNED!r}".encode(), b"") or b"4711.25" in clear:
            self._outcome.leaked.append(f"{what}: {clear[:200]!r}")

    async def _control(self) -> None:
        choice = self._random.choice
        request: dict[str, Any] = {"name": OWNED, "site": choice(("root", "leaf")), "values": {"limit": 1.0}}
        request["resolution"] = {"space": "1/2"}
        wanted: dict[str, Any] = {
            "stream": choice(("fleet", "notes")),
            "site": "leaf",
            "owner": choice(("ada", "eve", "")),
        }
        wanted |= choice(
            ({}, {"context_from": OWNED}, {"priority": 5}, {"where": "$limit > 1", "context": {"limit": 2}})
        )
        if wanted["stream"] == "notes" and wanted["owner"] == "eve" and len(wanted) == 3:
            wanted["stream"] = "fleet"
        request |= choice(
            ({}, {"names": [OWNED]}, {"contexts": {OWNED: {"limit": 3.0}}}, {"subscriptions": {OWNED: wanted}})
        )
        request |= {"subscription": wanted, "change": choice((True, False)), "by": "ada", "operator": True}
        verb = choice(_VERBS)
        if verb.startswith(("user-", "device-", "invite")):
            request |= {
                "name": choice(("ada", "eve", "new")),
                "stream": "fleet",
                "subscribe": ["*"],
                "publish": ["*"],
                "reads": ["*"],
                "publishes": ["*"],
            }
        request |= {"changes": ["site leaf upload=1bit/s"], "patch": {"sites": {"leaf": None}}}
        await self._asked(verb, json.dumps(request).encode())

    async def _join(self) -> None:
        """As a member of the group of another: to join, to take rows and to say that they were dealt with."""
        turn, done, leave = self._random.randrange(9), self._random.choice(([], [1, 2, 3])), self._random.random() < 0.3
        name, said = f"{OWNED[:-1]}2", []
        for whose in (OWNED, name):
            each = MemberCall(name=whose, member="one", session="x", turn=turn, done=done, leave=leave, wait_s=0.0)
            try:
                answer = await self._connection.request(f"hg.as.{self._name}.deal", each.encode(), timeout=2)
            except (TimeoutError, nats.errors.Error):
                return
            said.append(Dealt.decode(answer.data))
        if len(said[0].seqs) or said[0].rows is not None or not said[0].error:
            self._outcome.leaked.append("somebody joined another's group")
        if said[0].error.replace(OWNED, name) != said[1].error:
            self._outcome.leaked.append(f"deal: {said[0].error} and {said[1].error}")

    async def _read(self) -> None:
        subject = self._subject()
        form = self._random.choice(("last_by_subj", "next_by_subj"))
        request = {
            form: subject,
            "seq": 1,
            "batch": 256,
            "max_bytes": 1 << 24,
            "subject": subject,
            "seen": {subject: 0},
        }
        await self._asked(self._random.choice(("get", "has", "wait")), json.dumps(request).encode())

    async def _write(self) -> None:
        data = self._random.choice((self._tally, b"x", b"HGS3f39b042 17"))
        headers = {SUBJECT: self._subject(), "Nats-Expected-Last-Subject-Sequence": "0"}
        await self._asked(self._random.choice(("put", "repair")), data, headers)

    def _subject(self) -> str:
        """A subject that there is, or one like it."""
        tokens = self._random.choice(self._subjects).split(".")
        if self._random.random() < 0.3:
            tokens[self._random.randrange(1, len(tokens))] = self._random.choice(("*", ">", "1", "..", "ü", ""))
        return ".".join(tokens)

    async def _over_http(self) -> None:
        """Any operation of the HTTP API about what is another's; what is nobody's must be answered alike."""
        method, path = self._random.choice(self._paths)
        body = self._random.choice((None, {}, {"names": [OWNED]}, {"site": "root"}, {"position": "x"}, *_BODIES))
        answers = []
        for name in (OWNED, f"{OWNED[:-1]}2"):
            place = path.replace("{name}", name).replace("{one}", "root").replace("{other}", "leaf")
            sent = json.loads(json.dumps(body).replace(OWNED, name))
            try:
                answers.append(await self._http.request(method, place, json=None if method == "GET" else sent))
            except httpx.TransportError:  # the server ended a connection that was idle just when it was used again
                self._outcome.kinds["not answered"] += 1
                return
        if method != "GET" and answers[0].is_success:
            self._outcome.leaked.append(f"{method} {path} was done")
        said = [each.text.replace(OWNED[:-1], "").replace("2", "1") for each in answers]
        if "{name}" in path and (answers[0].is_success or said[0] != said[1]):
            self._outcome.leaked.append(f"{method} {path}: {said[0][:200]} and {said[1][:200]}")
        if "4711.25" in answers[0].text:
            self._outcome.leaked.append(f"{method} {path}: {answers[0].text[:200]}")

    async def _publish(self) -> None:
        await self._connection.publish(self._random.choice(self._subjects), self._tally)

    async def _api(self) -> None:
        subject = f"$JS.API.{self._random.choice(_API)}.{self._random.choice(self._logs)}"
        await self._connection.publish(subject, b"{}", reply=self._connection.new_inbox())

    async def _impersonate(self) -> None:
        for subject in (f"hg.as.ada.{self._random.choice(_VERBS)}", f"hg.control.{self._random.choice(_VERBS)}"):
            await self._connection.publish(subject, json.dumps({"name": OWNED}).encode(), reply="_INBOX_eve.x")

    async def _lead_astray(self) -> None:
        """An answer whose way leads into a log, or to a service in another's name."""
        target = self._random.choice([*self._subjects, "hg.as.ada.unsubscribe", "hg.control.unsubscribe"])
        await self._connection.publish("hg.as.eve.get", b'{"last_by_subj": "hg.catalog.head"}', reply=target)


async def campaign(seed: int, requests: int, directory: Path) -> TrespassOutcome:
    """Run one deployment, trespass, and look whether anything came of it."""
    outcome, began = TrespassOutcome(seed), time.monotonic()
    deployment = parse_deployment(DEPLOYMENT, "trespass.yaml", GENERATOR_SCHEMAS)
    state = directory / "state"
    port = choose_port()
    settings = Settings(state_dir=state, listening=Listening(mqtt=("127.0.0.1", port)), job=False)
    async with (
        open_runtime(settings, deployment) as runtime,
        await Client.connect(state_dir=state) as operator,
        _served(operator, state) as address,
        _bridged(runtime, operator),
    ):
        ada = await _client(runtime, operator, directory, "ada", ["fleet"])
        mel = await _client(runtime, operator, directory, "mel", ["fleet"])
        await operator.control("user-grant", name="mel", stream="fleet", **GRANT)
        file = await _credentials(operator, directory, "eve", ["notes"])
        async with ada, mel, _http(address, directory, "eve") as web, _http(address, directory, "mel") as mels_web:
            schema = runtime.control.contexts.snapshot.deployment.streams["fleet"].schema
            within = GrantTrespasser(mel, mels_web, schema, outcome)
            await within.begin()
            inbox = await ada.subscribe(OWNED, stream="fleet", site="leaf", where=FILTER, context={"limit": -1.0})
            committed = await asyncio.to_thread(_commit, runtime)
            await anext(aiter(inbox))
            await inbox.close()
            await within.read_rows(committed)
            before = await _state(runtime, operator)
            connection = await nats.connect(
                runtime.listens_at, user_credentials=file, inbox_prefix=b"_INBOX_eve", error_cb=_quiet
            )
            subjects = [*(each for log in before for each in before[log]), *_UNUSED]
            paths = await _operations(web)
            eve = Trespasser(connection, web, paths, "eve", subjects, list(before), outcome)

            async def heard(message: Any) -> None:
                if not message.subject.startswith("_INBOX_eve."):
                    outcome.leaked.append(f"heard {message.subject}")

            for subject in (">", "hg.>", "_INBOX.>", "_INBOX_ada.>", "$JS.>"):
                await connection.subscribe(subject, cb=heard)
            while outcome.requests < requests:
                # The one who may ask for some of it waits for its answers: it would be refused as asking too often.
                left = requests - outcome.requests
                await asyncio.gather(*(eve.ask() for _ in range(min(15, left))), *([within.ask()] if left > 15 else []))
            await connection.flush()
            await connection.close()
            device = await operator.control("device-add", name="probe", publishes=["notes"])
            await trespass_by_mqtt(port, str(device["password"]), OWNED, subjects, max(requests // 10, 1), outcome)
            prompt = directory / "prompt"
            asked_there = await asyncio.to_thread(
                trespass_by_cli, runtime.listens_at, file, OWNED, max(requests // 100, 4), prompt
            )
            outcome.add(asked_there)
            after = await _state(runtime, operator)
            outcome.changed = [f"{log} changed" for log in before if before[log] != after.get(log)]
            await within.read_rows(committed)
            in_roles = max(requests // 4, 1)
            asked, leaked, may_change = await trespass_in_roles(runtime, subjects, list(before), in_roles, seed)
            outcome.kinds["in a role"], outcome.requests = asked, outcome.requests + asked
            outcome.leaked += leaked
            outcome.changed += _changes(after, await _state(runtime, operator), may_change)
            if not (outcome.leaked or outcome.changed):  # else nobody can say what its owner should get
                hers = await listen_as_owner(port, operator, OWNED, outcome)
                await asyncio.to_thread(_commit, runtime, 1)
                await heard_as_owner(hers, OWNED, outcome)
                await _as_owner(ada, outcome)
    outcome.seconds = time.monotonic() - began
    return outcome


@asynccontextmanager
async def _served(operator: Client, state: Path) -> AsyncIterator[str]:
    """The HTTP API of the deployment, in this process."""
    listening = listen("127.0.0.1:0")
    async with serving(operator, listening, make_token(state), state):
        yield address_of(listening)


def _http(address: str, directory: Path, name: str) -> httpx.AsyncClient:
    """The HTTP API as a user uses it."""
    text = (directory / f"{name}.creds").read_text(encoding="utf-8")
    headers = {"Authorization": f"Bearer {make_user_token(text, API, int(time.time()) + 86_400)}"}
    return httpx.AsyncClient(base_url=address, headers=headers, timeout=60, trust_env=False)


async def _operations(http: httpx.AsyncClient) -> list[tuple[str, str]]:
    """Every operation of the API that ends by itself."""
    document = (await http.get("/openapi.json")).json()
    return [
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
        if not path.endswith("/events")
    ]


def _changes(
    before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]], may_change: Callable[[str], bool]
) -> list[str]:
    """What is stored otherwise than before, but for subjects that a role may write."""
    return [
        f"{subject} of {log} changed"
        for log in before
        for subject in before[log].keys() | after.get(log, {}).keys()
        if before[log].get(subject) != after.get(log, {}).get(subject) and not may_change(subject)
    ]


async def _quiet(_: Exception) -> None:
    """Refusals of the server come one by one."""


async def _as_owner(ada: Client, outcome: TrespassOutcome) -> None:
    """The same requests, by whom they concern."""
    changed = {"stream": "fleet", "site": "leaf", "where": FILTER, "context": {"limit": 1.0}}
    asks: list[tuple[str, dict[str, Any]]] = [
        ("context", {"name": OWNED, "values": {"limit": 0.0}}),
        ("move", {"name": OWNED, "site": "root"}),
        ("subscribe", {"name": OWNED, "subscription": changed, "change": True}),
        ("unsubscribe", {"name": OWNED}),
    ]
    for verb, request in asks:
        try:
            await ada.control(verb, **request)
        except Exception as error:  # noqa: BLE001 - whatever it is, it should not be
            outcome.refused_to_the_owner.append(f"{verb}: {error}")


async def _credentials(operator: Client, directory: Path, name: str, streams: list[str]) -> str:
    answer = await operator.control("user-add", name=name, subscribe=streams)
    path = directory / f"{name}.creds"
    await asyncio.to_thread(path.write_text, answer["credentials"], encoding="utf-8")
    return str(path)


async def _client(runtime: Runtime, operator: Client, directory: Path, name: str, streams: list[str]) -> Client:
    file = await _credentials(operator, directory, name, streams)
    return await Client.connect(runtime.listens_at, user_credentials=file)


def _commit(runtime: Runtime, batch: int = 0) -> pa.RecordBatch:
    rows = generate("fleet", 3, 50 * batch, 50 * batch + 50)
    with DirectCommits(Address(runtime.url, Logs()), "trespass") as direct:
        direct.commit("fleet", rows, batch, 0.0)
    return rows


@asynccontextmanager
async def _bridged(runtime: Runtime, operator: Client) -> AsyncIterator[None]:
    """What carries rows to devices and takes theirs."""
    server = runtime.server
    assert server is not None
    bridge = Bridge(Gateway(operator, server.directory.parent), server.url, server.directory)
    running = asyncio.create_task(bridge.run())
    try:
        yield
    finally:
        await cancel_all([running])


async def _state(runtime: Runtime, operator: Client) -> dict[str, dict[str, Any]]:
    """What is stored, by log and subject; what the service reports by itself as time goes on is left out."""
    found: dict[str, dict[str, Any]] = {"catalog": {f"hg.tables.{runtime.catalog.head()}": runtime.catalog.head()}}
    for name in await operator.fabric.infos("hg.>"):
        subjects = await operator.fabric.subjects(Log(name, (">",), 0), ">")
        own = ("hg.stats.", "hg.mark.", "hg.hold.", "hg.ledger.", "hg.catalog.")
        found[name] = {each: subjects[each] for each in subjects if not each.startswith(own)}
    return found


def main(arguments: list[str]) -> int:
    """Run a campaign and print its outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        outcome = asyncio.run(campaign(given.seed, given.requests, Path(place)))
    for line in outcome.wrong:
        print(line)
    print(json.dumps({**vars(outcome), "wrong": len(outcome.wrong)}))
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
