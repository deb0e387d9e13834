"""A deployment: everything that one `headgate.yaml` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.model.plan import Plan
from headgate.model.site import Links, Site
from headgate.model.stream import Stream
from headgate.model.subscription import Subscription


@dataclass(frozen=True)
class Deployment:
    """Streams, sites, links and subscriptions by name. A `plan` that is given is used instead of a computed one."""

    streams: Mapping[str, Stream]
    sites: Mapping[str, Site]
    links: Links = field(default_factory=Links)
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    plan: Plan | None = None
    objective: str | None = None
    constraints: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
