"""Model values as plain JSON documents and back, compact and deterministic.

The catalog stores these documents and publishes them to relays and Spark workers. Equal values have equal bytes: keys
are sorted, what has its default value is left out, numbers keep their exact value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar

from headgate.model import (
    Admission,
    Column,
    Grant,
    GroupRule,
    Link,
    LinkQueue,
    Links,
    Narrowed,
    Plan,
    Quality,
    QualityTable,
    Schema,
    Site,
    Source,
    Stay,
    Stream,
    Subscription,
    Tree,
    parse_type,
    type_name,
)


class _Value(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=_Value)
_TEXT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def dumps(document: Any) -> str:
    """The one JSON text of a document.

    >>> dumps({"b": 1, "a": [1.5, None]})
    '{"a":[1.5,null],"b":1}'
    """
    return _TEXT.encode(document)


@cache
def _defaults(kind: type[_Value]) -> tuple[tuple[str, Any], ...]:
    """The fields of a kind of value with their defaults, found once: a bulk change encodes thousands of values."""
    return tuple(
        (field.name, field.default if field.default_factory is MISSING else field.default_factory())
        for field in fields(kind)
    )


def _encode(value: _Value, without: tuple[str, ...] = (), **own: Callable[[Any], Any]) -> dict[str, Any]:
    """The fields that differ from their default, each through its own encoder where it has one."""
    document: dict[str, Any] = {}
    for name, default in _defaults(type(value)):
        found = getattr(value, name)
        if found is default or name in without:
            continue
        if default is MISSING or found != default:
            document[name] = own[name](found) if name in own else _plain(found)
    return document


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _decode(kind: type[T], document: Mapping[str, Any], **own: Callable[[Any], Any]) -> T:
    return kind(**{name: own[name](value) if name in own else value for name, value in document.items()})


def encode_schema(schema: Schema) -> list[list[str]]:
    """Columns as [name, type] or [name, type, unit]."""
    return [
        [column.name, type_name(column.type), *([] if column.unit is None else [column.unit])]
        for column in schema.columns
    ]


def decode_schema(document: list[list[str]]) -> Schema:
    """The inverse of `encode_schema`."""
    return Schema(tuple(Column(name, parse_type(kind), *unit) for name, kind, *unit in document))


def encode_stream(stream: Stream) -> dict[str, Any]:
    """A stream without its name."""
    return _encode(stream, ("name",), schema=encode_schema, source=_encode, admission=_encode)


def decode_stream(name: str, document: Mapping[str, Any]) -> Stream:
    """The inverse of `encode_stream`."""
    return _decode(
        Stream,
        {"name": name, **document},
        schema=decode_schema,
        key=tuple,
        source=lambda found: _decode(Source, found),
        admission=lambda found: _decode(Admission, found),
    )


def encode_site(site: Site) -> dict[str, Any]:
    """A site without its name."""
    return _encode(site, ("name",))


def decode_site(name: str, document: Mapping[str, Any]) -> Site:
    """The inverse of `encode_site`."""
    return _decode(Site, {"name": name, **document}, position=tuple)


def encode_links(links: Links) -> dict[str, Any]:
    """Links with their pairs in the order of their names."""
    pairs = [
        [*sorted(link.ends), link.delay_s, link.capacity_bytes_per_s, _encode(link.queue), link.follow]
        for link in links.pairs.values()
    ]
    ordered = sorted(pairs, key=lambda pair: pair[:2])
    found: dict[str, Any] = {"default_delay_s": links.default_delay_s, "pairs": ordered}
    if links.only_listed:
        found["only_listed"] = True
    return found if links.queue == LinkQueue() else {**found, "queue": _encode(links.queue)}


def decode_links(document: Mapping[str, Any]) -> Links:
    """The inverse of `encode_links`."""
    links = [
        Link(frozenset((one, other)), delay_s, capacity, LinkQueue(**queue), *follow)
        for one, other, delay_s, capacity, queue, *follow in document["pairs"]
    ]
    defaults = LinkQueue(**document.get("queue", {}))
    pairs = {link.ends: link for link in links}
    return Links(document["default_delay_s"], pairs, defaults, document.get("only_listed", False))


def encode_subscription(subscription: Subscription) -> dict[str, Any]:
    """A subscription without its name."""
    return _encode(
        subscription,
        ("name",),
        quality=lambda found: _encode(found, table=_encode),
        group=_encode,
        narrowed=_encode_narrowed,
    )


def decode_subscription(name: str, document: Mapping[str, Any]) -> Subscription:
    """The inverse of `encode_subscription`."""
    return Subscription(name=name, **subscription_fields(document))


def subscription_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a subscription, all but its name."""
    return {name: _FIELDS[name](value) if name in _FIELDS else value for name, value in document.items()}


def _encode_narrowed(narrowed: Narrowed) -> dict[str, Any]:
    return _encode(narrowed, grant=encode_grant)


def _decode_narrowed(document: Mapping[str, Any]) -> Narrowed:
    asked = dict(document.get("asked", {}))
    if asked.get("select") is not None:
        asked["select"] = tuple(asked["select"])
    return Narrowed(decode_grant(document.get("grant", {})), asked)


def encode_grant(grant: Grant) -> dict[str, Any]:
    """A grant."""
    return _encode(grant)


def decode_grant(document: Mapping[str, Any]) -> Grant:
    """The inverse of `encode_grant`."""
    columns = document.get("columns")
    return Grant(document.get("where", "true"), None if columns is None else tuple(columns))


def _decode_stays(document: list[list[Any]]) -> tuple[Stay, ...]:
    return tuple(Stay(int(number), str(site), _decode_shared(shared)) for number, site, shared in document)


def _decode_shared(document: list[int] | None) -> tuple[int, int] | None:
    if document is None:
        return None
    subscription, stay = document
    return int(subscription), int(stay)


def _decode_paused(document: list[str]) -> tuple[str, str]:
    where, profile = document
    return where, profile


def _decode_quality(document: Mapping[str, Any]) -> Quality:
    return _decode(Quality, document, table=_decode_table)


def _decode_table(document: Mapping[str, Any]) -> QualityTable:
    return _decode(
        QualityTable, document, drops=tuple, delays_s=tuple, values=lambda rows: tuple(tuple(row) for row in rows)
    )


_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "select": tuple,
    "quality": _decode_quality,
    "group": lambda found: _decode(GroupRule, found),
    "left": _decode_stays,
    "shared": _decode_shared,
    "narrowed": _decode_narrowed,
    "paused": _decode_paused,
}


def encode_tree(tree: Tree) -> dict[str, Any]:
    """A delivery tree without its stream."""
    return _encode(tree, ("stream",))


def decode_tree(stream: str, document: Mapping[str, Any]) -> Tree:
    """The inverse of `encode_tree`."""
    return _decode(Tree, {"stream": stream, **document})


def encode_plan(plan: Plan) -> dict[str, Any]:
    """A plan as its trees by stream."""
    return {name: encode_tree(tree) for name, tree in plan.trees.items()}


def decode_plan(document: Mapping[str, Any]) -> Plan:
    """The inverse of `encode_plan`."""
    return Plan({name: decode_tree(name, tree) for name, tree in document.items()})
