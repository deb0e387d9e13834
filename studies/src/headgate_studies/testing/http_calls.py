"""Calls that Schemathesis makes up from the OpenAPI document of a running API: none may be answered by 5xx.

``python -m headgate_studies.testing.http_calls --calls 10000`` starts a deployment without a job, serves its API and
calls it. Each operation gets its share of the calls, valid and invalid ones; the answers are counted by status. It ends
with an error at the first answer by 5xx, and else with one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import yaml

from headgate.api.server import serving
from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.service.access import make_token
from headgate.service.http_process import address_of, listen
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

_TURNS: Final = 10
DOCUMENT: Final[dict[str, Any]] = {
    "sites": {"root": {}, "mid": {}, "leaf": {}},
    "streams": {
        "fleet": {
            "root": "root",
            "source": {"format": "generator", "kind": "fleet", "seed": 3, "limit": 300},
            "key": "vehicle",
            "event_time": "at",
        },
        "readings": {
            "root": "root",
            "source": {"format": "nats"},
            "schema": {"station": "string", "level": "double", "at": "timestamp"},
            "key": "station",
        },
    },
    "subscriptions": {
        "all": {"stream": "fleet", "site": "leaf"},
        "mine": {"stream": "fleet", "site": "mid", "where": "speed > $least", "context": {"least": 10}},
        "levels": {"stream": "readings", "site": "leaf"},
    },
}
_NAMES: Final = {"name": ["all", "mine", "levels", "fleet", "readings", "root", "mid", "leaf"]}
_TIMEOUT_S: Final = 60
_WAIT_S: Final = 0.1
_NO_HTTP: Final = 400


def call(
    address: str, token: str, document: dict[str, Any], calls: int, seed: int, *, part: int = 1
) -> Counter[tuple[str, int]]:
    """Make so many calls, and count the answers by operation and status; a 5xx raises with the call that got it.

    Only one of `part` operations is called: making up calls for an operation takes a while before the first.
    """
    import hypothesis
    import requests
    import schemathesis
    from hypothesis import HealthCheck
    from hypothesis import strategies as st
    from schemathesis.core.result import Ok

    schema = schemathesis.openapi.from_dict(document)
    operations: list[Any] = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    operations = operations[seed % part :: part]
    each = max(calls // len(operations), 1)
    counts: Counter[tuple[str, int]] = Counter()
    session = requests.Session()
    session.trust_env = False

    def made(case: Any, name: str | None, label: str) -> None:
        if name is not None and "name" in (case.path_parameters or {}):
            case.path_parameters["name"] = name
        if isinstance((case.query or {}).get("wait_s"), int | float) and case.query["wait_s"] > _WAIT_S:
            case.query["wait_s"] = _WAIT_S  # otherwise most of the time goes into waiting for rows
        arguments = case.as_transport_kwargs(base_url=address)
        # Schemathesis also makes up tokens: those are refused, and say nothing of what is behind them.
        arguments["headers"] = {**arguments.get("headers", {}), "Authorization": f"Bearer {token}"}
        try:
            answer = session.request(**arguments, stream=True, timeout=_TIMEOUT_S, allow_redirects=False)
        except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError):
            return  # no client can send it
        with answer:
            counts[label, answer.status_code] += 1
            if answer.status_code == _NO_HTTP and "json" not in answer.headers.get("content-type", ""):
                return  # not even HTTP: the server has closed the connection before anybody saw the request
            text = "" if "event-stream" in answer.headers.get("content-type", "") else answer.text
            assert answer.status_code < 500, f"{label}: {answer.status_code} {text[:500]}\n{arguments}"
            if answer.status_code >= 400:
                assert json.loads(text)["status"] == answer.status_code, text[:500]

    for number, operation in enumerate(operations):
        for share, mode in enumerate((schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)):
            strategy = st.tuples(
                operation.as_strategy(generation_mode=mode), st.one_of(st.none(), st.sampled_from(_NAMES["name"]))
            )

            def run(case: tuple[Any, str | None]) -> None:
                made(*case, operation.label)  # noqa: B023 - it is run at once

            settings = hypothesis.settings(
                max_examples=max(each // 2, 1),
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[hypothesis.Phase.generate],
            )
            seeded = hypothesis.seed(seed + 2 * number + share)
            try:
                settings(seeded(hypothesis.given(strategy)(run)))()
            except hypothesis.errors.Unsatisfiable:  # an operation that cannot be called wrongly
                continue
    return counts


async def campaign(calls: int, seed: int, directory: Path) -> Counter[tuple[str, int]]:
    """Start a deployment with its API, and call it."""
    deployment = parse_deployment(yaml.safe_dump(DOCUMENT), "calls.yaml", GENERATOR_SCHEMAS)
    settings = Settings(state_dir=directory, job=False)
    async with open_runtime(settings, deployment) as runtime:
        with DirectCommits(Address(runtime.url, Logs())) as direct:
            await asyncio.to_thread(direct.commit, "fleet", generate("fleet", 3, 0, 300), 0)
        counts: Counter[tuple[str, int]] = Counter()
        for turn in range(_TURNS):  # some operations have fewer different calls than their share
            counts += await serve_and_call(runtime.url, "hg", directory, calls - counts.total(), seed + 1000 * turn)
            if counts.total() >= calls:
                break
        return counts


async def serve_and_call(
    url: str, namespace: str, directory: Path, calls: int, seed: int, part: int = 1
) -> Counter[tuple[str, int]]:
    """Serve the API of a running deployment, and call it from a thread."""
    token = make_token(directory)
    listening = listen("127.0.0.1:0")
    address = address_of(listening)
    async with (
        await Client.connect(url, namespace=namespace) as client,
        serving(client, listening, token, directory) as gateway,
    ):
        document = gateway.describe()
        return await asyncio.to_thread(call, address, token, document, calls, seed, part=part)


def main() -> None:
    """Run a campaign and print how often each operation was answered by which status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        counts = asyncio.run(campaign(given.calls, given.seed, Path(directory)))
    by_status: Counter[int] = Counter()
    for (label, status), count in sorted(counts.items()):
        by_status[status] += count
        print(f"{label:60} {status} {count:6,}")
    seconds = round(time.monotonic() - began_s, 1)
    answers = {str(status): count for status, count in sorted(by_status.items())}
    print(json.dumps({"calls": counts.total(), "seconds": seconds, "answers": answers, "server_errors": 0}))


if __name__ == "__main__":
    main()
