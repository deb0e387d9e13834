"""How long hostile filters take to be refused, large honest ones to be accepted, and how good cost estimates are.

A filter goes the way of a `subscribe` request up to the catalog's transaction. Times are the best of several runs, as
time on the clock and as time of the processor: on a busy machine they differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.catalog import parse_subscription
from headgate.catalog.classes import definition
from headgate.catalog.profiles import forget_filters
from headgate.errors import HeadgateError
from headgate.filters import filter_cost, parse_filter
from headgate.filters.algebra.normal import build_form
from headgate.filters.cost import ROW_US
from headgate.model import Deployment, Site, Source, Stream
from headgate_studies.bench.hostile_filters import HOSTILE, SCHEMA

_STREAM = Stream("events", SCHEMA, Source("rate", {}), "root")
_DEPLOYMENT = Deployment({"events": _STREAM}, {"root": Site("root")})
_ROWS = 20_000

LARGE = {
    "IN of 1,000 numbers": "n IN (" + ", ".join(str(3 * number) for number in range(1_000)) + ")",
    "IN of 1,000 texts": "s IN (" + ", ".join(f"'k{number}'" for number in range(1_000)) + ")",
    "OR of 500": " OR ".join(f"n = {3 * number}" for number in range(500)),
    "OR of 300 pairs": " OR ".join(f"(n = {number} AND s = 'k{number}')" for number in range(300)),
    "AND of 200 three-way OR": " AND ".join(f"(n != {each} OR x > {each} OR s = 'k{each}')" for each in range(200)),
    "AND of 750 !=": " AND ".join(f"n != {number}" for number in range(750)),
}
"""Filters that are within the limits."""

MEASURED = (
    "n > 3",
    "x > 3.5 AND s = 'a'",
    "h * 2 > 3",
    "s LIKE '%ab%'",
    "s LIKE 'a%b_c%'",
    "s RLIKE '[a-h]+x'",
    "lower(s) = 'a'",
    *LARGE.values(),
)
"""Filters whose estimate is compared with what evaluating them takes."""


def run(repeats: int = 5) -> dict[str, Any]:
    """Print the tables and return the figures; a hostile filter that is accepted is an error."""
    refused = {each.name: _best_ms(partial(_refused, each), repeats) for each in HOSTILE}
    for name, (clock_ms, busy_ms) in refused.items():
        print(f"refused   {name:<42} {clock_ms:>8.2f} ms {busy_ms:>8.2f} ms of CPU")
    accepted = {name: _best_ms(partial(_accept, where), repeats) for name, where in LARGE.items()}
    for name, (clock_ms, busy_ms) in accepted.items():
        print(f"accepted  {name:<42} {clock_ms:>8.2f} ms {busy_ms:>8.2f} ms of CPU")
    ratios = {where: _ratio(where, repeats) for where in MEASURED}
    for where, ratio in ratios.items():
        print(f"estimate  {where[:42]:<42} {ratio:>8.2f} of what was measured")
    return {
        "filters": len(HOSTILE),
        "worst_ms": max(clock for clock, _ in refused.values()),
        "worst_cpu_ms": max(busy for _, busy in refused.values()),
        "refused_ms": {name: clock for name, (clock, _) in refused.items()},
        "accepted_ms": {name: clock for name, (clock, _) in accepted.items()},
        "accepted_cpu_ms": {name: busy for name, (_, busy) in accepted.items()},
        "estimate_lowest": min(ratios.values()),
        "estimate_highest": max(ratios.values()),
    }


def _best_ms(task: Callable[[], object], repeats: int) -> tuple[float, float]:
    clock_ms, busy_ms = [], []
    for _ in range(repeats):
        forget_filters()
        clock_s, busy_s = time.perf_counter(), time.process_time()
        task()
        clock_ms.append((time.perf_counter() - clock_s) * 1e3)
        busy_ms.append((time.process_time() - busy_s) * 1e3)
    return round(min(clock_ms), 2), round(min(busy_ms), 2)


def _subscribe(where: str, profile: str = "relational", context: dict[str, Any] | None = None) -> list[Any]:
    document = {"site": "root", "stream": "events", "where": where, "profile": profile, "context": context or {}}
    return list(parse_subscription("bench", document, _DEPLOYMENT))


def _refused(each: Any) -> None:
    try:
        _subscribe(each.where, each.profile, dict(each.context))
    except HeadgateError:
        return
    raise HeadgateError(f"not refused: {each.name}", hint="limits are in headgate.filters.limits and cost")


def _accept(where: str) -> None:
    (subscription,) = _subscribe(where)
    definition(subscription, _STREAM, ROW_US)
    build_form(parse_filter(where, SCHEMA))


def _ratio(where: str, repeats: int) -> float:
    """The estimate over what was measured, for a batch of `_ROWS` rows."""
    found, batch = parse_filter(where, SCHEMA), _batch()
    _, busy_ms = _best_ms(lambda: found.evaluate(batch), max(3, repeats))
    cost = filter_cost(found.expr).evaluation
    return round((cost.batch_us + cost.row_ns * _ROWS / 1e3) / max(busy_ms * 1e3, 1.0), 2)


def _batch() -> pa.RecordBatch:
    rng = np.random.default_rng(1)
    letters = rng.choice(list("abcdefgh "), (_ROWS, 32))
    columns = {
        "n": rng.integers(0, 3_000, _ROWS),
        "x": rng.random(_ROWS),
        "s": ["".join(row) for row in letters],
        "h": rng.integers(0, 1_000, _ROWS),
        "at": rng.integers(0, 10**15, _ROWS),
        "flag": rng.random(_ROWS) < 0.5,
        "tags": [["a", "b"]] * _ROWS,
        "place": [{"lat": 1.0}] * _ROWS,
    }
    types = {column.name: column.type for column in SCHEMA.columns}
    arrays = [pa.array(values).cast(types[name]) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
