"""Which delivery classes of a stream contain which: by filter, by region and by resolution.

A class is contained in another when the filter algebra says so of their filters and the grid says so of their shapes:
a half-resolution stream of a region contains the quarter-resolution one and that of every smaller region, so one link
can carry both for the price of the larger. A class that is not known to contain another is planned as if it did not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.errors import HeadgateError
from headgate.filters import context_types
from headgate.filters.profiles import Profile, ProfileType, profile_type
from headgate.grid import GridShape, grid_shape
from headgate.model import Stream, Subscription

MAX_COMPARED = 200  # classes of a stream; every pair is compared


def class_text(subscription: Subscription) -> str:
    """What makes two subscriptions of a stream one delivery class, as text."""
    rest = {
        "profile": subscription.profile,
        "resolution": subscription.resolution,
        "region": subscription.region,
        "context": subscription.context,
    }
    return " ".join(subscription.where.split()) + json.dumps(rest, sort_keys=True, default=str)


def takes_all_rows(subscription: Subscription) -> bool:
    """Whether the filter itself lets every row through."""
    return subscription.where.strip().lower() == "true"


def shape_of(subscription: Subscription, stream: Stream) -> GridShape | None:
    """The part of the grid that a class takes; none when it asks for no region and no resolution."""
    if not subscription.region and not subscription.resolution:
        return None
    return grid_shape(subscription, stream)


def grid_covers(one: tuple[Subscription, GridShape | None], other: tuple[Subscription, GridShape | None]) -> bool:
    """Whether every row of one subscription's region and resolution is surely in another's, by their shapes."""
    shape, inner = one[1], other[1]
    if shape is None:
        return True
    if inner is None:
        return False
    # A region can follow its subscriber: one that does says nothing about another subscriber's.
    same_place = one[0].context == other[0].context
    return (same_place or shape.region is None) and shape.covers(inner)


@dataclass(frozen=True, slots=True)
class _Class:
    """One class with its compiled filter (none when it does not compile) and its shape."""

    subscription: Subscription
    kind: ProfileType | None
    profile: Profile | None
    shape: GridShape | None

    def covers(self, other: _Class) -> bool:
        """Whether every row of the other is surely in this one."""
        return self._grid_covers(other) and self._filter_covers(other)

    def _grid_covers(self, other: _Class) -> bool:
        return grid_covers((self.subscription, self.shape), (other.subscription, other.shape))

    def _filter_covers(self, other: _Class) -> bool:
        one, two = self.subscription, other.subscription
        if takes_all_rows(one):
            return True
        if self.kind is None or self.profile is None or other.profile is None:
            return False
        return (
            one.profile == two.profile and one.context == two.context and self.kind.covers(self.profile, other.profile)
        )


@dataclass(frozen=True, slots=True)
class _Known:
    """The classes of a stream that were compared, and which of them each contains."""

    stream: Stream
    classes: Mapping[str, _Class]
    inside: Mapping[str, frozenset[str]]


class Comparisons:
    """Which classes contain which, remembered from one problem to the next.

    All pairs of a stream's classes are compared once; a problem with one class more costs the comparisons of that one.
    A stream whose definition has changed is compared anew, and at most twice `MAX_COMPARED` classes are remembered of
    each. What is known of a stream is replaced and never changed, so several threads may ask at once.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def covered(
        self,
        stream: Stream,
        texts: Mapping[str, Subscription],
        classes: Mapping[str, int],
        shapes: Mapping[str, GridShape | None],
    ) -> list[int] | None:
        """For each class the bit set of its own piece and those of the classes it contains.

        Past `MAX_COMPARED` classes of a stream none are compared, and there is nothing to say: 100,000 bit sets of
        100,000 bits would take 600 MB.
        """
        if len(classes) > MAX_COMPARED:
            return None
        held = [1 << position for position in range(len(classes))]
        inside = self._compared(stream, texts, classes, shapes).inside
        for text, position in classes.items():
            for other in inside[text] & classes.keys():
                held[position] |= 1 << classes[other]
        return held

    def _compared(
        self,
        stream: Stream,
        texts: Mapping[str, Subscription],
        classes: Mapping[str, int],
        shapes: Mapping[str, GridShape | None],
    ) -> _Known:
        known = self._known.get(stream.name)
        if known is None or known.stream != stream:
            known = _Known(stream, {}, {})
        if classes.keys() <= known.classes.keys():
            return known
        kept = len(known.classes.keys() | classes.keys()) <= 2 * MAX_COMPARED
        found = {text: each for text, each in known.classes.items() if kept or text in classes}
        inside = {text: set(known.inside[text] & found.keys()) for text in found}
        for text in classes.keys() - found.keys():
            one = _compiled(stream, texts[text], shapes[text])
            inside[text] = {name for name, other in found.items() if one.covers(other)}
            for name, other in found.items():
                if other.covers(one):
                    inside[name].add(text)
            found[text] = one
        known = _Known(stream, found, {text: frozenset(others) for text, others in inside.items()})
        self._known[stream.name] = known
        return known


def _compiled(stream: Stream, subscription: Subscription, shape: GridShape | None) -> _Class:
    try:
        kind = profile_type(subscription.profile)
        profile = kind.compile(subscription.where, stream.schema, context_types(subscription.context))
    except HeadgateError:
        return _Class(subscription, None, None, shape)
    return _Class(subscription, kind, profile, shape)
