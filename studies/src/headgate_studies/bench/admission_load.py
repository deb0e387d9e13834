"""The load of `headgate bench admission`: subscribers whose filters are dear to bind, and how their contexts change."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.catalog import parse_deployment
from headgate.filters import context_types, parse_filter
from headgate.matching.definitions import ClassDefinition, ClassGroup, RowReading, grouped
from headgate.matching.live import LiveIndex
from headgate.model import Deployment, Schema
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate_studies.workloads.matching import FEW_MATCHES, MatchingWorkload

WHERE: Final = (
    "(speed BETWEEN $speed AND $speed + 2 OR heading BETWEEN $heading AND $heading + 4) "
    "AND (lat > $lat OR lon > $lon) AND (fuel < $fuel OR fuel > $fuel + 0.2)"
)
"""Three alternatives make eight boxes, which are compiled for each subscriber by itself."""


def context(rng: np.random.Generator) -> dict[str, float]:
    """A subscriber's values."""
    lows = {"speed": (0, 110), "heading": (0, 350), "lat": (47, 55), "lon": (6, 15), "fuel": (0.1, 0.7)}
    return {name: round(float(rng.uniform(*span)), 3) for name, span in lows.items()}


@dataclass(frozen=True, slots=True)
class Load:
    """So many subscribers and rows a second; for `burst_s` so many updates a second, of the subscribers in turn."""

    subscribers: int
    rows: int
    updates: float
    burst_s: float
    bound_s: float
    seed: int

    def contexts(self, start: int, stop: int) -> dict[str, dict[str, float]]:
        """The updates of these numbers; below 0 are those before the burst."""
        return {
            f"s{number % self.subscribers}": context(np.random.default_rng([self.seed, number + 1_000]))
            for number in range(start, stop)
        }


def deployment_of(method: str, load: Load) -> Deployment:
    """Two sites, the stream, a subscription to everything that is read, and the subscribers."""
    rng = np.random.default_rng([load.seed, 1])
    admission = "{method: traditional}" if method == "traditional" else f"{{method: {method}, bound: {load.bound_s} s}}"
    wants = "".join(
        f"  s{k}: {{site: edge, stream: fleet, where: {WHERE!r}, context: {context(rng)}}}\n"
        for k in range(load.subscribers)
    )
    text = f"""
streams:
  fleet:
    root: source
    source: {{format: generator, kind: fleet, seed: {load.seed}, rate: {load.rows}}}
    event_time: at
    rate: {load.rows}/s
    admission: {admission}
sites:
  source: {{}}
  edge: {{}}
plan:
  fleet: {{edge: source}}
subscriptions:
  everything: {{site: edge, stream: fleet}}
{wants}
"""
    return parse_deployment(text, "admission.yaml", GENERATOR_SCHEMAS)


def update_cost_s(subscribers: int, seed: int, tries: int = 300) -> float:
    """CPU seconds that binding one of these contexts takes, in bulk."""
    rng = np.random.default_rng(seed)
    schema = GENERATOR_SCHEMAS["fleet"]
    compiled = parse_filter(WHERE, schema, context_types(context(rng)))
    classes = [ClassDefinition(k, WHERE, context(rng)) for k in range(min(subscribers, 1000))]
    index = LiveIndex.build(RowReading(schema, lambda _: compiled), grouped(classes))
    spent = []
    for _ in range(3):
        new = {k: context(rng) for k in range(tries)}
        began = time.thread_time()
        index.bind(new)
        spent.append((time.thread_time() - began) / tries)
    return float(np.median(spent))


def adaptive_figures(seed: int, profiles: int = 50_000, batches: int = 8) -> dict[str, Any]:
    """What an index of ranges that is tightened never, before every batch, or by the ratio, takes for a micro-batch."""
    workload = MatchingWorkload(profiles=profiles, narrowest=FEW_MATCHES.narrowest)
    rng = np.random.default_rng(seed)
    contexts = workload.contexts(rng)
    names = [f"c{k}" for k in range(workload.attributes)]
    schema = Schema.of(dict.fromkeys(workload.names, "double"))
    pairs = zip(workload.names, names, workload.widths.tolist(), strict=True)
    where = " AND ".join(f"{name} BETWEEN ${c} - {width / 2!r}D AND ${c} + {width / 2!r}D" for name, c, width in pairs)
    compiled = parse_filter(where, schema, dict.fromkeys(names, pa.float64()))
    table = pa.RecordBatch.from_arrays([pa.array(np.ascontiguousarray(each)) for each in contexts.T], names=names)
    group = ClassGroup(where, np.arange(profiles, dtype=np.uint32), table)
    figures: dict[str, Any] = {}
    for rows, updates in ((500, 25_000), (50_000, 25_000)):
        for mode in ("never", "always", "adaptive"):
            index = LiveIndex.build(RowReading(schema, lambda _: compiled), [group])
            spent = _batches(index, workload, contexts.copy(), names, (rows, updates), mode, batches)
            figures[f"{mode}_tight_ms_at_{rows}_rows_{updates}_updates"] = spent
            print(f"{rows:,} rows and {updates:,} updates a batch, tightened {mode}: {spent:.2f} ms to match")
    return figures


def _batches(
    index: LiveIndex,
    workload: MatchingWorkload,
    contexts: np.ndarray,
    names: list[str],
    sizes: tuple[int, int],
    mode: str,
    batches: int,
) -> float:
    """The median of what matching takes, milliseconds; the same rows and updates for every mode."""
    rng = np.random.default_rng(7)
    rows, updates = sizes
    spent = []
    for _ in range(batches):
        ids = rng.choice(len(contexts), updates, replace=False)
        contexts[ids, rng.integers(0, len(names), updates)] = rng.uniform(0, 10_000, updates)
        index.bind({int(each): dict(zip(names, contexts[each].tolist(), strict=True)) for each in ids})
        batch = workload.batch(workload.messages(rng, rows))
        assert index.boxes is not None
        began = time.thread_time()
        if mode == "always":
            index.boxes.tighten()
        index.boxes.match(batch, adapt=mode == "adaptive")
        spent.append(time.thread_time() - began)
    return round(1e3 * float(np.median(spent[len(spent) // 2 :])), 2)
