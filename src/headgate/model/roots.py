"""Region roots: a gridded stream that several sites number is a stream for each root, and which it is stands in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headgate.model.stream import Stream

OPTION = "root_region"
"""The option of a stream that is one root of another; the fields of a `RootRegion`."""


@dataclass(frozen=True, slots=True)
class RootRegion:
    """Which root of which stream a stream is.

    Roots that share a source each keep the rows of their own region; the one that takes the `rest` has those that lie
    in none, and the dead letters. A root with a source of its own has all that this gives, and what lies outside of
    its region is a dead letter.
    """

    of: str
    root: str
    region: Mapping[str, Any]
    rest: bool = False
    alone: bool = False

    @property
    def document(self) -> dict[str, Any]:
        """The stream's option."""
        found = {"of": self.of, "root": self.root, "region": dict(self.region)}
        return {**found, "rest": self.rest, "alone": self.alone}


def member_name(name: str, root: str) -> str:
    """The name that a stream or a subscription has at one root."""
    return f"{name}-{root}"


def root_region(stream: Stream) -> RootRegion | None:
    """Which root a stream is, None for a stream that is whole."""
    found = stream.options.get(OPTION)
    return None if found is None else RootRegion(**found)


def members_of(streams: Mapping[str, Stream], name: str) -> dict[str, Stream]:
    """The roots of a stream by their name, none when there is no such stream or it is whole."""
    regions = {each: root_region(stream) for each, stream in streams.items()}
    return {found.root: streams[each] for each, found in regions.items() if found is not None and found.of == name}


def members_named(streams: Mapping[str, Stream], subscriptions: Iterable[str], name: str) -> list[str]:
    """The subscriptions that one to a stream of several roots consists of, none when there is no such one."""
    known = set(subscriptions)
    roots = {found.root for found in map(root_region, streams.values()) if found is not None}
    return sorted(each for each in (member_name(name, root) for root in roots) if each in known)
