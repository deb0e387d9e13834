"""What an objective may name: metrics on links and nodes, state, functions, and definitions everybody uses.

A metric of a link is measured between a site and its parent (over a path) or its child (over children); a metric of a
node belongs to the site. User functions come from entry points of the group `headgate.tuning` and say themselves what
they return; they must depend on their arguments only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from types import MappingProxyType

from headgate.tuning.language.errors import ObjectiveError

LINK_METRICS: Mapping[str, str] = MappingProxyType(
    {
        "link_latency": "seconds between the two sites",
        "link_bandwidth": "bytes per second that the link can carry",
        "link_loss": "share of what is owed to the next site that is lost or given up on the link",
        "link_hop": "1 for every link",
    }
)
NODE_METRICS: Mapping[str, str] = MappingProxyType(
    {
        "incoming_rate": "bytes per second that the site receives for itself and for the sites below it",
        "own_rate": "bytes per second that match the site's own subscriptions",
        "superfluous_data": "incoming_rate less own_rate; 0 at the root",
        "fanout": "children of the site, over all streams",
        "clients": "subscribers attached to the site",
        "outgoing_rate": "bytes per second that the site sends to its children, over all streams",
        "upload_bandwidth": "bytes per second that the site can send",
        "download_bandwidth": "bytes per second that the site can receive",
        "upload_excess": "bytes per second by which outgoing_rate passes the upload bandwidth",
        "download_excess": "bytes per second by which incoming_rate passes the download bandwidth",
        "processing_delay": "seconds that the site adds to everything it forwards",
        "matching_cpu": "seconds of matching per block: grows with routing entries and incoming data",
        "loss_rate": "share of the rows owed to its children that the site gave up; 0 until something is measured",
        "relay_cpu": "CPU seconds per block that the site's relay measured; 0 until something is measured",
        "attained_quality": "quality of the site's subscriptions under the planner's drop and delay model",
        "granted_shortfall": "how far the site's subscriptions fall below the quality they were granted",
        "granted_delay": "seconds from the root up to which subscriptions that lose nothing have that quality",
    }
)
STATES: Mapping[str, str] = MappingProxyType(
    {
        "own_profile": "what the site's own subscriptions ask for",
        "merged_profile": "what the site and everything below it ask for",
        "children_profile": "what everything below the site asks for",
    }
)
# Functions of numbers. `size` and `overlap` take state and are applied by the evaluator, which knows the rates.
FUNCTIONS: Mapping[str, int | None] = MappingProxyType(
    {"min": None, "max": None, "abs": 1, "log": 1, "exp": 1, "sqrt": 1, "size": 1, "overlap": 2, "extra_incoming": 0}
)
STATE_FUNCTIONS = frozenset({"size", "overlap"})
LIBRARY: Mapping[str, str] = MappingProxyType(
    {
        "path_latency": "sum(link_latency) over path",
        "path_bandwidth": "min(link_bandwidth) over path",
        "path_loss": "1 - exp(sum(log(1 - link_loss)) over path)",
        "path_cpu": "sum(matching_cpu) over path",
        "path_relay_cpu": "sum(relay_cpu) over path",
        "hops": "sum(link_hop) over path",
        "lateness": "sum(link_latency) over path + sum(processing_delay) over path - processing_delay - granted_delay",
        "outgoing_bandwidth": "sum(incoming_rate) over children",
    }
)
ENTRY_POINTS = "headgate.tuning"


def unknown_value(metric: str) -> float:
    """What a site's metric is where nobody said: no bound on bandwidths and granted delays, else 0."""
    return math.inf if metric.endswith("_bandwidth") or metric == "granted_delay" else 0.0


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Names known to an objective. `functions` are the user's own: of floats, returning a float."""

    functions: Mapping[str, Callable[..., float]] = field(default_factory=dict)
    link_metrics: frozenset[str] = frozenset(LINK_METRICS)
    node_metrics: frozenset[str] = frozenset(NODE_METRICS)

    @classmethod
    def installed(cls) -> Vocabulary:
        """The built-in names and the functions of every installed package that offers some.

        A function that cannot be loaded, or that takes a name of the language, is refused by its package's name.
        """
        found: dict[str, Callable[..., float]] = {}
        for point in entry_points(group=ENTRY_POINTS):
            if point.name in FUNCTIONS or point.name in LIBRARY or not point.name.isidentifier():
                raise ObjectiveError(f"the function {point.name!r} of {point.value!r} cannot be called that")
            try:
                found[point.name] = point.load()
            except Exception as error:
                raise ObjectiveError(
                    f"the function {point.name!r} cannot be loaded from {point.value!r}: {error}",
                    hint="repair or remove the package that offers it",
                ) from error
        return cls(found)

    @property
    def values(self) -> tuple[str, ...]:
        """Everything that can stand where a value is expected."""
        return (*sorted(self.link_metrics), *sorted(self.node_metrics), *STATES, *LIBRARY)


BUILT_IN = Vocabulary()


def scalar_function(name: str) -> Callable[..., float]:
    """A built-in function of numbers, on floats; what has no value there gives NaN, which reads as absent."""
    return _SCALAR[name]


def _log(value: float) -> float:
    return math.log(value) if value > 0 else (-math.inf if value == 0 else math.nan)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


_SCALAR: Mapping[str, Callable[..., float]] = MappingProxyType(
    {
        "min": lambda *values: math.nan if any(value != value for value in values) else min(values),
        "max": lambda *values: math.nan if any(value != value for value in values) else max(values),
        "abs": abs,
        "log": _log,
        "exp": _exp,
        "sqrt": lambda value: math.sqrt(value) if value >= 0 else math.nan,
    }
)
