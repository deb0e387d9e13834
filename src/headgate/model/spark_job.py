"""Spark jobs: which of a deployment's streams run in a process of their own, and where."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.model.roots import root_region
from headgate.model.stream import Stream


@dataclass(frozen=True, slots=True)
class SparkJob:
    """A job: the streams that it runs, and its Spark. What is None is as `headgate up` was told."""

    name: str
    streams: tuple[str, ...]
    master: str | None = None
    trigger_s: float | None = None
    partitions: int | None = None
    spark: Mapping[str, str] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The job as the catalog keeps it."""
        found: dict[str, Any] = {"streams": list(self.streams), "spark": dict(self.spark)}
        return {**found, "master": self.master, "trigger_s": self.trigger_s, "partitions": self.partitions}

    @classmethod
    def of(cls, name: str, document: Mapping[str, Any]) -> SparkJob:
        """The inverse of `document`."""
        return cls(name, **{**document, "streams": tuple(document["streams"])})


def is_named(stream: Stream, names: Collection[str]) -> bool:
    """Whether a stream is among some that a file names; the name of a stream of several roots stands for all of them.

    >>> from headgate.model import Schema, Source
    >>> is_named(Stream("wind", Schema(()), Source("nats"), "oslo"), ["wind", "rain"])
    True
    """
    region = root_region(stream)
    return stream.name in names or (region is not None and region.of in names)
