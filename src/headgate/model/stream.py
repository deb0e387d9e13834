"""Streams: what flows, where it comes from, and what happens to it when the job cannot keep up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.model.schema import Schema

DERIVE: Final = "derive"
"""The option of a stream with the texts of its derived columns by name."""
DERIVE_STATE: Final = "derive_state"
"""The option of a stream with the limits of what is remembered for them."""


COLLECTED: Final = frozenset({"mqtt", "nats-core"})
"""Formats of brokers that keep no positions: the service collects their messages into the stream's input log."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from: `generator`, `nats`, `mqtt`, or any Spark streaming format, with that format's options."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def published(self) -> bool:
        """Whether rows are what clients publish into the stream."""
        return self.format == "nats" and not {"url", "log", "subject"} & set(self.options)

    @property
    def collected(self) -> bool:
        """Whether rows are messages of a broker that the service collects."""
        return self.format in COLLECTED

    @property
    def has_input(self) -> bool:
        """Whether the stream has an input log."""
        return self.format == "nats" or self.collected


@dataclass(frozen=True, slots=True)
class Admission:
    """What the job does under overload, and the latency it tries to hold. `options` belong to the method.

    `require` is a declared requirement, from which the method and the bound are chosen instead.
    """

    method: str = "traditional"
    bound_s: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    require: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """A typed stream with one root site, where its rows get their sequence numbers.

    `rate_rows_per_s` is the rate that is expected, None when nobody has said. `keep_s` is how long its rows stay in the
    root log once they are accounted for; None keeps them while there is room.
    """

    name: str
    schema: Schema
    source: Source
    root: str
    key: tuple[str, ...] = ()
    event_time: str | None = None
    rate_rows_per_s: float | None = None
    admission: Admission = field(default_factory=Admission)
    options: Mapping[str, Any] = field(default_factory=dict)
    keep_s: float | None = None

    @property
    def source_schema(self) -> Schema:
        """The columns that the source gives: all but those that are derived."""
        derived = self.options.get(DERIVE) or {}
        return self.schema.select([name for name in self.schema.names if name not in derived])
