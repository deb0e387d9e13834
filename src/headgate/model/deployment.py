"""A deployment: everything that one `headgate.yaml` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.model.alerts import AlertRules
from headgate.model.plan import Plan
from headgate.model.site import Links, Site
from headgate.model.spark_job import SparkJob, is_named
from headgate.model.stream import Stream
from headgate.model.subscription import Subscription


@dataclass(frozen=True, slots=True)
class NatsPlace:
    """Where NATS is: a server of the user's own (`url`), or where the embedded one listens. Files are PEM.

    `mqtt` is where the embedded one takes devices that speak MQTT.
    """

    url: str | None = None
    credentials: str | None = None
    listen: str | None = None
    certificate: str | None = None
    key: str | None = None
    authority: str | None = None
    mqtt: str | None = None


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one identity may take: requests a second for long, at once, and waiting; subscriptions; more.

    `filter_cost_us` is what evaluating all of its filters on a stream may take for a row by estimate. It reads at most
    `bytes_per_s`, None for any, and has answers on so many `connections` at a time.
    Operators are limited in their requests only, for each of their connections.

    It makes `http_per_s` requests of the HTTP API for long, and publishes at most `publish_bytes_per_s`, None for any.
    """

    requests_per_s: float = 50.0
    burst: int = 200
    waiting: int = 200
    subscriptions: int = 1000
    filter_cost_us: float = 500.0
    bytes_per_s: float | None = None
    connections: int = 64
    http_per_s: float = 200.0
    publish_bytes_per_s: float | None = None


@dataclass(frozen=True)
class Deployment:
    """Streams, sites, links and subscriptions by name. A `plan` that is given is used instead of a computed one.

    Streams that none of the `jobs` names run in the job that has no name. `nats`, `limits` and `alerts` are for
    whoever runs the file; the catalog does not keep them.
    """

    streams: Mapping[str, Stream]
    sites: Mapping[str, Site]
    links: Links = field(default_factory=Links)
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    plan: Plan | None = None
    objective: str | None = None
    constraints: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    jobs: Mapping[str, SparkJob] = field(default_factory=dict)
    nats: NatsPlace = field(default_factory=NatsPlace, compare=False)
    limits: RequestLimits = field(default_factory=RequestLimits, compare=False)
    alerts: AlertRules = field(default_factory=AlertRules, compare=False)

    @property
    def tuned(self) -> bool:
        """Whether the live tuner owns the plan (`options: {planner: tuner}`); else the central planner does."""
        return self.options.get("planner") == "tuner"

    def job_of(self, stream: str) -> str:
        """The name of the job that runs a stream, empty for the one without a name."""
        found = self.streams[stream]
        return next((job.name for job in self.jobs.values() if is_named(found, job.streams)), "")
