"""Metrics for Prometheus, made of the same reports as `headgate status`.

Terms of single subscriptions are many numbers: they are given for at most `MOST` of them, and for more only as sums by
stream and site. `headgate_subscriptions_shown` says which it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from headgate.api.access import Visitor, identify
from headgate.api.families import Labels, Rows, attainment, counter, delays, estimates, gauge, processes
from headgate.api.routing import PROBLEMS, Here
from headgate.model import Deployment
from headgate.protocol.reports import ProcessReport
from headgate.service.alerts.book import KINDS
from headgate.service.books import read_tallies
from headgate.service.reports import read_reports
from headgate.wire.ledger import Tally
from headgate.wire.snapshot import Snapshot

routes = APIRouter(tags=["metrics"], responses=PROBLEMS)

MOST: Final = 1000
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@routes.get("/metrics", summary="Metrics in the text format of Prometheus", response_class=Response)
async def show_metrics(here: Here, _: Annotated[Visitor, Depends(identify)]) -> Response:
    snapshot, status, planner = await here.snapshot(), await here.status(), await here.planner()
    tallies = await read_tallies(here.client.fabric)
    reports = await read_reports(here.client.fabric, ProcessReport)
    found = [*families(snapshot, status, planner, tallies), *processes(reports, status["time_ms"])]
    text = generate_latest(_Found(found))
    return Response(text, headers={"Content-Type": _TYPE})


class _Found(Collector):
    """Metrics that are there already."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = list(found)

    def collect(self) -> Iterable[Metric]:
        """The metrics."""
        return self._found


def families(
    snapshot: Snapshot, status: Mapping[str, Any], planner: Mapping[str, Any], tallies: Mapping[int, Tally]
) -> Iterator[Metric]:
    """Every metric of a deployment."""
    yield gauge("up", "Whether the service runs.", (), [((), float(status["service"]["state"] == "running"))])
    yield gauge("revision", "The revision of the catalog in force.", (), [((), snapshot.revision)])
    wrong = sum(each["wrong"] for each in status["findings"])
    yield gauge("findings_wrong", "Findings that make `headgate ledger` exit 1.", (), [((), wrong)])
    held = Counter(each["kind"] for each in status["alerts"] if each["cleared_ms"] is None)
    yield gauge("alerts", "Alerts that hold, by kind.", ("kind",), (((kind,), held[kind]) for kind in KINDS))
    yield from _streams(status["streams"])
    yield from _sites(status)
    yield from _machine(status)
    yield from _subscriptions(snapshot.deployment, status["subscriptions"], planner)
    yield from delays(snapshot, tallies)
    yield from attainment(snapshot.deployment, planner)
    shown = status["subscriptions"] if len(snapshot.deployment.subscriptions) <= MOST else {}
    yield from estimates(status["streams"], shown)
    yield from _planner(planner)


def _streams(streams: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    for key, name, about in (
        ("rows_in", "rows_in", "Rows that a stream took in."),
        ("evaluated", "rows_evaluated", "Rows that were matched."),
        ("dead", "rows_dead", "Dead letters."),
        ("shed", "rows_shed", "Rows shed by admission control."),
        ("root_bytes", "root_bytes", "Bytes that the root has sent of a stream."),
    ):
        yield counter(f"stream_{name}", about, ("stream",), (((n,), each[key]) for n, each in streams.items()))
    yield counter(
        "stream_rows_unsent",
        "Rows that senders gave up.",
        ("stream", "reason"),
        (((name, why), count) for name, each in streams.items() for why, count in each["unsent"].items()),
    )
    for key, about in (("head", "The last sequence number."), ("difference", "Rows that cannot be accounted for.")):
        yield gauge(f"stream_{key}", about, ("stream",), (((name,), each[key]) for name, each in streams.items()))
    states = (((name, each["state"]), 1.0) for name, each in streams.items())
    yield gauge("stream_state", "The state of a stream's query.", ("stream", "state"), states)
    for key, about in (
        ("batch_s", "How long the last micro-batch took."),
        ("work_s", "The work of the last micro-batch."),
        ("match_s", "Matching in the last micro-batch."),
        ("rows", "Rows of the last micro-batch."),
    ):
        rows = (((name,), each["job"].get(key)) for name, each in streams.items())
        yield gauge(f"batch_{key.removesuffix('_s')}{'_seconds' if key != 'rows' else ''}", about, ("stream",), rows)
    stages = (
        ((name, stage), seconds)
        for name, each in streams.items()
        for stage, seconds in (each["job"].get("stages") or {}).items()
    )
    yield gauge("batch_stage_seconds", "Parts of the last micro-batch.", ("stream", "stage"), stages)
    derived = {name: each["job"]["derived"] for name, each in streams.items() if each["job"].get("derived")}
    for key, about in (
        ("keys", "Keys that derived columns remember."),
        ("rows", "Rows that derived columns remember."),
        ("forgotten_keys", "Keys that derived columns had no room for."),
        ("unknown_rows", "Rows of which a derived column cannot be known."),
    ):
        rows = (((name,), each[key]) for name, each in derived.items())
        yield gauge(f"derived_{key}", about, ("stream",), rows)


def _sites(status: Mapping[str, Any]) -> Iterator[Metric]:
    sites = status["sites"]
    for key, name, about in (
        ("upload_bytes", "upload_bytes", "Bytes sent on links."),
        ("download_bytes", "download_bytes", "Bytes received on links."),
        ("inbox_bytes", "inbox_bytes", "Bytes delivered to subscriptions."),
        ("blocks", "blocks", "Blocks taken in."),
        ("repairs", "repairs", "Ranges that were sent again."),
        ("cpu_s", "cpu_seconds", "Processor time of the relay."),
    ):
        yield counter(f"site_{name}", about, ("site",), (((n,), each[key]) for n, each in sites.items()))
    for key, name, about in (
        ("queued_rows", "queued_rows", "Rows that wait in the queues of a site."),
        ("level", "reduction_level", "The highest level of any policy at a site."),
    ):
        yield gauge(f"site_{name}", about, ("site",), (((n,), each[key]) for n, each in sites.items()))
    ages = (
        ((name,), max(status["time_ms"] - each["time_ms"], 0) / 1000)
        for name, each in sites.items()
        if each["time_ms"] is not None
    )
    yield gauge("site_report_age_seconds", "How long ago a relay last reported.", ("site",), ages)
    links = {tuple(name.split("->", 1)): each for name, each in status["links"].items()}
    for key, about in (("bytes", "Bytes on a link."), ("messages", "Messages on a link.")):
        yield counter(f"link_{key}", about, ("from", "to"), ((ends, each[key]) for ends, each in links.items()))
    for key, name, about in (
        ("latency_s", "latency_seconds", "The measured latency of a link."),
        ("declared_bytes_per_s", "declared_bytes_per_second", "What a link is declared to carry."),
        ("measured_bytes_per_s", "measured_bytes_per_second", "What the receiver has seen that a link carries."),
        ("used_bytes_per_s", "used_bytes_per_second", "What has come over a link lately."),
        ("budget_bytes_per_s", "budget_bytes_per_second", "What may be sent on a link."),
        ("round_trip_s", "round_trip_seconds", "The round trip of a link by the kernels of its ends."),
        ("resent", "resent_ratio", "The share of the bytes of the last minute that the sender took for lost."),
    ):
        yield gauge(f"link_{name}", about, ("from", "to"), ((ends, each[key]) for ends, each in links.items()))
    about = "Whether a link was seen to carry much more or less than is declared, as `headgate status` says."
    off = ((ends, float(each["off"] is not None)) for ends, each in links.items())
    yield gauge("link_misdeclared", about, ("from", "to"), off)


def _machine(status: Mapping[str, Any]) -> Iterator[Metric]:
    machine, tables = status["machine"], status["tables"]
    for key, name, about in (
        ("free_bytes", "disk_free_bytes", "Room on the disk of the state directory."),
        ("reserve_bytes", "disk_reserve_bytes", "Room below which the intake is paused."),
    ):
        yield gauge(name, about, (), [((), machine.get(key))])
    yield gauge("intake_paused", "Whether the intake is paused.", (), [((), float(bool(machine.get("paused_ms"))))])
    yield counter("nats_restarts", "Restarts of the embedded server.", (), [((), machine.get("restarts"))])
    for key, about in (("bytes", "How full the log of tables is."), ("limit_bytes", "What the log of tables takes.")):
        yield gauge(f"tables_{key}", about, (), [((), tables.get(key))])


_TERMS: Final = (
    ("matched", "Rows that a subscription matched."),
    ("delivered", "Rows that were delivered and acknowledged."),
    ("reduced", "Rows that a policy gave up."),
    ("expired", "Rows that were kept too long for one who was away."),
)


def _subscriptions(
    deployment: Deployment, entries: Mapping[str, Mapping[str, Any]], planner: Mapping[str, Any]
) -> Iterator[Metric]:
    known = {name: each for name, each in entries.items() if name in deployment.subscriptions}
    shown = known if len(known) <= MOST else {}
    yield gauge("subscriptions", "How many subscriptions there are.", (), [((), len(known))])
    yield gauge("subscriptions_shown", "Of how many each has metrics of its own.", (), [((), len(shown))])
    labels = ("subscription", "stream", "site")

    def own(key: str) -> Rows:
        return (((name, each["stream"], each["site"]), each.get(key)) for name, each in shown.items())

    def summed(key: str) -> Rows:
        found: dict[Labels, float] = {}
        for each in known.values():
            found[each["stream"], each["site"]] = found.get((each["stream"], each["site"]), 0.0) + (each.get(key) or 0)
        return found.items()

    for key, about in _TERMS:
        yield counter(f"subscription_rows_{key}", about, labels, own(key))
        yield counter(f"rows_{key}", f"{about} By stream and site.", ("stream", "site"), summed(key))
    for key, name, about in (
        ("in_flight", "rows_in_flight", "Rows that were matched and not acknowledged yet."),
        ("difference", "rows_difference", "Rows that cannot be accounted for."),
        ("queued_rows", "queued_rows", "Rows that wait on the way from the root."),
        ("queued_bytes", "queued_bytes", "Bytes that wait on the way from the root."),
        ("level", "reduction_level", "The level of its policy."),
    ):
        yield gauge(f"subscription_{name}", about, labels, own(key))
        if key != "level":
            yield gauge(name, f"{about} By stream and site.", ("stream", "site"), summed(key))
    found = planner.get("subscriptions", {})
    for key, name, about in (
        ("quality", "quality", "The attained quality."),
        ("quality_predicted", "quality_predicted", "The quality that the plan was to give."),
        ("drop", "drop_ratio", "The drop over the planner's window."),
        ("selectivity", "matched_ratio", "The share of the stream's rows that matched lately."),
    ):
        rows = (((n, each["stream"], each["site"]), found.get(n, {}).get(key)) for n, each in shown.items())
        yield gauge(f"subscription_{name}", about, labels, rows)
    contracts = {
        name: deployment.subscriptions[name].quality.at_least
        for name in known
        if deployment.subscriptions[name].quality.at_least is not None
    }
    rows = (((name, each["stream"], each["site"]), contracts.get(name)) for name, each in shown.items())
    yield gauge("subscription_quality_contracted", "The quality that was contracted.", labels, rows)
    attained = [
        (found.get(name, {}).get("quality"), at_least) for name, at_least in contracts.items() if at_least is not None
    ]
    below = sum(quality is not None and quality < at_least for quality, at_least in attained)
    yield gauge("contracts", "Subscriptions with a contract.", (), [((), len(contracts))])
    yield gauge("contracts_below", "Subscriptions whose attained quality is below the contract.", (), [((), below)])


def _planner(planner: Mapping[str, Any]) -> Iterator[Metric]:
    for key, name, about in (
        ("quality", "plan_quality", "The attained quality of the plan, as a geometric mean."),
        ("quality_predicted", "plan_quality_predicted", "What the plan should give by what was measured."),
        ("quality_reachable", "plan_quality_reachable", "What the best plan that was found would give."),
        ("moves", "plan_moves", "Members that would get another parent in that plan."),
        ("quality_zeros", "plan_quality_zeros", "Subscriptions that get nothing of use."),
    ):
        yield gauge(name, about, (), [((), planner.get(key))])
    yield counter("plan_changes", "Changes of plan since the start.", (), [((), planner.get("changes"))])
    streams = planner.get("streams", {})
    rows = (((name,), each["rate"]) for name, each in streams.items())
    yield gauge("stream_rate_rows_per_second", "The measured rate of a stream.", ("stream",), rows)
    rows = (((name,), each["row_bytes"]) for name, each in streams.items())
    yield gauge("stream_row_bytes", "The measured size of a row.", ("stream",), rows)
    shed = (((name,), each["shed"]) for name, each in planner.get("sites", {}).items())
    yield gauge("site_shed_ratio", "The part of what a site should send that it sheds.", ("site",), shed)
