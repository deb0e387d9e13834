"""Context updates faster than a Spark job can apply them: what each method of control holds, sheds and gets wrong.

A deployment for every method: the service, and a Spark job over a stream of vehicles, without relays, whose work would
be measured too. Its subscribers have filters that are dear to bind, and for some seconds their contexts are set by a
client at a multiple of the rate that one core can apply. Latency is the age of the oldest row when its micro-batch is
committed. Afterwards every batch is matched again, in order, with the contexts that held when it was pinned: the errors
that this finds are put beside those that the job has estimated while it ran.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from headgate.client import Client
from headgate.fabric import EmbeddedServer, SyncFabric
from headgate.matching.admission import ErrorEstimate
from headgate.pipeline.errors import Errors
from headgate.pipeline.query import QuerySettings, start_query
from headgate.pipeline.worker import Address
from headgate.protocol.records import Pin
from headgate.protocol.reports import JobReport
from headgate.service.contexts import FOLD_AFTER
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate.wire.manifest import decode_manifest
from headgate_studies.bench.admission_check import CommittedBatch, exact_errors, read_batches
from headgate_studies.bench.admission_load import Load, adaptive_figures, deployment_of, update_cost_s

METHODS: Final = ("shed updates", "shed both", "hybrid")
_WARM: Final = 3
_CALM_S: Final = 4.0
_CALM_UPDATES: Final = 40
_AFTER_S: Final = 3.0
_EVERY_S: Final = 0.1
_DRAIN_S: Final = 90.0


def run(
    subscribers: int = 1500,
    rows: int = 400,
    overload: float = 2.0,
    burst_s: float = 4.0,
    bound_s: float | None = None,
    methods: Sequence[str] = METHODS,
    seed: int = 1,
    master: str = "local[*]",
) -> dict[str, Any]:
    """`rows` a second against `subscribers`, whose contexts change `overload` times as fast as a core can apply.

    `traditional` comes first. Without a bound it is twice the age of the oldest row in its last micro-batches before
    the burst: what this machine could hold is not known beforehand.
    """
    from headgate_studies.session import make_session

    cost_s = update_cost_s(subscribers, seed)
    # Past FOLD_AFTER changes the catalog takes the values over, which would be measured too.
    most = (FOLD_AFTER - 100 - subscribers) / burst_s
    load = Load(subscribers, rows, min(overload / cost_s, most), burst_s, bound_s or 0.0, seed)
    print(f"an update takes {cost_s * 1e6:.0f} us, so {load.updates:,.0f} a second come for {burst_s:g} s")
    figures: dict[str, Any] = {"update_us": round(cost_s * 1e6, 1), "updates_per_s": round(load.updates)}
    spark = make_session("bench admission", master)
    try:
        with tempfile.TemporaryDirectory() as place, EmbeddedServer(Path(place) / "nats") as server:
            for number, method in enumerate(("traditional", *methods)):
                found = asyncio.run(_one(spark, server.url, Path(place), f"m{number}", method, load))
                if not load.bound_s:
                    load = replace(load, bound_s=round(2 * found["calm_latency_s"], 1))
                found["batches_within_bound"] = sum(age <= load.bound_s for age in found["latencies_s"])
                print(f"  {found['batches_within_bound']} within the bound of {load.bound_s:g} s", flush=True)
                figures |= {f"{method.replace(' ', '_')}_{name}": value for name, value in found.items()}
    finally:
        spark.stop()
    figures |= {"bound_s": load.bound_s, **adaptive_figures(seed)}
    figures["ledger_difference"] = sum(value for name, value in figures.items() if name.endswith("_difference"))
    if figures["ledger_difference"]:
        raise AssertionError(f"the ledgers differ by {figures['ledger_difference']}")
    return figures


async def _one(spark: Any, url: str, place: Path, namespace: str, method: str, load: Load) -> dict[str, Any]:
    """One method through the burst."""
    settings = Settings(place / namespace, nats=url, namespace=namespace, job=False, relays=False)
    address = Address(url, Logs(namespace))
    seen = _Seen()
    async with (
        open_runtime(settings, deployment_of(method, load)) as runtime,
        await Client.connect(url, namespace=namespace) as client,
    ):
        with SyncFabric(url, address.logs) as fabric:
            stream = runtime.catalog.snapshot().deployment.streams["fleet"]
            query = await asyncio.to_thread(
                start_query,
                spark,
                stream,
                address,
                fabric,
                place / namespace / "checkpoint",
                QuerySettings(told=partial(seen.take, fabric)),
            )
            try:
                began = await _first(fabric, client, load)
                sent = await _burst(client, load)
                await asyncio.sleep(_AFTER_S)
                await _caught_up(fabric, time.time())
            finally:
                await asyncio.to_thread(query.stop)
            difference = (await runtime.status())["streams"]["fleet"]["difference"]
            batches = await asyncio.to_thread(read_batches, fabric, "fleet", stream.schema, seen.heads, _WARM)
            truth = await asyncio.to_thread(exact_errors, fabric, "fleet", batches, load)
    return {**_figures(method, batches, began, seen, truth, sent), "difference": abs(difference)}


@dataclass
class _Seen:
    """Of every batch the last update that there was when it was pinned, and the errors that had been estimated."""

    heads: dict[int, int] = field(default_factory=dict)
    errors: dict[int, Errors] = field(default_factory=dict)

    def take(self, fabric: SyncFabric, report: JobReport) -> None:
        """Read what holds after a batch, in the driver."""
        stored = fabric.last(fabric.logs.state, fabric.logs.pin("fleet"))
        assert stored is not None
        assert report.batch is not None
        self.heads[report.batch] = Pin.decode(stored.data).head
        self.errors[report.batch] = Errors.read(fabric, "fleet")

    def estimates(self, first: int, last: int) -> tuple[ErrorEstimate, ErrorEstimate]:
        """Matches missed and wrong in batches [first, last], as the job estimates them."""
        before, after = self.errors.get(first - 1, Errors()), self.errors[last]
        return (
            ErrorEstimate.of(after.missed - before.missed, after.missed_var - before.missed_var),
            ErrorEstimate.of(after.wrong - before.wrong, after.wrong_var - before.wrong_var),
        )


async def _first(fabric: SyncFabric, client: Client, load: Load) -> int:
    """The number of batches that are committed once the job runs smoothly; what came before is not measured.

    The rows that gathered while the job started are done first: until rows no longer get younger from batch to batch.
    A few updates come before the burst, as they do in quiet times: the job knows then what one takes.
    """
    await asyncio.to_thread(_until, lambda: _manifests(fabric) >= _WARM)
    lags = [math.inf]

    def steady() -> bool:
        stored = fabric.last(fabric.logs.root("fleet"), fabric.logs.commit("fleet"))
        assert stored is not None
        lag = decode_manifest(stored.data).lag_ms
        if lag != lags[-1]:
            lags.append(lag)
        return lags[-1] >= 0.8 * lags[-2] if len(lags) > 2 else False

    await asyncio.to_thread(_until, steady)
    for number in range(_CALM_UPDATES):
        await client.set_contexts(load.contexts(-number - 1, -number))
        await asyncio.sleep(_CALM_S / _CALM_UPDATES)
    return await asyncio.to_thread(_manifests, fabric)


def _manifests(fabric: SyncFabric) -> int:
    stored = fabric.last(fabric.logs.root("fleet"), fabric.logs.commit("fleet"))
    if stored is None:
        return 0
    return decode_manifest(stored.data).batch + 1


def _until(done: Any) -> None:
    deadline = time.monotonic() + _DRAIN_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the job was not ready after {_DRAIN_S} s")
        time.sleep(0.1)


async def _burst(client: Client, load: Load) -> int:
    """Set contexts at the load's rate until the burst is over; how many were set."""
    began, sent = time.monotonic(), 0
    while (spent := time.monotonic() - began) < load.burst_s:
        due = int(spent * load.updates)
        if due > sent:
            await client.set_contexts(load.contexts(sent, due))
            sent = due
        await asyncio.sleep(_EVERY_S)
    return sent


async def _caught_up(fabric: SyncFabric, since: float) -> None:
    """Wait until a batch is committed whose rows are younger than the end of the burst."""

    def done() -> bool:
        stored = fabric.last(fabric.logs.root("fleet"), fabric.logs.commit("fleet"))
        if stored is None:
            return False
        manifest = decode_manifest(stored.data)
        return manifest.time_ms - manifest.lag_ms > since * 1000

    await asyncio.to_thread(_until, done)


def _figures(
    method: str,
    batches: Sequence[CommittedBatch],
    began: int,
    seen: _Seen,
    truth: tuple[int, int],
    sent: int,
) -> dict[str, Any]:
    ages = [batch.oldest_s for batch in batches if batch.number >= began]
    calm_s = statistics.median([batch.oldest_s for batch in batches if batch.number < began][-3:])
    found: dict[str, Any] = {
        "updates": sent,
        "updates_shed": sum(batch.shed_updates for batch in batches),
        "rows": sum(batch.rows for batch in batches),
        "rows_shed": sum(batch.shed for batch in batches),
        "peak_latency_s": round(max(ages), 2),
        "calm_latency_s": round(calm_s, 2),
        "batches": len(ages),
        "latencies_s": [round(age, 2) for age in ages],
    }
    print(
        f"{method}: oldest row {max(ages):.2f} s in {len(ages)} batches, before the burst {calm_s:.2f} s; shed "
        f"{found['updates_shed']:,} of {sent:,} updates and {found['rows_shed']:,} of {found['rows']:,} rows",
        flush=True,
    )
    guesses = seen.estimates(batches[0].number, batches[-1].number)
    for kind, exact, guess in zip(("false_negatives", "false_positives"), truth, guesses, strict=True):
        inside = math.floor(guess.low) <= exact <= math.ceil(guess.high)
        found |= {kind: exact, f"{kind}_estimated": round(guess.errors), f"{kind}_inside": inside}
        print(
            f"  {kind.replace('_', ' ')}: {exact:,}, estimated {guess.errors:,.0f} "
            f"({guess.low:,.0f} to {guess.high:,.0f})",
            flush=True,
        )
    return found
