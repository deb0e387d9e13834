"""Trespassing within one's own stream: a user who may have some rows and columns asks for the others at random.

`GrantTrespasser` subscribes to, changes and reads subscriptions of its own, naming columns that it may not see wherever
a request can name one, over NATS and over HTTP. No answer may hold a value of a hidden column, tell a hidden column
from one that does not exist, or deliver a row that the grant keeps back.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any, Final

import httpx

from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.filters import parse_filter
from headgate.model import Schema
from headgate_studies.testing.trespass_outcome import TrespassOutcome

GRANT: Final[dict[str, Any]] = {"where": "fuel < 50", "columns": ["vehicle", "speed"]}
_HIDDEN: Final = ("fuel", "lat", "lon", "heading")
_NOWHERE: Final = "nosuchcolumn"
_SHAPES: Final = (
    {"where": "{} > 50"},
    {"where": "speed > -1 AND ({} IS NULL OR speed < 0)"},
    {"where": "CASE WHEN {} > 50 THEN true ELSE false END"},
    {"where": "speed > -1", "select": ["vehicle", "{}"]},
    {"where": "speed > -1", "policy": {"levels": [{"conflate": "{}"}]}},
    {"where": "speed > -1", "policy": {"levels": [{"every": 2}], "digest": ["max({})"]}},
    {"where": "speed > -1", "policy": {"levels": [{"drop where": "{} > 50"}]}},
    {"where": "{} > $limit", "context": {"limit": 50}},
    {"where": "{}: bus", "profile": "keywords"},
)


class GrantTrespasser:
    """Asks for rows and columns that its grant keeps back; `schema` is that of the whole stream."""

    def __init__(self, client: Client, http: httpx.AsyncClient, schema: Schema, outcome: TrespassOutcome) -> None:
        self._client, self._http, self._outcome = client, http, outcome
        self._random = random.Random(outcome.seed + 1)
        self._granted = parse_filter(GRANT["where"], schema)
        self._paths: list[tuple[str, str]] = []
        self.read = 0

    async def begin(self) -> None:
        """Make a subscription of its own, which it may have."""
        await (await self._client.subscribe("within", stream="fleet", site="leaf", where="speed > -1")).close()
        document = (await self._http.get("/openapi.json")).json()
        self._paths = [
            (method.upper(), path)
            for path, operations in document["paths"].items()
            for method in operations
            if not path.endswith(("/events", "/rows"))
        ]

    async def ask(self) -> None:
        """One request of any kind."""
        kind = self._random.choice((self._name_hidden, self._name_hidden, self._over_http, self._ask_why))
        self._outcome.requests += 1
        self._outcome.kinds[f"grant {kind.__name__.strip('_')}"] += 1
        await kind()

    async def _name_hidden(self) -> None:
        """A hidden column and one that does not exist must be answered in the same words."""
        shape, column = self._random.choice(_SHAPES), self._random.choice(_HIDDEN)
        way = self._random.choice(("", "/api/subscriptions", "/api/preview"))
        answers = []
        for name in (column, _NOWHERE):
            wish = {"stream": "fleet", "site": "leaf", **json.loads(json.dumps(shape).replace("{}", name))}
            answers.append(re.sub(rf"\b{name}\b", "X", await self._asked(wish, way)))
        if answers[0] != answers[1]:
            self._outcome.leaked.append(f"{column} is told from a column that does not exist: {answers}")
        self._look_at(f"{shape} with {column}", answers[0])

    async def _asked(self, wish: dict[str, Any], way: str) -> str:
        """The refusal of a subscription, made or previewed over HTTP or else made over NATS; accepted it is a leak."""
        if way:
            answer = await self._http.post(way, json={"name": "more", **wish})
            accepted, said = answer.is_success, answer.json().get("detail", answer.text)
        else:
            try:
                accepted, said = bool(await self._client.control("subscribe", name="more", subscription=wish)), ""
            except HeadgateError as error:
                accepted, said = False, str(error)
        if accepted:
            self._outcome.leaked.append(f"accepted: {wish}")
        if accepted and way != "/api/preview":
            await self._client.control("unsubscribe", name="more")
        return str(said)

    async def _over_http(self) -> None:
        """Any operation, about its own subscription, its stream, or what is another's."""
        method, path = self._random.choice(self._paths)
        for part in ("{name}", "{one}", "{other}"):
            path = path.replace(part, self._random.choice(("within", "fleet", "hers-4711", "leaf")))
        owns = "/subscriptions/within" in path
        if method != "GET" and owns:
            return  # its own to change
        body = self._random.choice((None, {}, {"names": ["hers-4711"]}, {"site": "root"}, {"changes": ["x"]}))
        answer = await self._http.request(method, path, json=None if method == "GET" else body)
        if method != "GET" and answer.is_success:
            self._outcome.leaked.append(f"{method} {path} was done")
        self._look_at(f"{method} {path}", answer.text)

    async def _ask_why(self) -> None:
        column = self._random.choice((*_HIDDEN, "speed"))
        question = self._random.choice(({"seq": self._random.randint(1, 50)}, {"where": f"{column} > 50"}))
        answer = await self._http.get("/api/subscriptions/within/why", params=question)
        row = answer.json().get("row") or {}
        if set(row) - {"vehicle", "speed"}:
            self._outcome.leaked.append(f"why {question}: {sorted(row)}")
        self._look_at(f"why {question}", answer.text.replace(column, ""))

    def _look_at(self, what: str, said: str) -> None:
        if any(f'"{name}' in said or f"'{name}" in said for name in _HIDDEN):
            self._outcome.leaked.append(f"{what}: {said[:200]}")

    async def read_rows(self, committed: Any) -> None:
        """Everything that it is delivered must be of the grant, and all of the grant must be delivered."""
        expected = committed.filter(self._granted.evaluate(committed)).select(["vehicle", "speed"])
        found: list[dict[str, Any]] = []
        inbox = await self._client.subscribe("within", peek=True)
        async for delivery in inbox:
            found += delivery.rows.to_pylist()
            if delivery.upto >= committed.num_rows:
                break
        await inbox.close()
        self.read = len(found)
        if found != expected.to_pylist():
            self._outcome.leaked.append(f"{len(found)} rows were delivered, {expected.num_rows} were expected")
