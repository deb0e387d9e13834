"""From a snapshot to the classes of a stream, as matching, its files and its context log name them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.filters import context_types
from headgate.filters.profiles import compile_profile
from headgate.grid import layout_of, place_schema, with_grid, with_places
from headgate.matching import RowFilter
from headgate.matching.admission import tolerance_of, wants_true_state
from headgate.matching.definitions import ClassDefinition, Compile, RowReading, grouped
from headgate.matching.live import LiveIndex
from headgate.model import Stream, Subscription, parse_type, type_name
from headgate.wire.snapshot import Snapshot


def template_of(subscription: Subscription) -> str:
    """All that says which rows a subscription wants, but its context values: their types are part of it.

    The types of a context decide how its filter is read, so values of other types are another template.
    """
    types = context_types(subscription.context)
    document = {
        "profile": subscription.profile,
        "where": subscription.where,
        "region": subscription.region,
        "resolution": subscription.resolution,
        "context": {name: text for name, kind in types.items() if (text := _type_text(kind)) is not None},
        "values": {name: subscription.context[name] for name, kind in types.items() if _type_text(kind) is None},
    }
    shown = {name: value for name, value in document.items() if value}
    return json.dumps(shown, sort_keys=True, separators=(",", ":"))


def _type_text(kind: pa.DataType) -> str | None:
    """The type as text; None for what has no written form, such as the type of NULL: then the value stands for it."""
    try:
        return type_name(kind) if parse_type(type_name(kind)) == kind else None
    except (ValueError, HeadgateError):
        return None


def filters_of(stream: Stream) -> Compile:
    """What compiles the templates of a stream's classes."""
    layout = layout_of(stream)

    def compile_template(template: str) -> RowFilter:
        document: Mapping[str, Any] = json.loads(template)
        types = {name: parse_type(kind) for name, kind in document.get("context", {}).items()}
        types |= context_types(document.get("values", {}))
        rows = compile_profile(document["profile"], document["where"], stream.schema, types)
        shaped = Subscription("", stream.name, "", region=document.get("region"), resolution=document.get("resolution"))
        return with_grid(rows, shaped, stream, layout=layout)

    return compile_template


def kind_of(template: str) -> str | None:
    """The profile type of a template that is a profile and nothing else, no region and no resolution beside it."""
    document: Mapping[str, Any] = json.loads(template)
    return None if "region" in document or "resolution" in document else str(document["profile"])


def definitions_of(snapshot: Snapshot, stream: str) -> dict[int, ClassDefinition]:
    """The delivery classes of a stream under a snapshot, each once, by id."""
    found = subscribers_of(snapshot, stream)
    return {identity: definition_of(identity, subscription) for identity, subscription in found.items()}


def definition_of(identity: int, subscription: Subscription) -> ClassDefinition:
    """The delivery class of an id, of which a subscription is."""
    return ClassDefinition(identity, template_of(subscription), dict(subscription.context))


def subscribers_of(snapshot: Snapshot, stream: str) -> dict[int, Subscription]:
    """One subscription of each delivery class of a stream, by the id of the class."""
    found: dict[int, Subscription] = {}
    classes = snapshot.class_ids
    for name, subscription in snapshot.deployment.subscriptions.items():
        if subscription.stream == stream:
            found.setdefault(classes[name], subscription)
    return found


def tolerances_of(snapshot: Snapshot, stream: str) -> dict[int, float]:
    """What each class of a stream tolerates: the share of rows that may be withheld from it."""
    otherwise = tolerance_of(snapshot.deployment.streams[stream].admission.require)
    return {
        snapshot.class_ids[name]: otherwise
        if subscription.require is None
        else tolerance_of(subscription.require, otherwise)
        for name, subscription in snapshot.deployment.subscriptions.items()
        if subscription.stream == stream
    }


def stricter_than(snapshot: Snapshot, stream: str, tolerance: float) -> dict[int, ClassDefinition]:
    """The classes of a stream that tolerate less than that."""
    found = tolerances_of(snapshot, stream)
    return {each: made for each, made in definitions_of(snapshot, stream).items() if found[each] < tolerance}


def true_states(snapshot: Snapshot, stream: str) -> dict[int, bool]:
    """The classes of a stream whose own requirement allows no wrong match, and whether each has a context."""
    return {
        snapshot.class_ids[name]: bool(subscription.context)
        for name, subscription in snapshot.deployment.subscriptions.items()
        if subscription.stream == stream and wants_true_state(subscription.require)
    }


def reading_of(stream: Stream) -> RowReading:
    """How an index of the stream reads classes and rows; a gridded stream's rows get their places on the grid first."""
    layout = layout_of(stream)
    if layout is None:
        return RowReading(stream.schema, filters_of(stream), kind_of=kind_of)
    places = place_schema(stream.schema, layout)
    return RowReading(places, filters_of(stream), lambda rows: with_places(rows, layout), kind_of)


def index_of(snapshot: Snapshot, stream: str) -> LiveIndex:
    """The index that a version stands for, compiled here."""
    reading = reading_of(snapshot.deployment.streams[stream])
    return LiveIndex.build(reading, grouped(definitions_of(snapshot, stream).values()))
