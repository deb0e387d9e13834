"""A deployment to look at: sites on a map, a gridded stream and two others, a thin link, and rows every second.

It runs without Spark: rows are committed from this process as the job commits them. The browser tests and the pictures
of the documentation use it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import yaml

from headgate.api.gateway import Gateway
from headgate.api.server import serving
from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric import Crew
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.service.access import CODE, CODE_S, make_token, signed
from headgate.service.demo.run import Readers
from headgate.service.http_process import address_of, listen
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

SITES: Final = {
    "oslo": {"upload": "256 kbit/s", "download": "20 Mbit/s", "position": [59.9, 10.7]},
    "paris": {"upload": "200 kbit/s", "download": "20 Mbit/s", "position": [48.9, 2.4]},
    "london": {"upload": "160 kbit/s", "download": "20 Mbit/s", "position": [51.5, -0.1]},
    "madrid": {"upload": "128 kbit/s", "download": "10 Mbit/s", "position": [40.4, -3.7]},
    "berlin": {"upload": "128 kbit/s", "download": "10 Mbit/s", "position": [52.5, 13.4]},
    "rome": {"upload": "1 Mbit/s", "download": "10 Mbit/s", "position": [41.9, 12.5]},
    "lyon": {"upload": "128 kbit/s", "download": "10 Mbit/s", "position": [45.8, 4.8]},
    "ship": {"upload": "256 kbit/s", "download": "1 Mbit/s", "position": [56.4, 2.0]},
}
_CONTRACT: Final = {"delay": "2 s", "drop": 0.05, "at_least": 0.8}
SUBSCRIPTIONS: Final[dict[str, dict[str, Any]]] = {
    "weather-archive": {"site": "oslo", "stream": "weather"},
    "weather-berlin": {"site": "berlin", "stream": "weather", "quality": _CONTRACT},
    "weather-map": {"site": "paris", "stream": "weather", "select": ["x", "y", "temp", "wind", "at"]},
    "weather-france": {"site": "lyon", "stream": "weather", "where": "lat between 42 and 51 and lon between -5 and 8"},
    "weather-storms": {"site": "london", "stream": "weather", "where": "wind > 12", "quality": _CONTRACT},
    "weather-quarter": {
        "site": "rome",
        "stream": "weather",
        "resolution": {"space": "1/4"},
        "select": ["x", "y", "temp", "step"],
        "quality": _CONTRACT,
    },
    "weather-ship": {
        "site": "ship",
        "stream": "weather",
        "select": ["x", "y", "wind", "rain", "at"],
        "quality": _CONTRACT,
    },
    "fleet-all": {"site": "paris", "stream": "fleet", "quality": _CONTRACT},
    "fleet-dispatch": {"site": "lyon", "stream": "fleet", "quality": _CONTRACT},
    "fleet-faults": {"site": "berlin", "stream": "fleet", "where": "status = 'fault'", "quality": _CONTRACT},
    "fleet-moving": {"site": "madrid", "stream": "fleet", "where": "status = 'moving' and speed > 10"},
    "fleet-port": {
        "site": "ship",
        "stream": "fleet",
        "policy": {"key": "vehicle", "levels": [{"conflate": "vehicle"}], "digest": [{"max": "speed"}]},
        "quality": _CONTRACT,
    },
    "fleet-tens": {
        "site": "rome",
        "stream": "fleet",
        "where": "vehicle like 'v1_'",
        "select": ["vehicle", "speed"],
        "paths": 2,
    },
    "pulse-ward": {"site": "london", "stream": "pulse", "where": "ward = 'cardiology'", "quality": _CONTRACT},
    "pulse-alarms": {"site": "paris", "stream": "pulse", "where": "alarm", "quality": _CONTRACT},
    "pulse-fast": {"site": "berlin", "stream": "pulse", "where": "heart_rate > 90"},
    "pulse-unread": {"site": "madrid", "stream": "pulse", "where": "spo2 < 95"},
}
RATES: Final = {"weather": 256, "fleet": 120, "pulse": 60}
_AT_A_TIME: Final = 50_000
VEHICLES: Final = 100
"""Fewer than rows a second, so that each is heard of every second."""
_SEEDS: Final = {"weather": 7, "fleet": 11, "pulse": 13}
_ROOTS: Final = {"weather": "oslo", "fleet": "paris", "pulse": "london"}
_KEYS: Final = {"weather": ["x", "y"], "fleet": ["vehicle"], "pulse": ["patient"]}


def crowd(many: int) -> dict[str, dict[str, Any]]:
    """So many further subscriptions to the fleet, each to one vehicle, which nobody reads."""
    places = list(SITES)[:7]
    return {
        f"vehicle-{number:04}": {
            "site": places[number % len(places)],
            "stream": "fleet",
            "where": f"vehicle = 'v{number % VEHICLES:02}'",
            "quality": _CONTRACT,
        }
        for number in range(many)
    }


def document(*, many: bool = False, tuned: bool = False) -> dict[str, Any]:
    """The deployment file, for many further subscriptions if there are any.

    It is `tuned` by the live tuner in periods of some seconds, or planned at home.
    """
    streams: dict[str, Any] = {
        name: {
            "root": _ROOTS[name],
            "source": {"format": "generator", "kind": name, "seed": _SEEDS[name]},
            "key": _KEYS[name],
            "event_time": "at",
            "rate": f"{rate}/s",
        }
        for name, rate in RATES.items()
    }
    axes = {"x": {"column": "x", "size": 32}, "y": {"column": "y", "size": 32}, "time": {"tick": "step"}}
    streams["weather"]["grid"] = axes
    return {
        "streams": streams,
        "sites": SITES,
        "links": {
            "default_delay": "5 ms",
            "pairs": [{"between": ["london", "ship"], "delay": "40 ms", "capacity": "48 kbit/s", "max_age": "4 s"}],
        },
        "options": {"planner": "tuner", "tuner_every": "4 s"} if tuned else {"replan_every": "3 s"},
        "plan": {
            "weather": {"berlin": "oslo", "london": "oslo", "paris": "berlin", "rome": "berlin", "lyon": "paris",
                        "ship": "london"},
            "fleet": {"lyon": "paris", "berlin": "paris", "london": "paris", "madrid": "lyon", "rome": "lyon",
                      "ship": "london"} | ({"oslo": "berlin"} if many else {}),
            "pulse": {"paris": "london", "berlin": "paris", "madrid": "paris"},
        },
        "subscriptions": SUBSCRIPTIONS,
    }  # fmt: skip


@dataclass
class Showcase:
    """A running deployment with its API; `address` and `token` are the API's."""

    runtime: Runtime
    client: Client
    gateway: Gateway
    address: str
    token: str
    readers: Readers
    stop: threading.Event = field(default_factory=threading.Event)

    def login(self) -> str:
        """A link that logs a browser in, once."""
        return f"{self.address}/login?code={signed(self.token, CODE, time.time() + CODE_S)}"


def feeding(address: Address, stop: threading.Event, every_s: float = 1.0) -> None:
    """Commit rows of every stream at its rate until told to stop; one of fifty pulses is a dead letter."""
    sent = dict.fromkeys(RATES, 0)
    batch = 0
    with DirectCommits(address) as direct:
        while not stop.is_set():
            began_s = time.monotonic()
            for name, rate in RATES.items():
                count = max(int(rate * every_s), 1)
                now_us = int(time.time() * 1e6)
                first = sent[name]
                origin_us = now_us - int((first + count) / rate * 1e6)
                options = {"vehicles": VEHICLES} if name == "fleet" else {}
                rows = generate(name, _SEEDS[name], first, first + count, rate=rate, origin_us=origin_us, **options)
                dead = [None if (first + n) % 50 or name != "pulse" else "column 'spo2' is not an int"
                        for n in range(count)]  # fmt: skip
                direct.commit(name, rows, batch, dead=dead)
                sent[name] += count
            batch += 1
            stop.wait(max(began_s + every_s - time.monotonic(), 0.05))


@asynccontextmanager
async def open_showcase(
    directory: Path,
    *,
    nats: str | None = None,
    namespace: str = "hg",
    many: int = 0,
    every_s: float = 1.0,
    tuned: bool = False,
    relays: bool = False,
) -> AsyncIterator[Showcase]:
    """Run the deployment, read its subscriptions, commit rows and serve the API, for as long as the block lasts.

    With `many` subscriptions there are no relays unless `relays` says so, as they would take the processor that the
    page is measured on: what was matched and what is in flight changes for each of them every second, and nothing is
    delivered.
    """
    deployment = parse_deployment(
        yaml.safe_dump(document(many=many > 0, tuned=tuned)), "showcase.yaml", GENERATOR_SCHEMAS
    )
    settings = Settings(state_dir=directory, nats=nats, namespace=namespace, job=False, relays=relays or not many)
    token = make_token(directory)
    listening = listen("127.0.0.1:0")
    async with open_runtime(settings, deployment) as runtime:
        address = Address(runtime.url, Logs(namespace))
        async with (
            await Client.connect(runtime.url, namespace=namespace) as client,
            await Client.connect(runtime.url, namespace=namespace) as served,
            serving(served, listening, token, directory) as gateway,
            Crew() as crew,
        ):
            wanted = list(crowd(many).items())
            for first in range(0, many, _AT_A_TIME):
                await client.subscribe_many(dict(wanted[first : first + _AT_A_TIME]))
            readers = Readers(client)
            readers.start([name for name in SUBSCRIPTIONS if name != "pulse-unread"])
            showcase = Showcase(runtime, client, gateway, address_of(listening), token, readers)
            crew.spawn(asyncio.to_thread(feeding, address, showcase.stop, every_s))
            try:
                yield showcase
            finally:
                showcase.stop.set()
                await readers.stop()


class Stage:
    """A showcase that runs in a thread with an event loop of its own, for whoever drives a browser from this thread."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self._directory = directory
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._done = asyncio.Event()
        self._failure: BaseException | None = None
        self._showcase: Showcase | None = None
        self._thread = threading.Thread(target=self._run, name="showcase", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(60)
        if self._failure is not None:
            raise self._failure

    @property
    def showcase(self) -> Showcase:
        """What runs."""
        assert self._showcase is not None
        return self._showcase

    def ask(self, work: Callable[[Showcase], Any]) -> Any:
        """The result of a coroutine function of the showcase, run in its loop."""
        return asyncio.run_coroutine_threadsafe(work(self.showcase), self._loop).result(120)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._play())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the showcase is told
            self._failure = error
        finally:
            self._ready.set()

    async def _play(self) -> None:
        async with open_showcase(self._directory, **self._settings) as showcase:
            self._showcase = showcase
            self._ready.set()
            await self._done.wait()
