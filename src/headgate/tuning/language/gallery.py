"""Objectives worth knowing: the paper's (sections 2.3 and 5.1) and more, each parsed and evaluated by the tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """An objective, or a constraint, and what it is for."""

    name: str
    text: str
    about: str
    kind: str = "objective"


GALLERY: tuple[Example, ...] = (
    Example(
        "average path latency",
        "minimise average(path_latency) over brokers where path_latency = sum(link_latency) over path",
        "Section 2.3. Everybody near the root; with no constraint, the star.",
    ),
    Example(
        "bandwidth bottleneck",
        "maximise min(bandwidth) over brokers where bandwidth = min(link_bandwidth) over path",
        "Sections 2.3 and 5.1. The worst-served site gets as wide a path as possible.",
    ),
    Example(
        "redundant data",
        "minimise sum(extra_incoming()) over brokers",
        "Sections 2.3 and 5.1. Nobody carries what only others want.",
    ),
    Example(
        "bandwidth-delay product",
        "minimise average(latency * bandwidth) over brokers"
        " where latency = sum(link_latency) over path, bandwidth = min(link_bandwidth) over path",
        "Section 2.3. Data in transit on a path; two metrics combined at the node.",
    ),
    Example("total path latency", "minimise sum(path_latency)", "Section 5.1, figure 5."),
    Example("fair latency", "minimise variance(path_latency)", "Section 5.1, Table 6: equal service for all."),
    Example(
        "outgoing bandwidth",
        "minimise average(outgoing) over brokers where outgoing = sum(incoming_rate) over children",
        "Section 5.1, figure 8: an aggregation over children.",
    ),
    Example(
        "latency with matching",
        "minimise sum(path_latency + path_cpu) over brokers",
        "Section 5.1, figure 7: moves away from loaded sites.",
    ),
    Example("slowest subscriber", "minimise max(path_latency) over clients", "The worst case, where somebody listens."),
    Example("tail latency", "minimise p95(path_latency) over clients", "Nineteen of twenty subscribers."),
    Example("total bottleneck bandwidth", "maximise sum(path_bandwidth) over brokers", "Type II of Table 1."),
    Example(
        "average hop",
        "minimise sum(hop) over brokers where hop = average(link_latency) over path",
        "Short links rather than short paths.",
    ),
    Example("fair load", "minimise std(outgoing_rate) over brokers", "Every site sends about as much."),
    Example("reliable paths", "minimise max(path_loss) over clients", "The chance that a message is lost on its way."),
    Example("busiest site", "minimise max(matching_cpu) over brokers", "Spreads matching."),
    Example("delivered quality", "maximise sum(attained_quality) over clients", "The planner's own measure."),
    Example("no site past 200 ms", "max(path_latency) <= 200 ms", "A bound on the system.", "constraint"),
    Example("at most six children", "fanout <= 6", "A bound on every site, over all streams.", "constraint"),
    Example("a floor for every path", "path_bandwidth >= 2 Mbit/s", "Each site's own path.", "constraint"),
    Example("room in the uplink", "upload_excess <= 0", "Always in force for a deployment.", "constraint"),
)
