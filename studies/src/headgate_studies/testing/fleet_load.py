"""A load for deployments that are being broken: rows committed, read and compared, a subscription moved about.

Nobody mends anything by hand: a batch that is not committed is committed again, a reader that ends by an error goes on
from its position, a request that is not answered is repeated under its id. In the end every reader must have every row
that it asked for, once and in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from headgate.client import BusyError, Client
from headgate.errors import HeadgateError
from headgate.filters import parse_filter
from headgate.model import Deployment
from headgate.pipeline.sources import generate
from headgate.pipeline.worker import Address
from headgate.service.demo.run import drained
from headgate_studies.direct import DirectCommits

BATCH_ROWS: Final = 20
BATCH_S: Final = 0.2
MOVE_S: Final = 1.0
DRAIN_S: Final = 120.0
WANDERER: Final = "wanderer"
"""The subscription that is moved about."""
_SEED: Final = 11
_RATE: Final = 150.0


@dataclass
class Tallies:
    """What a load did, and what was wrong with what came of it."""

    rows: int = 0
    matched: int = 0
    refused_batches: int = 0
    moves: int = 0
    busy: int = 0
    repeated: int = 0
    reader_restarts: int = 0
    lost: int = 0
    twice: int = 0
    out_of_order: int = 0
    ledger_difference: int = 0
    wrong: list[str] = field(default_factory=list)


class FleetLoad:
    """The load of one run. Its stream is `fleet`, from the generator of the same name."""

    def __init__(self, client: Client, deployment: Deployment, address: Address, seed: int, tallies: Tallies) -> None:
        self.client = client
        self.deployment = deployment
        self.address = address
        self.random = random.Random(seed)
        self.tallies = tallies
        self.seqs: dict[str, list[int]] = {name: [] for name in deployment.subscriptions}
        self.stopping = False
        self.moved: list[str] = []

    async def status(self) -> dict[str, Any]:
        """The status of the deployment, with its ledger."""
        return await self.client.control("status")

    async def read(self, name: str) -> None:
        """Read a subscription; a reader that ends by an error goes on from its position, as an application would."""
        position: str | None = None
        while True:
            try:
                async for delivery in await self.client.subscribe(name, position=position):
                    self.seqs[name] += delivery.seqs.tolist()
                    position = delivery.position
            except HeadgateError:
                self.tallies.reader_restarts += 1
                await asyncio.sleep(0.2)

    async def feed(self) -> None:
        """Commit a batch every so often, and again until it is in."""
        with DirectCommits(self.address, "machines") as direct:
            batch = 0
            while not self.stopping:
                start = batch * BATCH_ROWS
                rows = generate("fleet", _SEED, start, start + BATCH_ROWS, rate=_RATE)
                try:
                    await asyncio.to_thread(direct.commit, "fleet", rows, batch)
                    batch += 1
                    self.tallies.rows = batch * BATCH_ROWS
                except (HeadgateError, TimeoutError):
                    self.tallies.refused_batches += 1
                await asyncio.sleep(BATCH_S)

    async def move(self) -> None:
        """Move a subscription from site to site; a request that is not answered is repeated under its id."""
        while not self.stopping:
            await asyncio.sleep(MOVE_S)
            here = self.moved[-1] if self.moved else self.deployment.subscriptions[WANDERER].site
            site = self.random.choice([each for each in self.deployment.sites if each != here])
            identity = f"move-{len(self.moved)}"
            while True:
                try:
                    await self.client.control("move", request=identity, name=WANDERER, site=site)
                    break
                except BusyError:
                    self.tallies.busy += 1
                except HeadgateError:
                    self.tallies.repeated += 1
                await asyncio.sleep(0.2)
            self.moved.append(site)

    def reached(self, name: str) -> int:
        """The last row that a subscription got."""
        return self.seqs[name][-1] if self.seqs[name] else 0

    def balance(self, status: dict[str, Any]) -> None:
        """See that the ledger has no difference."""
        for name, each in status["subscriptions"].items():
            if each["difference"]:
                worst = max(self.tallies.ledger_difference, abs(each["difference"]))
                self.tallies.ledger_difference = worst
                self.tallies.wrong.append(f"{name}: the ledger's difference is {each['difference']}")

    async def drain(self) -> None:
        """Wait until everything that was matched is acknowledged."""
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline:
            with contextlib.suppress(HeadgateError):
                status = await self.status()
                self.balance(status)
                if drained(status):
                    return
            await asyncio.sleep(0.2)
        self.tallies.wrong.append("not everything was delivered in the end")

    def compare(self) -> None:
        """Every reader has every matched row once and in order."""
        everything = generate("fleet", _SEED, 0, self.tallies.rows, rate=_RATE)
        schema = self.deployment.streams["fleet"].schema
        for name, each in self.deployment.subscriptions.items():
            expected = (np.flatnonzero(parse_filter(each.where, schema).evaluate(everything)) + 1).tolist()
            got = self.seqs[name]
            self.tallies.matched += len(expected)
            missing, twice = len(set(expected) - set(got)), len(got) - len(set(got))
            disorder = sum(one > other for one, other in itertools.pairwise(got))
            self.tallies.lost += missing
            self.tallies.twice += twice
            self.tallies.out_of_order += disorder
            if got != expected:
                found = f"{missing} missing, {twice} twice, {disorder} out of order"
                self.tallies.wrong.append(f"{name}: {len(got)} rows of {len(expected)}, {found}")
        self.tallies.moves = len(self.moved)
