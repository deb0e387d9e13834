"""What a delivery graph is worth: section 4.1's quality and section 6.1's metrics, and the reasons behind them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.planning.graph import Graph
from headgate.planning.kernel.value import quality_all
from headgate.planning.net import BANDWIDTH


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one subscription will get: drop (0 to 1), delay from the root in seconds, and the quality of both."""

    subscription: str
    stream: str
    site: str
    drop: float
    delay_s: float
    quality: float
    at_least: float | None = None
    binds: str | None = None

    @property
    def met(self) -> bool:
        """Whether the contract holds; without one it does."""
        return self.at_least is None or self.quality >= self.at_least - 1e-12


@dataclass(frozen=True, slots=True)
class Metrics:
    """All metrics of a graph. Means are weighted by the subscriptions' weights.

    `geometric_mean` is over qualities above zero and to be compared only between graphs with equally many `zeros`
    (fewer is better, whatever the mean); `geometric_mean_paper` counts a zero as it is, which makes the whole mean 0.
    Bandwidth and fairness use rates without drops, as the paper does.
    """

    geometric_mean: float
    geometric_mean_paper: float
    zeros: int
    arithmetic_mean: float
    minimum: float
    contracts_met: float
    total_bandwidth_bytes_per_s: float
    fairness: float
    delay_variance: float
    delay_mean_s: float
    drop_mean: float
    subscriptions: int
    settled: bool

    def as_dict(self) -> dict[str, Any]:
        """A flat document."""
        return asdict(self)

    def better_than(self, other: Metrics) -> bool:
        """The order of the quality objective: fewer zero qualities, then the higher geometric mean of the rest."""
        return (-self.zeros, self.geometric_mean) > (-other.zeros, other.geometric_mean)


def want_qualities(graph: Graph) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Drop, delay and quality of each want, one row per want."""
    found = np.zeros((len(graph.net.want), 3))
    quality_all(graph.net, found)
    return found


def geometric_mean(qualities: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> tuple[float, int]:
    """The weighted geometric mean of the qualities above zero, 0 when there is none, and how many are zero.

    >>> geometric_mean(np.array([0.5, 0.0, 0.5]), np.ones(3))
    (0.5, 1)
    """
    zero = qualities <= 0
    rest = weights[~zero].sum()
    mean = math.exp(float((weights[~zero] * np.log(qualities[~zero])).sum() / rest)) if rest else 0.0
    return mean, int(zero.sum())


def measure(graph: Graph) -> Metrics:
    """All metrics of a graph as it stands."""
    net, streams = graph.net, graph.streams
    found = want_qualities(graph)
    quality, weight = found[:, 2], net.want["weight"]
    geometric, zeros = geometric_mean(quality, weight)
    nodes = net.node[streams:][net.node["parent"][streams:] >= 0]
    members = nodes[nodes["want_last"] > nodes["want_first"]]
    total = weight.sum()
    floors = net.want["floor"]
    return Metrics(
        geometric,
        0.0 if zeros else geometric,
        zeros,
        float((weight * quality).sum() / total) if total else 1.0,
        float(quality.min()) if len(quality) else 1.0,
        float((quality >= floors - 1e-12)[floors >= 0].mean()) if (floors >= 0).any() else 1.0,
        float(net.total[BANDWIDTH]),
        fairness(graph),
        float(members["lag"].var()) if len(members) else 0.0,
        float(members["lag"].mean()) if len(members) else 0.0,
        float((weight * found[:, 0]).sum() / total) if total else 0.0,
        len(quality),
        graph.settled,
    )


def fairness(graph: Graph) -> float:
    """Variance over sites of forwarding without drops divided by upload; sites without a known upload are left out."""
    net, n = graph.net, len(graph.net.place)
    forwarded = np.bincount(net.node["site"], net.node["out"], n)
    upload = net.resource["capacity"][:n]
    limited = np.isfinite(upload) & (upload > 0)
    return float((forwarded[limited] / upload[limited]).var()) if limited.any() else 0.0


def predict(graph: Graph) -> list[Prediction]:
    """What each subscription will get, and which resource binds where rows are dropped."""
    net = graph.net
    found = want_qualities(graph).tolist()
    nodes = np.repeat(np.arange(len(net.node)), net.node["want_last"] - net.node["want_first"]).tolist()
    floors = net.want["floor"].tolist()
    reasons: dict[int, str] = {}
    result = []
    for name, node, floor, (drop, delay_s, quality) in zip(graph.layout.wants, nodes, floors, found, strict=True):
        stream, site = graph.name(node)
        if drop > 0 and node not in reasons:
            reasons[node] = binding(graph, node)
        binds = reasons[node] if drop > 0 else None
        result.append(Prediction(name, stream, site, drop, delay_s, quality, None if floor < 0 else floor, binds))
    return result


def binding(graph: Graph, node: int) -> str:
    """The site or link on a node's path that passes the smallest part."""
    net, n = graph.net, len(graph.net.place)
    records, resource = net.node, net.resource["permeable"]
    worst, reason = 1.0, "nothing joins it to the source"
    while records["parent"][node] >= 0:
        upper, lower = int(records["site"][records["parent"][node]]), int(records["site"][node])
        names = graph.problem.sites[upper].name, graph.problem.sites[lower].name
        places = [(upper, f"upload of {names[0]}"), (n + lower, f"download of {names[1]}")]
        if len(net.link) and net.link[upper, lower] >= 0:
            places.append((2 * n + int(net.link[upper, lower]), f"link {names[0]} - {names[1]}"))
        for place, text in places:
            if resource[place] < worst:
                worst, reason = float(resource[place]), f"{text} passes {100 * resource[place]:.0f} %"
        node = int(records["parent"][node])
    return reason
