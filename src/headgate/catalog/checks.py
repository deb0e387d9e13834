"""What types alone cannot say: names that must exist, columns of the right type, trees that hang together.

The checks work on the values of `headgate.model`, so that a deployment file and a subscription made while running obey
the same rules. A finding names its place relative to the thing that was checked.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headgate.catalog.engines import (
    check_admission,
    check_derived,
    check_grid,
    check_policy,
    check_regions,
    check_tile,
    check_update_victims,
    read_constraint,
    read_grid,
    read_objective,
    spread_subscription,
)
from headgate.catalog.positions import Path
from headgate.catalog.problems import suggestion
from headgate.catalog.profiles import PROFILES, ROW_COST, check_cost, read_filter
from headgate.errors import HeadgateError, nearest
from headgate.filters import FilterError
from headgate.filters.cost import ROW_US
from headgate.filters.limits import check_context
from headgate.filters.ranking import deal_ranking
from headgate.model import Links, Plan, Schema, Site, Stream, Subscription, Tree, parse_duration, type_name
from headgate.model.roots import members_of

_KEYS: tuple[Callable[[pa.DataType], bool], ...] = (pa.types.is_nested, pa.types.is_binary)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
DURATIONS = frozenset(("shed_after", "replan_every", "tuner_every", "replicas_ahead", ROW_COST))
"""Options of a whole deployment that are durations."""
SWITCHES = frozenset(("replan_approve", "replicas"))
"""Options of a whole deployment that are true or false."""
CHOICES = {
    "planner": ("central", "tuner"),
    "tuner_mode": ("bottleneck", "opportunistic", "random", "concurrent"),
}
"""Options of a whole deployment that are one of some words, or several with commas between them for a mode."""
PARTS = frozenset(("replan_move_gain", "tuner_approximate"))
"""Options of a whole deployment that are parts: numbers of at least 0."""
SHARES = "matching_shares"
"""The option of a whole deployment that gives users other shares of the matching than 1."""
FORMATS = (
    "generator", "nats", "nats-core", "mqtt", "netcdf", "zarr", "kafka",
    "json", "csv", "xml", "text", "parquet", "orc", "avro",
    "rate", "rate-micro-batch", "socket", "binaryFile",
)  # fmt: skip
"""Formats of sources that come with Headgate or with Spark."""
PACKAGED = frozenset(
    ("delta", "deltaSharing", "iceberg", "hudi", "kinesis", "pulsar", "eventhubs", "pubsub", "mqtt", "redis", "mongodb")
)
"""Formats of well-known Spark packages, which are no misspellings of others."""
_DOCUMENTS = ("derive", "roots", "gridding", "grid", "admission", "region", "resolution", "policy")


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something wrong at a place relative to the thing that was checked; `offset` is a character inside a text."""

    path: Path
    message: str
    hint: str | None = None
    offset: int | None = None


def unknown(path: Path, kind: str, name: str, known: Collection[str]) -> Flaw:
    """The finding that a name does not exist, with the nearest one that does."""
    return Flaw(path, f"unknown {kind} {name!r}", suggestion(name, sorted(known), f"{kind}s"))


def check_format(form: str) -> Iterator[Flaw]:
    """Findings of a source's format that is nearly, but not quite, one that is known.

    Others pass: a Spark package may have any format, and a dotted name is that of a class.
    """
    if form in FORMATS or form in PACKAGED or "." in form:
        return
    close = nearest(form, FORMATS)
    if close is not None or not form.strip():
        yield Flaw(("source", "format"), f"unknown format {form!r}", suggestion(form, FORMATS, "formats"))


def check_stream(stream: Stream, sites: Collection[str]) -> Iterator[Flaw]:
    """Findings of one stream: its root, key, event time, grid and admission control."""
    if stream.root not in sites:
        yield unknown(("root",), "site", stream.root, sites)
    schema = stream.schema
    lowered: dict[str, str] = {}
    for name in schema.names:
        twin = lowered.setdefault(name.lower(), name)
        if twin != name:
            what = f"columns {twin!r} and {name!r} differ only in case"
            yield Flaw(("schema", name), what, "filters ignore the case of column names; rename one of the two")
    for index, name in enumerate(stream.key):
        if name not in schema.names:
            yield _unknown_column(("key", index), name, schema)
        elif any(test(schema.column(name).type) for test in _KEYS):
            kind = type_name(schema.column(name).type)
            yield Flaw(("key", index), f"column {name!r} of type {kind} cannot be a key", "use a plain column")
    if stream.event_time is not None:
        if stream.event_time not in schema.names:
            yield _unknown_column(("event_time",), stream.event_time, schema)
        elif not pa.types.is_timestamp(schema.column(stream.event_time).type):
            kind = type_name(schema.column(stream.event_time).type)
            what = f"column {stream.event_time!r} has the type {kind}, but event time needs a timestamp"
            times = [column.name for column in schema.columns if pa.types.is_timestamp(column.type)]
            yield Flaw(("event_time",), what, suggestion("", times, "timestamp columns"))
    try:
        check_grid(stream)
    except HeadgateError as error:
        yield _inside(error, "grid")
    try:
        check_derived(stream)
    except HeadgateError as error:
        yield _inside(error, "derive")
    try:
        check_admission(stream)
    except HeadgateError as error:
        yield _inside(error, "admission")


def check_victims(stream: Stream, subscriptions: Iterable[Subscription]) -> Iterator[Flaw]:
    """Findings of a stream's choice of updates to shed against the contexts of the subscriptions that there are."""
    try:
        check_update_victims(stream, subscriptions)
    except HeadgateError as error:
        yield _inside(error, "admission")


def check_roots_of(whole: Stream, regions: Mapping[str, Mapping[str, Any]]) -> Iterator[Flaw]:
    """Findings of the regions of a gridded stream's roots against each other."""
    try:
        check_regions(regions, whole)
    except HeadgateError as error:
        yield _inside(error, "roots")


def check_spread(
    subscription: Subscription,
    streams: Mapping[str, Stream],
    known: Mapping[str, Stream | None],
    sites: Collection[str],
    limit_us: float = ROW_US,
) -> tuple[list[Subscription], list[Flaw]]:
    """A subscription, or those that it is at the roots of its stream, and the findings about it.

    All roots have the same columns and grid, so that one of them stands for all.
    """
    members = members_of(streams, subscription.stream)
    first = replace(subscription, stream=next(iter(members.values())).name) if members else subscription
    findings = list(check_subscription(first, known, sites, limit_us))
    if not any(finding.path[:1] in (("where",), ("context",)) for finding in findings):  # it can be read
        findings += _check_use(first, known.get(first.stream), limit_us)
    if not members:
        return [subscription], findings
    return ([] if findings else spread_subscription(subscription, members)), findings


def _check_use(subscription: Subscription, stream: Stream | None, limit_us: float) -> Iterator[Flaw]:
    """Findings of context values that nothing refers to: mostly a name that is misspelt here or in the filter."""
    if stream is None or subscription.profile not in PROFILES or not subscription.context:
        return
    try:
        used = {*read_filter(subscription, stream.schema, limit_us).context}
        grid = read_grid(subscription, stream)
        used |= set() if grid is None else set(grid.context)
    except HeadgateError:
        return  # what cannot be read was reported already
    victims = str(stream.admission.options.get("update_victims", ""))
    used |= {word.removeprefix("was_") for word in re.findall(r"\w+", victims)}
    for name in subscription.context.keys() - used:
        what = f"nothing refers to the context value {name!r}"
        fix = f"write `${name}` in `where`, or leave it out"
        if used:
            fix = "`where` and `region` refer to " + ", ".join(f"${each}" for each in sorted(used))
        yield Flaw(("context", name), what, fix)


def check_name(name: str) -> Iterator[Flaw]:
    """Findings of a name that did not come from a deployment file, where the same rule stands in the models."""
    if not _NAME.fullmatch(name):
        yield Flaw((), f"{name!r} is not a name", "names have letters, digits, _ and -, at most 64")


def check_subscription(
    subscription: Subscription,
    streams: Mapping[str, Stream | None],
    sites: Collection[str],
    limit_us: float = ROW_US,
) -> Iterator[Flaw]:
    """Findings of one subscription against the streams (None for one that is broken itself) and the sites.

    `limit_us` is what evaluating its filter may cost for each row.
    """
    if subscription.site not in sites:
        yield unknown(("site",), "site", subscription.site, sites)
    if subscription.profile not in PROFILES:
        yield unknown(("profile",), "profile", subscription.profile, PROFILES)
    yield from _check_values(("context",), subscription.context)
    if subscription.context_from == subscription.name:
        yield Flaw(("context_from",), "a subscription cannot follow itself", "name another subscription")
    if subscription.stream not in streams:
        yield unknown(("stream",), "stream", subscription.stream, streams)
        return
    stream = streams[subscription.stream]
    if stream is not None:
        yield from _check_wishes(subscription, stream, limit_us)


def _check_thinning(subscription: Subscription, stream: Stream) -> Iterator[Flaw]:
    """Rows are thinned where they are delivered, so what they are thinned by has to be among what is delivered."""
    asked = [
        name
        for name, value in (
            ("every", subscription.every_s),
            ("at_most", subscription.at_most_rows_per_s),
            ("average", subscription.average_s),
        )
        if value is not None
    ]
    if "average" in asked and len(asked) > 1:
        what = f"`average` gives one row of each key and window, so there is nothing to thin by `{asked[0]}`"
        yield Flaw(("average",), what, f"leave one of `average` and `{asked[0]}` out")
    needed = [*(stream.key if asked != ["at_most"] else ()), *([stream.event_time] if stream.event_time else [])]
    for name in needed if asked and subscription.select is not None else ():
        if name not in (subscription.select or ()):
            what = "the event time" if name == stream.event_time else "the key"
            message = f"rows are thinned by {what} {name!r}, which is not selected"
            yield Flaw((asked[0],), message, "add it to `select`")


def _check_wishes(subscription: Subscription, stream: Stream, limit_us: float) -> Iterator[Flaw]:
    """Findings about the rows and columns that a subscription wants of its stream."""
    schema = stream.schema
    seen: set[str] = set()
    for index, name in enumerate(subscription.select or ()):
        if name not in schema.names:
            yield _unknown_column(("select", index), name, schema)
        elif name in seen:
            yield Flaw(("select", index), f"column {name!r} is selected twice", "name each column once")
        seen.add(name)
    yield from _check_thinning(subscription, stream)
    yield from _check_group(subscription, stream)
    if subscription.profile in PROFILES:
        yield from _check_filter(subscription, schema, limit_us)
    alone = []
    if subscription.region is not None:
        alone.append(("region", replace(subscription, resolution=None)))
    if subscription.resolution is not None:
        alone.append(("resolution", replace(subscription, region=None)))
    for key, each in alone:
        try:
            read_grid(each, stream)
        except HeadgateError as error:
            yield _inside(error, key)
    yield from _check_served(subscription, stream)
    try:
        check_policy(subscription, stream)
    except HeadgateError as error:
        yield _inside(error, "policy")


def _check_served(subscription: Subscription, stream: Stream) -> Iterator[Flaw]:
    """Findings about a part of a grid that a site serves: it is a whole box, at every resolution."""
    if subscription.serves_bytes_per_s is None:
        return
    less = {
        "where": subscription.where != "true",
        "select": subscription.select is not None,
        "resolution": subscription.resolution is not None,
        "every": subscription.every_s is not None,
        "at_most": subscription.at_most_rows_per_s is not None,
        "average": subscription.average_s is not None,
        "group": subscription.group is not None,
    }
    for key in (name for name, given in less.items() if given):
        yield Flaw((key,), "a part that a site serves has all rows of its box", f"leave out `{key}`, or `serves`")
    try:
        check_tile(subscription, stream)
    except HeadgateError as error:
        yield _inside(error, "region")


def _check_group(subscription: Subscription, stream: Stream) -> Iterator[Flaw]:
    """Findings about how a group's rows are dealt out."""
    rule = subscription.group
    if rule is None or not {*(subscription.select or ())} <= {*stream.schema.names}:
        return
    yield from _check_values(("group", "context"), rule.context)
    try:
        deal_ranking(rule, stream.schema.select(subscription.select))
    except FilterError as error:
        what = f"{error.message}, at character {error.position + 1} of {rule.deal[:80]!r}"
        yield Flaw(("group", "deal"), what, error.hint, error.position)
    except HeadgateError as error:
        yield Flaw(("group", "deal"), error.message, error.hint)


def _check_filter(subscription: Subscription, schema: Schema, limit_us: float) -> Iterator[Flaw]:
    """Findings about the filter of a subscription and the values that it may refer to."""
    try:
        check_context(subscription.context)
    except FilterError as error:
        yield Flaw(("context",), error.message, error.hint)
        return
    try:
        check_cost(subscription, schema, limit_us)
    except FilterError as error:
        shown = subscription.where if len(subscription.where) <= 80 else subscription.where[:77] + "..."
        what = f"{error.message}, at character {error.position + 1} of {shown!r}"
        yield Flaw(("where",), what, error.hint, error.position)
    except HeadgateError as error:
        yield Flaw(("profile",), error.message, error.hint)


def _inside(error: HeadgateError, key: str) -> Flaw:
    """The finding of an error whose `where` ends in a dotted place, such as `subscription 'a', region.box.x`."""
    place = next((part for part in (error.where or "").split(", ") if part.startswith(_DOCUMENTS)), key)
    parts = re.findall(r"[^.\[\]]+|\[\d+\]", place)
    path: Path = tuple(int(part[1:-1]) if part.startswith("[") else part for part in parts)
    position = getattr(error, "position", None)
    placed = "" if position is None else f", at character {position + 1}"
    return Flaw(path, error.message + placed, error.hint, position)


def _check_values(path: Path, values: Mapping[str, Any]) -> Iterator[Flaw]:
    for name, value in values.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            what = f"{name!r} has a value that cannot be stored"
            yield Flaw((*path, name), what, "use finite numbers, text, truth values and lists of them")


def _unknown_column(path: Path, name: str, schema: Schema) -> Flaw:
    return Flaw(path, f"unknown column {name!r}", suggestion(name, schema.names, "columns"))


def check_settings(
    objective: str | None, constraints: Sequence[str], options: Mapping[str, Any] | None = None
) -> Iterator[Flaw]:
    """Findings of the texts that say what a plan is measured by and must keep to, and of options that have a type."""
    texts: list[tuple[Path, str, Callable[[str], object]]] = [
        (("constraints", index), text, read_constraint) for index, text in enumerate(constraints)
    ]
    if objective is not None:
        texts.insert(0, (("objective",), objective, read_objective))
    given = options or {}
    texts.extend((("options", name), str(given[name]), parse_duration) for name in sorted(DURATIONS & set(given)))
    texts.extend((("options", name), str(given[name]), _read_part) for name in sorted(PARTS & set(given)))
    for name in sorted(SWITCHES & set(given)):
        if not isinstance(given[name], bool):
            yield Flaw(("options", name), f"{given[name]!r} is not a truth value", "write true or false")
    yield from _check_shares(given.get(SHARES, {}))
    for name in sorted(CHOICES.keys() & set(given)):
        words = [word.strip() for word in str(given[name]).split(",")] if name == "tuner_mode" else [given[name]]
        for word in words:
            if word not in CHOICES[name]:
                hint = suggestion(str(word), CHOICES[name], "choices")
                yield Flaw(("options", name), f"{word!r} is nothing that {name!r} can be", hint)
    for path, text, read in texts:
        try:
            read(text)
        except HeadgateError as error:
            position = getattr(error, "position", None)
            place = "" if position is None else f", at character {position + 1} of {text[:80]!r}"
            yield Flaw(path, error.message + place, error.hint, position)


def _check_shares(given: Any) -> Iterator[Flaw]:
    """Flaws of the shares of users: a mapping of names to numbers above 0."""
    hint = "write a number above 0 for each user, such as {ada: 3}"
    if not isinstance(given, Mapping):
        yield Flaw(("options", SHARES), f"{given!r:.60} is no mapping of users", hint)
        return
    for name, share in given.items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < float("inf"):
            yield Flaw(("options", SHARES, str(name)), f"{share!r:.60} is no share", hint)


def _read_part(text: str) -> float:
    try:
        part = float(text)
    except ValueError:
        part = math.nan
    if not (math.isfinite(part) and part >= 0.0):
        raise HeadgateError(f"{text!r} is not a part", hint="a part is a number of at least 0, such as 0.5")
    return part


def check_tree(
    stream: str, root: str, parents: Mapping[str, str], sites: Collection[str], members: Collection[str] = ()
) -> Iterator[Flaw]:
    """Findings of one delivery tree: known sites, one tree from the root, every site of `members` reached."""
    wrong = False
    for child, parent in parents.items():
        for name in (child, parent):
            if name not in sites:
                wrong = True
                yield unknown((child,), "site", name, sites)
    if wrong:
        return
    try:
        tree = Tree(stream, root, dict(parents))
    except ValueError as error:
        yield Flaw((), str(error), f"every site needs a path of parents up to {root!r}")
        return
    for site in sorted(set(members) - set(tree.members)):
        what = f"the tree does not reach {site!r}, which has subscriptions to {stream!r}"
        yield Flaw((), what, f"add `{site}: PARENT`, for example `{site}: {root}`")


def check_links(parents: Mapping[str, str], links: Links, sites: Mapping[str, Site]) -> Iterator[Flaw]:
    """Findings of a tree against what can connect: pairs that are not listed, and parents that nobody can dial."""
    for child, parent in parents.items():
        if not links.connected(parent, child):
            what = f"{parent!r} and {child!r} are no listed pair, and only those can connect"
            yield Flaw((child,), what, "list the pair under `links: pairs`, or choose another parent")
        if parent in sites and sites[parent].is_private:
            what = f"nobody can dial the server of {parent!r}, so it can have no children"
            yield Flaw((child,), what, f"give {parent!r} an address (`nats: tls://HOST:PORT`), or another parent")


def check_plan(plan: Plan, roots: Mapping[str, str], sites: Collection[str]) -> Iterator[Flaw]:
    """Findings of a plan against the streams (by root) and the sites."""
    for name, tree in plan.trees.items():
        if name not in roots:
            yield unknown((name,), "stream", name, roots)
        elif tree.root != roots[name]:
            what = f"the tree of {name!r} starts at {tree.root!r}, but the stream's root is {roots[name]!r}"
            yield Flaw((name,), what, "plan again from the current catalog")
        else:
            yield from check_tree(name, tree.root, tree.parents, sites)
