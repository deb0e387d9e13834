"""Metrics of processes, of what admission control has cost, of jitter, and of contracts that are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from headgate.model import Deployment
from headgate.protocol.reports import ProcessReport
from headgate.wire.histogram import Histogram, upper_ms
from headgate.wire.ledger import Tally
from headgate.wire.snapshot import Snapshot

# Upper ends of the buckets of delays, in seconds.
_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

Labels = tuple[str, ...]
Rows = Iterable[tuple[Labels, float | None]]


def gauge(name: str, about: str, labels: Labels, rows: Rows) -> Metric:
    """A gauge; values that are not known are left out."""
    return _filled(GaugeMetricFamily(f"headgate_{name}", about, labels=labels), rows)


def counter(name: str, about: str, labels: Labels, rows: Rows) -> Metric:
    """A counter; values that are not known are left out."""
    return _filled(CounterMetricFamily(f"headgate_{name}", about, labels=labels), rows)


def _filled(family: Any, rows: Rows) -> Metric:
    for values, number in rows:
        if number is not None:
            family.add_metric(values, float(number))
    found: Metric = family
    return found


def processes(reports: Mapping[str, ProcessReport], now_ms: int) -> Iterator[Metric]:
    """What every process of the deployment takes, on whatever machine it runs."""
    of = dict(sorted(reports.items()))

    def rows(key: str) -> Rows:
        return (((name,), getattr(each, key)) for name, each in of.items())

    yield counter("process_cpu_seconds", "Processor time of a process.", ("process",), rows("cpu_s"))
    yield gauge("process_memory_bytes", "Resident memory of a process.", ("process",), rows("memory_bytes"))
    yield gauge(
        "process_loop_late_seconds",
        "The longest that the event loop of a process was late in its last five seconds.",
        ("process",),
        rows("late_s"),
    )
    ages = (((name,), max(now_ms - each.time_ms, 0) / 1000) for name, each in of.items())
    yield gauge("process_report_age_seconds", "How long ago a process last reported.", ("process",), ages)


def estimates(
    streams: Mapping[str, Mapping[str, Any]], subscriptions: Mapping[str, Mapping[str, Any]]
) -> Iterator[Metric]:
    """What was missed or is wrong before matching, by samples, with the ends of their 95 % intervals."""
    for key in ("false_negatives", "false_positives"):
        found = {name: each["errors"][key] for name, each in streams.items() if each.get("errors")}
        word = key.replace("_", " ")
        rows = (((name, bound), each[bound]) for name, each in found.items() for bound in ("estimate", "low", "high"))
        yield gauge(f"stream_{key}", f"Estimated {word} of admission control.", ("stream", "bound"), rows)
        own = {name: each["errors"][key] for name, each in subscriptions.items() if each.get("errors")}
        rows = (((name, bound), each[bound]) for name, each in own.items() for bound in ("estimate", "low", "high"))
        yield gauge(f"subscription_{key}", f"Estimated {word} of a subscription.", ("subscription", "bound"), rows)


def attainment(deployment: Deployment, planner: Mapping[str, Any]) -> Iterator[Metric]:
    """Contracts by stream and site: how many there are, how many are kept, and the mean attained quality."""
    totals: dict[Labels, list[float]] = {}
    kept: dict[Labels, int] = {}
    contracts: dict[Labels, int] = {}
    measured = planner.get("subscriptions", {})
    for name, each in deployment.subscriptions.items():
        place, quality = (each.stream, each.site), measured.get(name, {}).get("quality")
        if quality is not None:
            totals.setdefault(place, []).append(quality)
        if each.quality.at_least is not None:
            contracts[place] = contracts.get(place, 0) + 1
            kept[place] = kept.get(place, 0) + (quality is None or quality >= each.quality.at_least)
    labels = ("stream", "site")
    means = ((place, sum(found) / len(found)) for place, found in totals.items())
    yield gauge("quality_mean", "The mean attained quality of subscriptions.", labels, means)
    yield gauge("contracts_by_site", "Subscriptions with a contract.", labels, contracts.items())
    yield gauge("contracts_kept_by_site", "Subscriptions whose contract is kept.", labels, kept.items())


def delays(snapshot: Snapshot, tallies: Mapping[int, Tally]) -> Iterator[Metric]:
    """Both delays and the jitter as histograms, by stream and site."""
    about = {
        "commit_delay": "From the root's commit to the hand-over.",
        "event_delay": "From the event to the hand-over.",
        "jitter": "Differences of the delays of consecutive rows, from the root's commit on.",
    }
    for key, text in about.items():
        merged: dict[Labels, Histogram] = {}
        for name, each in snapshot.deployment.subscriptions.items():
            tally = tallies.get(snapshot.subscription_ids[name])
            if tally is not None:
                found: Histogram = getattr(tally, key)
                total = merged.setdefault((each.stream, each.site), Histogram())
                total.count += found.count
                total.total_ms += found.total_ms
                for place, count in found.bins.items():
                    total.bins[place] = total.bins.get(place, 0) + count
        family = HistogramMetricFamily(f"headgate_{key}_seconds", text, labels=("stream", "site"))
        for values, histogram in merged.items():
            family.add_metric(values, _buckets(histogram), histogram.total_ms / 1000)
        yield family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative counts; a bin that ends past a bucket counts in the next one, so no delay is told too short."""
    ends = sorted((upper_ms(place) / 1000, count) for place, count in histogram.bins.items())
    found = [(f"{bucket_s:g}", float(sum(n for end_s, n in ends if end_s <= bucket_s))) for bucket_s in _BUCKETS_S]
    return [*found, ("+Inf", float(histogram.count))]
