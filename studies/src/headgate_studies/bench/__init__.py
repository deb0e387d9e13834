"""Benchmarks: figures as ratios to a peer or a baseline that was measured in the same run.

Each benchmark is a module with `run(**parameters) -> dict`, which prints its tables while it runs and returns its
figures as one flat JSON-ready dict. May import everything except `cli`, `service` and `testing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark by the module that runs it; imported only when it is run."""

    module: str
    about: str


BENCHMARKS: Mapping[str, Benchmark] = {
    "sources": Benchmark("headgate_studies.bench.sources", "generators, JSON and NATS ranges against the plain ways"),
    "overload": Benchmark(
        "headgate_studies.bench.overload", "live: links that take a tenth of what comes, ledger and budgets"
    ),
    "relay": Benchmark(
        "headgate_studies.bench.relay", "live: what eight relays cost and how long rows take, beside another version"
    ),
    "latency": Benchmark(
        "headgate_studies.bench.latency",
        "live: where the time from an event to its reader goes, beside a version before",
    ),
    "links": Benchmark(
        "headgate_studies.bench.links", "live: how much of a long link relays use, between hosts of the laboratory"
    ),
    "declared": Benchmark(
        "headgate_studies.bench.declared", "live: a declared bandwidth that is wrong, how soon it is seen and followed"
    ),
    "replicas": Benchmark(
        "headgate_studies.bench.replicas", "live: a hot spot of readers on six sites, with replication and without"
    ),
    "hosts": Benchmark(
        "headgate_studies.bench.hosts", "live: every site its own server, the network's counts against our own"
    ),
    "handoff": Benchmark(
        "headgate_studies.bench.handoff", "live: subscriptions move between sites, relays are killed meanwhile"
    ),
    "stalled": Benchmark(
        "headgate_studies.bench.stalled", "live: one subscriber stopped for a minute, its digest, the others"
    ),
    "planning": Benchmark(
        "headgate_studies.bench.planning", "constructions, incremental evaluation, growth to 10,000 sites"
    ),
    "tuner": Benchmark(
        "headgate_studies.bench.tuner_live", "live: the tuner between twelve relays, beside the same in virtual time"
    ),
    "joins": Benchmark(
        "headgate_studies.bench.joins", "a site joins a running deployment of 500 to 50,000 subscriptions"
    ),
    "model": Benchmark("headgate_studies.bench.model", "live: the demo at three bandwidths, drops against the model's"),
    "algebra": Benchmark(
        "headgate_studies.bench.algebra", "filters: covering and merging against brute force, refusals"
    ),
    "filters": Benchmark(
        "headgate_studies.bench.filters", "hostile filters: time to refusal; large ones: time to accept"
    ),
    "matching": Benchmark(
        "headgate_studies.bench.matching", "the compiled index against rtree, DuckDB, Polars, Spark, a scan"
    ),
    "pipeline": Benchmark(
        "headgate_studies.bench.pipeline", "the whole Spark job with 500,000 profiles against no matching"
    ),
    "cluster": Benchmark(
        "headgate_studies.bench.cluster", "a standalone cluster of 1, 2 and 4 executors with 500,000 profiles"
    ),
    "replay": Benchmark(
        "headgate_studies.bench.replay", "1.3 million recorded events through a deployment, against DuckDB"
    ),
    "recovery": Benchmark(
        "headgate_studies.bench.recovery", "live: the Spark driver is killed, where the time to recover goes"
    ),
    "admission": Benchmark(
        "headgate_studies.bench.admission",
        "live: context updates beyond what a Spark job can apply, by method of control",
    ),
    "reduction": Benchmark("headgate_studies.bench.reduction", "policies: filters, link buffers, time and memory"),
    "tuning": Benchmark(
        "headgate_studies.bench.tuning", "overlay tuning: exact benefits, convergence, constraints, traffic"
    ),
    "tables": Benchmark(
        "headgate_studies.bench.tables", "live: a log of tables under constant change, a look at inboxes"
    ),
    "feeds": Benchmark("headgate_studies.bench.feeds", "live: hundreds of feeds, every item once at every subscriber"),
    "grid": Benchmark(
        "headgate_studies.bench.grid", "regions and resolutions: the query tree, Spark joins, load at refusal"
    ),
    "security": Benchmark(
        "headgate_studies.bench.security", "live: what credentials, TLS and the gate cost, beside none of them"
    ),
    "shares": Benchmark(
        "headgate_studies.bench.shares", "a thousand filters of one identity in the index, served whole and in part"
    ),
    "hostile": Benchmark(
        "headgate_studies.bench.hostile_stream", "live: delays of a stream while a user floods it with hostile filters"
    ),
    "many": Benchmark(
        "headgate_studies.bench.many", "live: thousands of subscriptions, what a change costs and what readers get"
    ),
    "roles": Benchmark("headgate_studies.bench.roles", "what an install by role costs on disk and to import"),
}
