"""The problem behind a deployment: its sites, links and streams, with subscriptions as interests.

Every distinct delivery class of a stream (filter, resolution, region) has one piece of its universe and takes those of
the classes that it contains by filter, region and resolution (`covering`); every column of the schema has a width. A
member's interest is the set of its local subscriptions' pieces and columns. A class that takes the whole stream takes
all pieces. What is not known is assumed: a filter passes a fifth of the rows (and at least what it covers), a region
and a resolution their part of the grid, a string takes 16 bytes. Measured figures replace assumptions through `sizes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.grid import GridShape
from headgate.model import Deployment, Stream, Subscription
from headgate.planning.covering import Comparisons, class_text, shape_of, takes_all_rows
from headgate.planning.doubled import less_doubled
from headgate.planning.interest import InterestPieces, Universe
from headgate.planning.problem import Delays, Flow, Member, Problem, ProblemError, Want

ASSUMED_SELECTIVITY = 0.2
ASSUMED_STRING_BYTES = 16.0
UNLIMITED_BYTES_PER_S = 1e15  # of a link that is named only because others do not exist
ASSUMED_RATE_ROWS_PER_S = 1.0  # only for want of a number: plans say that the rate is unknown
ROW_OVERHEAD_BYTES = 8.0  # class ids, sequence, framing: what a row costs besides its columns


@dataclass(frozen=True, slots=True)
class Sizes:
    """Measured figures: bytes of a row and rows per second by stream, part of the rows selected by subscription."""

    row_bytes: Mapping[str, float] = field(default_factory=dict)
    rate_rows_per_s: Mapping[str, float] = field(default_factory=dict)
    selectivity: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, sizes: Mapping[str, Any] | Sizes | None) -> Sizes:
        """Figures from a document with the keys `row_bytes`, `rate_rows_per_s`, `selectivity`, any of them."""
        if isinstance(sizes, Sizes):
            return sizes
        unknown = set(sizes or {}) - {"row_bytes", "rate_rows_per_s", "selectivity"}
        if unknown:
            raise ProblemError(
                f"unknown figures {sorted(unknown)}", hint="known are row_bytes, rate_rows_per_s and selectivity"
            )
        return cls(**(sizes or {}))


def problem_of(
    deployment: Deployment, sizes: Mapping[str, Any] | Sizes | None = None, known: Comparisons | None = None
) -> Problem:
    """The planning problem of a deployment; unknown bandwidths count as unlimited until they are measured.

    What second paths of the deployment's plan take is not there for others. Whoever makes one problem after another
    keeps what is `known` of how its classes compare.
    """
    return less_doubled(whole_problem(deployment, sizes, known), deployment)


def whole_problem(
    deployment: Deployment, sizes: Mapping[str, Any] | Sizes | None = None, known: Comparisons | None = None
) -> Problem:
    """The problem with all bandwidth, whatever second paths take of it."""
    measured, known = Sizes.of(sizes), known or Comparisons()
    by_stream: dict[str, list[Subscription]] = {name: [] for name in deployment.streams}
    for subscription in deployment.subscriptions.values():
        if subscription.stream not in by_stream:
            raise ProblemError(
                f"subscription {subscription.name!r} wants {subscription.stream!r}, which is no stream",
                hint=f"streams are {', '.join(deployment.streams)}",
            )
        by_stream[subscription.stream].append(subscription)
    flows, members = [], []
    for name, stream in deployment.streams.items():
        flow, found = _members(stream, by_stream[name], measured, known)
        flows.append(flow)
        members += found
    sites = tuple(deployment.sites.values())
    relays = deployment.options.get("relays", ())
    return Problem(
        sites,
        tuple(flows),
        tuple(members),
        _delays(deployment),
        _capacities(deployment),
        physical=deployment.links.only_listed or _private(deployment),
        relays=frozenset(deployment.sites if relays == "all" else relays),
    )


def _whole(subscription: Subscription) -> bool:
    return takes_all_rows(subscription) and not subscription.resolution and not subscription.region


def assumed_part(subscription: Subscription, stream: Stream) -> float:
    """The part of the rows that a class takes as long as nobody has measured it: its filter's and its grid's."""
    return _assumed(subscription, shape_of(subscription, stream))


def assumed_row_bytes(stream: Stream) -> float:
    """Bytes of a whole row as long as nobody has measured it."""
    return ROW_OVERHEAD_BYTES + sum(width(column.type) for column in stream.schema.columns)


def _assumed(subscription: Subscription, shape: GridShape | None) -> float:
    selectivity = 1.0 if takes_all_rows(subscription) else ASSUMED_SELECTIVITY
    return selectivity if shape is None else selectivity * shape.fraction


def _members(
    stream: Stream, subscriptions: list[Subscription], measured: Sizes, known: Comparisons
) -> tuple[Flow, list[Member]]:
    classes: dict[str, int] = {}
    weights: list[float] = []
    shapes: dict[str, GridShape | None] = {}
    firsts: dict[str, Subscription] = {}
    class_of: dict[str, int] = {}  # of each subscription that does not take the whole stream
    plain: dict[tuple[str, str], int] = {}  # classes that are nothing but a filter, of which there may be very many
    for subscription in subscriptions:
        if _whole(subscription):
            continue
        bare = not (subscription.resolution or subscription.region or subscription.context)
        if bare and (subscription.where, subscription.profile) in plain:
            class_of[subscription.name] = plain[subscription.where, subscription.profile]
            continue
        text = class_text(subscription)
        if text not in classes:
            classes[text], firsts[text] = len(weights), subscription
            shapes[text] = shape_of(subscription, stream)
            weights.append(_assumed(subscription, shapes[text]))
        class_of[subscription.name] = classes[text]
        if bare:
            plain[subscription.where, subscription.profile] = classes[text]
    for name, position in class_of.items() if measured.selectivity else ():
        if name in measured.selectivity:
            weights[position] = min(1.0, max(0.0, measured.selectivity[name]))
    held = known.covered(stream, firsts, classes, shapes)
    if held is not None:
        weights = _beyond(weights, held)
    # One more piece for the rows that no class asks for, so that taking the whole stream costs the whole stream.
    weights.append(max(0.0, 1.0 - sum(weights)))
    columns = {column.name: width(column.type) for column in stream.schema.columns}
    scale = 1.0
    if stream.name in measured.row_bytes:
        scale = measured.row_bytes[stream.name] / assumed_row_bytes(stream)
    universe = Universe(tuple(weights), tuple(w * scale for w in columns.values()), ROW_OVERHEAD_BYTES * scale)
    flow = Flow(stream.name, stream.root, _rate(stream, measured), universe)
    return flow, _merged(stream, flow, subscriptions, class_of, held)


def _merged(
    stream: Stream,
    flow: Flow,
    subscriptions: list[Subscription],
    class_of: Mapping[str, int],
    held: list[int] | None,
) -> list[Member]:
    """The subscriptions of each site as one member; what it costs grows with their number."""
    everything = flow.universe.everything
    place = {name: index for index, name in enumerate(stream.schema.names)}
    whole: set[str] = set()
    classes_of: dict[str, set[int]] = {}
    columns_of: dict[str, int] = {}
    wants: dict[str, list[Want]] = {}
    chosen_of: dict[tuple[str, ...] | None, int] = {None: everything.columns}
    for subscription in subscriptions:
        site, select = subscription.site, subscription.select
        mine = classes_of.setdefault(site, set())
        if subscription.name in class_of:
            mine.add(class_of[subscription.name])
        else:
            whole.add(site)
        if select not in chosen_of:
            chosen_of[select] = sum(1 << place[name] for name in set(select or ()) & place.keys())
        columns_of[site] = columns_of.get(site, 0) | chosen_of[select]
        wants.setdefault(site, []).append(Want(subscription.name, subscription.quality, subscription.weight))
    rows_of = {site: everything.rows if site in whole else _pieces(classes_of[site], held) for site in wants}
    return [
        Member(stream.name, site, InterestPieces(flow.universe, rows_of[site], columns_of[site]), tuple(wants[site]))
        for site in wants
    ]


def _pieces(classes: set[int], held: list[int] | None) -> int:
    """The bit set of the pieces that some classes take; each takes its own where they were not compared.

    >>> _pieces({0, 9}, None), _pieces({1}, [0b1, 0b11])
    (513, 3)
    """
    if held is not None:
        return reduce(or_, (held[each] for each in classes))
    bits = bytearray(max(classes) // 8 + 1)
    for each in classes:
        bits[each >> 3] |= 1 << (each & 7)
    return int.from_bytes(bits, "little")


def _rate(stream: Stream, measured: Sizes) -> float:
    """Rows per second: measured, else declared, else assumed."""
    declared = ASSUMED_RATE_ROWS_PER_S if stream.rate_rows_per_s is None else stream.rate_rows_per_s
    return measured.rate_rows_per_s.get(stream.name, declared)


def unknown_rates(deployment: Deployment, sizes: Mapping[str, Any] | Sizes | None = None) -> tuple[str, ...]:
    """The subscribed streams of which neither the deployment nor measured figures say how many rows come."""
    measured = Sizes.of(sizes).rate_rows_per_s
    wanted = {subscription.stream for subscription in deployment.subscriptions.values()}
    return tuple(
        name
        for name, stream in deployment.streams.items()
        if stream.rate_rows_per_s is None and name not in measured and name in wanted
    )


def _beyond(weights: list[float], held: list[int]) -> list[float]:
    """What each class's piece weighs beyond the pieces of the classes that it covers, smallest classes first."""
    pieces = [0.0] * len(weights)
    for position in sorted(range(len(weights)), key=lambda index: held[index].bit_count()):
        below, rest = 0.0, held[position] & ~(1 << position)
        while rest:
            lowest = rest & -rest
            below += pieces[lowest.bit_length() - 1]
            rest ^= lowest
        pieces[position] = max(0.0, weights[position] - below)
    return pieces


def width(kind: pa.DataType) -> float:
    """Bytes that a value of a type takes in a row, assumed for texts and nested types.

    >>> width(pa.float64()), width(pa.string())
    (8.0, 16.0)
    """
    try:
        return max(1.0, float(kind.bit_width) / 8)
    except ValueError:
        return ASSUMED_STRING_BYTES * (4.0 if pa.types.is_nested(kind) else 1.0)


def _private(deployment: Deployment) -> bool:
    """Whether there is a site that nobody can dial."""
    return any(site.is_private for site in deployment.sites.values())


def _capacities(deployment: Deployment) -> dict[frozenset[str], float]:
    """What single links can carry; where some pairs cannot connect, all that can are named."""
    links = deployment.links
    found = {pair: link.capacity_bytes_per_s for pair, link in links.pairs.items()}
    if not links.only_listed and not _private(deployment):
        return {pair: capacity for pair, capacity in found.items() if capacity is not None}
    pairs = found if links.only_listed else map(frozenset, combinations(deployment.sites, 2))
    known = {pair: found.get(pair) for pair in pairs}
    return {pair: UNLIMITED_BYTES_PER_S if capacity is None else capacity for pair, capacity in known.items()}


def _delays(deployment: Deployment) -> Delays:
    links = deployment.links
    if not links.pairs:
        return Delays(base_s=links.default_delay_s)
    index = {name: position for position, name in enumerate(deployment.sites)}
    matrix = np.full((len(index), len(index)), links.default_delay_s)
    np.fill_diagonal(matrix, 0.0)
    for pair, link in links.pairs.items():
        stray = sorted(pair - index.keys())
        if stray or len(pair) != 2:
            raise ProblemError(f"a link between {sorted(pair)} is not between two sites", hint=f"unknown: {stray}")
        one, other = (index[name] for name in pair)
        matrix[one, other] = matrix[other, one] = link.delay_s
    return Delays(matrix)
