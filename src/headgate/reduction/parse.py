"""Policies from the deployment file: a document of levels and digesters, checked against the stream's schema.

::

    attribute: bpm                 # for filters and digesters that name none
    key: patient                   # likewise
    digest: [max, min]             # or [{max: bpm}, {box: [x, y]}, "min(bpm)"]
    levels:
      - delta: 5                   # a filter by its main value
      - drop: {within: [50, 100]}  # conditions say what happens to rows for which they are true
      - drop where: "alarm = 0"    # any expression
      - [{every: 2}, {max_age: {age: 30 s}}]   # several filters in one level
      - latest: {n: 10, key: patient}

`levels: auto` with `allow:` (the same list) leaves the order to what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.errors import HeadgateError
from headgate.model import Schema, parse_bytes
from headgate.reduction.digesters import DIGESTERS, Digester
from headgate.reduction.errors import PolicyError, unknown
from headgate.reduction.filters import FILTERS, ReductionFilter
from headgate.reduction.filters.max_age import MaxAge
from headgate.reduction.policy import CONTROLLERS, DEFAULT_CONTROLLER, Level, Policy, canonical, default_policy
from headgate.reduction.reader import Reader

_FILTERS = {kind.name: kind for kind in FILTERS}
_DIGESTERS = {kind.name: kind for kind in DIGESTERS}
_AUTO = ({"random": 0.1}, {"random": 0.25}, {"random": "needed"})


def parse_policy(document: Mapping[str, Any] | None, schema: Schema, where: str = "") -> Policy:
    """The policy that a document describes; None is the default policy.

    Raises `PolicyError` with the path inside the document, what was expected and the nearest name.

    >>> policy = parse_policy({"levels": [{"every": 2}]}, Schema.of({"bpm": "double"}))
    >>> [level.label for level in policy.levels]
    ['every']
    """
    if document is None:
        return default_policy()
    if not isinstance(document, Mapping):
        raise PolicyError("a policy is a mapping", where=where or None, hint="write levels: [...] and digest: [...]")
    reader = Reader(document, schema, where)
    attribute = reader.column("attribute") if reader.has("attribute") else None
    reader.default_attribute = attribute
    reader.default_key = reader.key()
    automatic = reader.raw("levels") == "auto"
    levels = read_levels(reader, "allow" if automatic else "levels", automatic)
    max_age = None
    if reader.has("max_age"):
        max_age = _filter(reader, {"max_age": document["max_age"]}, reader.where)
    policy = Policy(
        levels=levels,
        digesters=_digesters(reader),
        controller=reader.choice("controller", CONTROLLERS, DEFAULT_CONTROLLER),
        automatic=automatic,
        max_age=max_age if isinstance(max_age, MaxAge) else None,
        headroom=reader.number("headroom", 0.1, low=0.0, high=0.9),
        max_rows=reader.integer("max_rows") if reader.has("max_rows") else None,
        max_bytes=_size(reader, "max_bytes"),
        text=canonical(document),
    )
    reader.has("allow")
    reader.done()
    return policy


def _size(reader: Reader, name: str) -> float | None:
    if not reader.has(name):
        return None
    try:
        return parse_bytes(reader.document[name])
    except HeadgateError as error:
        raise PolicyError(error.message, where=reader.at(name), hint=error.hint) from error


def read_levels(reader: Reader, name: str, automatic: bool) -> tuple[Level, ...]:
    """The levels in the document's order."""
    found = reader.raw(name, list(_AUTO) if automatic else [{"random": "needed"}])
    if not isinstance(found, list | tuple) or not found:
        raise PolicyError(f"{found!r} is not a list of levels", where=reader.at(name), hint="write `- delta: 5`")
    levels = []
    for index, item in enumerate(found):
        place = f"{reader.at(name)}[{index}]"
        if isinstance(item, list | tuple):
            filters = tuple(_filter(reader, each, f"{place}[{inner}]") for inner, each in enumerate(item))
        else:
            filters = (_filter(reader, item, place),)
        if not filters:
            raise PolicyError("a level without filters", where=place, hint="write for example `every: 2`")
        levels.append(Level(filters))
    return tuple(levels)


def _plain(name: Any) -> str:
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")


def _filter(outer: Reader, item: Any, where: str) -> ReductionFilter:
    """One filter from a mapping with the filter's name as a key, its parameters as that key's value or beside it."""
    if isinstance(item, str):
        item = {item: None}
    if not isinstance(item, Mapping) or not item:
        raise PolicyError(f"{item!r} is not a filter", where=where, hint="write `name: value` or `name: {...}`")
    key, value, beside = _named(item, where)
    name, inside = _plain(key), f"{where}.{key}"
    if name in ("drop", "keep"):
        if isinstance(value, str):
            name, value = f"{name}_where", {"where": value}
        else:
            return _directed(outer, name, value, beside, inside)
    kind = _FILTERS[name]
    if kind.directed:
        raise PolicyError(
            f"{name!r} does not say what happens to rows for which it is true",
            where=where,
            hint=f"write `drop: {{{name}: ...}}` or `keep: {{{name}: ...}}`",
        )
    return _read(outer, kind, value, beside, inside)


def _named(item: Mapping[str, Any], where: str) -> tuple[str, Any, dict[str, Any]]:
    known = [*_FILTERS, "drop", "keep"]
    found = [key for key in item if _plain(key) in known]
    if len(found) > 1 and len(item) == len(found):
        raise PolicyError(
            f"two filters in one mapping: {', '.join(map(str, found))}",
            where=where,
            hint="write each as an item of its own",
        )
    if not found:
        raise unknown("reduction filter", str(next(iter(item))), known, where)
    first = found[0]
    return str(first), item[first], {str(key): value for key, value in item.items() if key != first}


def _directed(outer: Reader, action: str, value: Any, beside: dict[str, Any], where: str) -> ReductionFilter:
    if not isinstance(value, Mapping) or not value:
        raise PolicyError(f"{value!r} is not a condition", where=where, hint="{within: [50, 100]}")
    key, inner, more = _named(value, where)
    name = _plain(key)
    kind = _FILTERS.get(name)
    if kind is None or not kind.directed:
        raise PolicyError(
            f"{name!r} is not a condition",
            where=where,
            hint=f"write it without `{action}:`" if kind else "name one condition",
        )
    return _read(outer, kind, inner, {**beside, **more}, f"{where}.{key}", drop=action == "drop")


def _read(
    outer: Reader, kind: type[ReductionFilter], value: Any, beside: dict[str, Any], where: str, drop: bool | None = None
) -> ReductionFilter:
    document = dict(beside)
    if isinstance(value, Mapping):
        document.update({str(key): item for key, item in value.items()})
    elif value is not None:
        if kind.main is None:
            raise PolicyError(f"{kind.name!r} has several parameters", where=where, hint="write `name: {a: 1, b: 2}`")
        document[kind.main] = value
    if drop is not None:
        document["drop"] = drop
    reader = Reader(document, outer.schema, where, outer.default_attribute, outer.default_key)
    reader.has("key")
    found = kind.read(reader)
    reader.done()
    return found


def _digesters(reader: Reader) -> tuple[Digester, ...]:
    written = reader.raw("digest", [])
    if isinstance(written, Mapping):
        written = [{name: value} for name, value in written.items()]
    items = written if isinstance(written, list | tuple) else [written]
    found: dict[str, Digester] = {}
    for index, item in enumerate(items):
        where = f"{reader.at('digest')}[{index}]"
        name, value = _digester_item(item, where)
        if name not in _DIGESTERS:
            raise unknown("digester", name, _DIGESTERS, where)
        inner = Reader({}, reader.schema, where, reader.default_attribute)
        digester = _DIGESTERS[name].read(inner, value)
        found[digester.label] = digester
    return tuple(found.values())


def _digester_item(item: Any, where: str) -> tuple[str, Any]:
    if isinstance(item, Mapping) and len(item) == 1:
        name, value = next(iter(item.items()))
        return _plain(name), value
    if isinstance(item, str):
        name, bracket, rest = item.partition("(")
        inside = [part.strip() for part in rest.rstrip(") ").split(",")]
        return _plain(name), None if not bracket else inside[0] if len(inside) == 1 else inside
    raise PolicyError(f"{item!r} is not a digester", where=where, hint="write `max`, `max: bpm` or `box: [x, y]`")
