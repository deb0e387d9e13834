"""The problem behind a running deployment: measured rates, row sizes and selectivities in place of assumed ones.

Rows were seen with the delivery classes that they satisfy, so nothing has to be assumed about how filters overlap: rows
that are needed by the same sites in the same columns form one piece, and pieces are disjoint. A link's size is then
what really crosses it: for each row the columns that somebody below needs of that row, not all columns of all rows. In
the universe of a stream each part (a piece with a set of columns that are always needed together) is one bit whose
weight is its share of the stream's bytes, so kernels, checker and documents work on it as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from headgate.model import Deployment, Plan, Site, Stream, Subscription, Tree
from headgate.planning.covering import Comparisons
from headgate.planning.deployment import Sizes, problem_of, whole_problem
from headgate.planning.doubled import less_doubled
from headgate.planning.graph import Graph
from headgate.planning.interest import InterestPieces, Universe
from headgate.planning.problem import Flow, Member, Problem, Want

BOLDNESS = 2.0
"""How much more than it forwards now a site of unknown upload may be given by one change of plan."""

MAX_PIECES = 600
"""Most pieces of a stream; what the rarest rows need is added to the piece that already needs most of it."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of one stream.

    Attributes:
        rate_rows_per_s: Rows that were matched per second, wanted by anybody or not.
        classes: Parts of the rows by the set of class ids that they satisfy; rows of no class may be left out.
        column_bytes: Bytes on the wire of a value of each column, amortised over a message and compressed.
        base_bytes: Bytes of a row besides its columns: sequence number, class ids.
        bulk: What the links into sites took for a row, as a multiple of these bytes: a link with few rows has small
            messages with headers of their own, and rows that are left after thinning are less alike and pack worse.
    """

    rate_rows_per_s: float
    classes: Mapping[frozenset[int], float]
    column_bytes: Mapping[str, float]
    base_bytes: float
    bulk: Mapping[str, float] = field(default_factory=dict)

    def scaled(self, level: float) -> Observed:
        """The same with so many times the bytes."""
        columns = {name: size * level for name, size in self.column_bytes.items()}
        return replace(self, column_bytes=columns, base_bytes=self.base_bytes * level)

    @property
    def row_bytes(self) -> float:
        """Bytes of a whole row."""
        return self.base_bytes + sum(self.column_bytes.values())


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Measured bandwidths of a site in bytes per second; None where it has not shown its limit."""

    upload_bytes_per_s: float | None = None
    download_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """All that was measured: streams by name, sites whose declared bandwidth is unknown, and links that were full.

    `links` has, by their two ends, the bytes a second that links carried while rows waited for them.
    """

    streams: Mapping[str, Observed] = field(default_factory=dict)
    sites: Mapping[str, Bandwidth] = field(default_factory=dict)
    links: Mapping[frozenset[str], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured, in terms that hold for a deployment with other subscriptions too.

    Rows per second and bytes a row by stream, parts of the rows by class id, bandwidths by site. A class of which no
    row was seen is left out: it may be new, and its rows are assumed.
    """

    rate_rows_per_s: Mapping[str, float] = field(default_factory=dict)
    row_bytes: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[int, float] = field(default_factory=dict)
    sites: Mapping[str, Bandwidth] = field(default_factory=dict)
    links: Mapping[frozenset[str], float] = field(default_factory=dict)

    @classmethod
    def of(cls, measured: Measured) -> Figures:
        """The figures of what was measured."""
        parts: dict[int, float] = {}
        for seen in measured.streams.values():
            for ids, part in seen.classes.items():
                for class_id in ids:
                    parts[class_id] = parts.get(class_id, 0.0) + part
        rates = {name: seen.rate_rows_per_s for name, seen in measured.streams.items()}
        row_bytes = {name: seen.row_bytes for name, seen in measured.streams.items()}
        return cls(rates, row_bytes, parts, measured.sites, measured.links)

    def problem(
        self, deployment: Deployment, class_ids: Mapping[str, int], known: Comparisons | None = None
    ) -> Problem:
        """The problem of a deployment by these figures, and by what is declared and assumed of the rest."""
        selectivity = {
            name: self.parts[class_ids[name]]
            for name in (deployment.subscriptions if self.parts else ())
            if class_ids[name] in self.parts
        }
        if self.sites:
            sites = {name: _known(site, self.sites.get(name)) for name, site in deployment.sites.items()}
            deployment = replace(deployment, sites=sites)
        deployment = with_measured_links(deployment, self.links)
        return problem_of(deployment, Sizes(self.row_bytes, self.rate_rows_per_s, selectivity), known)


Needs = Mapping[str, frozenset[str]]
"""The columns of a row that each site needs; sites that do not need the row are left out."""


def measured_problem(
    deployment: Deployment,
    class_ids: Mapping[str, int],
    measured: Measured,
    sizes: Sizes | None = None,
    known: Comparisons | None = None,
) -> Problem:
    """The problem of a deployment with what was measured; streams that were not seen are taken as assumed.

    `class_ids` names the delivery class of each subscription, as the catalog does. `sizes` has what little may be known
    of streams that were not seen, `known` how classes compare, from one problem to the next.
    """
    assumed = whole_problem(with_measured_links(deployment, measured.links), sizes, known)
    by_stream: dict[str, list[Subscription]] = {name: [] for name in deployment.streams}
    for subscription in deployment.subscriptions.values():
        by_stream[subscription.stream].append(subscription)
    flows: list[Flow] = []
    members: list[Member] = []
    for flow in assumed.flows:
        seen = measured.streams.get(flow.name)
        found = flow, [member for member in assumed.members if member.stream == flow.name]
        if seen is not None and seen.classes:
            found = _measured(deployment.streams[flow.name], by_stream[flow.name], class_ids, seen)
        flows.append(found[0])
        members += found[1]
    sites = tuple(_known(site, measured.sites.get(site.name)) for site in assumed.sites)
    return less_doubled(replace(assumed, sites=sites, flows=tuple(flows), members=tuple(members)), deployment)


def with_measured_links(deployment: Deployment, links: Mapping[frozenset[str], float]) -> Deployment:
    """The same with what links carried in place of what is declared, where that is more, or only a first guess.

    >>> from headgate.model import Link, Links
    >>> links = Links(pairs={(ends := frozenset("ab")): Link(ends, 0.01, 4000.0)})
    >>> found = with_measured_links(Deployment({}, {"a": Site("a"), "b": Site("b")}, links=links), {ends: 1000.0})
    >>> found.links.between("a", "b").capacity_bytes_per_s
    1000.0
    """
    found = {ends: rate for ends, rate in links.items() if ends <= deployment.sites.keys()}
    if not found:
        return deployment
    pairs = dict(deployment.links.pairs)
    for ends, rate in found.items():
        one, other = sorted(ends)
        link = deployment.links.between(one, other)
        declared = link.capacity_bytes_per_s
        known = rate if declared is None or link.follow else min(declared, rate)
        pairs[ends] = replace(link, capacity_bytes_per_s=known)
    return replace(deployment, links=replace(deployment.links, pairs=pairs))


def with_relays_of(problem: Problem, plan: Plan) -> Problem:
    """The same with every site of a plan in force allowed to relay: one whose last subscription is gone may still."""
    members = {(member.stream, member.site) for member in problem.members}
    passing = {site for name, tree in plan.trees.items() for site in tree.parents if (name, site) not in members}
    return replace(problem, relays=problem.relays | passing) if passing - problem.relays else problem


def forwarded(graph: Graph) -> npt.NDArray[np.float64]:
    """Bytes per second that each site sends in a graph, of what reaches it."""
    node = graph.net.node
    found = np.bincount(node["site"], node["out"] * node["kept"], minlength=len(graph.problem.sites))
    return found.astype(np.float64, copy=False)


def cautious(graph: Graph) -> Problem:
    """The problem of a graph in force with uploads that nobody knows taken as little more than what they have shown.

    A search that believes an unknown upload to be unlimited puts everything on it. What a site forwards without
    shedding it can do, and twice that is tried at most; one that forwards nothing is taken for one of the others. So a
    search goes on from what works, and each change shows more.
    """
    problem = graph.problem
    shown = dict(zip((site.name for site in problem.sites), forwarded(graph).tolist(), strict=True))
    proven = [shown[site.name] for site in problem.sites if shown[site.name] > 0]
    if not proven or all(site.upload_bytes_per_s is not None for site in problem.sites):
        return problem
    usual = sum(proven) / len(proven)
    sites = tuple(
        replace(site, upload_bytes_per_s=max(BOLDNESS * shown[site.name], usual))
        if site.upload_bytes_per_s is None
        else site
        for site in problem.sites
    )
    return replace(problem, sites=sites)


def _known(site: Site, found: Bandwidth | None) -> Site:
    """A site with what was measured where nothing is declared."""
    if found is None:
        return site
    upload, download = site.upload_bytes_per_s, site.download_bytes_per_s
    return replace(
        site,
        upload_bytes_per_s=found.upload_bytes_per_s if upload is None else upload,
        download_bytes_per_s=found.download_bytes_per_s if download is None else download,
    )


def _measured(
    stream: Stream, subscriptions: list[Subscription], class_ids: Mapping[str, int], seen: Observed
) -> tuple[Flow, list[Member]]:
    pieces = _bounded(_pieces(stream, subscriptions, class_ids, seen))
    wants: dict[str, list[Want]] = {}
    for each in subscriptions:
        wants.setdefault(each.site, []).append(Want(each.name, each.quality, each.weight))
    whole = seen.row_bytes
    weights: list[float] = []
    held = dict.fromkeys(wants, 0)
    for needs, part in pieces:
        for columns, sites in _parts(needs):
            size = sum(seen.column_bytes.get(name, 0.0) for name in columns if name != _BASE)
            # A sum of parts may pass 1 by a rounding error.
            weights.append(min(part * (size + seen.base_bytes * (_BASE in columns)) / whole, 1.0))
            for site in sites:
                held[site] |= 1 << (len(weights) - 1)
    # One more piece for what nobody needs, so that the whole stream weighs the whole stream.
    weights.append(max(0.0, 1.0 - sum(weights)))
    for site, pieces_held in held.items():
        if not pieces_held:  # nothing that it wants has come yet: a piece of its own that weighs nothing
            held[site] = 1 << len(weights)
            weights.append(0.0)
    universe = Universe(tuple(weights), (), whole)
    members = [
        Member(stream.name, site, InterestPieces(universe, held[site]), tuple(wants[site]), seen.bulk.get(site, 1.0))
        for site in wants
    ]
    return Flow(stream.name, stream.root, seen.rate_rows_per_s, universe), members


_BASE = ""  # stands for what a row costs besides its columns, among the names of columns


def _pieces(
    stream: Stream, subscriptions: list[Subscription], class_ids: Mapping[str, int], seen: Observed
) -> dict[tuple[tuple[str, frozenset[str]], ...], float]:
    """Parts of the rows by who needs what of them."""
    everything = frozenset(stream.schema.names)
    same: dict[frozenset[str], frozenset[str]] = {}  # one object for equal sets, so that most need no union
    of_class: dict[int, dict[str, frozenset[str]]] = {}
    for each in subscriptions:
        wanted = everything if each.select is None else everything & frozenset(each.select)
        mine = of_class.setdefault(class_ids[each.name], {})
        wanted = mine.get(each.site, frozenset()) | wanted | {_BASE}
        mine[each.site] = same.setdefault(wanted, wanted)
    found: dict[tuple[tuple[str, frozenset[str]], ...], float] = {}
    for ids, part in seen.classes.items():
        needs: dict[str, frozenset[str]] = {}
        for class_id in ids & of_class.keys():
            for site, columns in of_class[class_id].items():
                had = needs.setdefault(site, columns)
                if had is not columns:
                    needs[site] = same.setdefault(had | columns, had | columns)
        if needs:
            key = tuple(sorted(needs.items(), key=lambda item: item[0]))
            found[key] = found.get(key, 0.0) + part
    return found


def _bounded(pieces: dict[tuple[tuple[str, frozenset[str]], ...], float]) -> list[tuple[Needs, float]]:
    """At most `MAX_PIECES` pieces; the rarest are counted as the kept piece that needs most of what they need."""
    order = sorted(pieces.items(), key=lambda item: (-item[1], str(item[0])))
    kept = [(dict(needs), part) for needs, part in order[:MAX_PIECES]]
    for needs, part in order[MAX_PIECES:]:
        best = max(range(len(kept)), key=lambda at: _alike(kept[at][0], dict(needs)))
        kept[best] = (kept[best][0], kept[best][1] + part)
    return [(needs, part) for needs, part in kept]


def _alike(one: Needs, other: Needs) -> int:
    """Sites and columns that both need, less those that only one does."""
    both = sum(len(one[site] & other[site]) for site in one.keys() & other.keys())
    return 3 * both - sum(len(columns) for columns in (*one.values(), *other.values()))


def _parts(needs: Needs) -> Iterable[tuple[list[str], list[str]]]:
    """Columns that are needed by the same sites, with those sites."""
    by_sites: dict[tuple[str, ...], list[str]] = {}
    for column in sorted({column for columns in needs.values() for column in columns}):
        sites = tuple(site for site, columns in needs.items() if column in columns)
        by_sites.setdefault(sites, []).append(column)
    for sites, columns in by_sites.items():
        yield columns, list(sites)


def crossings(
    stream: Stream, subscriptions: list[Subscription], class_ids: Mapping[str, int], seen: Observed, tree: Tree
) -> dict[str, tuple[float, float]]:
    """What the link into each site of a tree carries per row of the stream: rows and bytes.

    A part of a row crosses a link when a site at or below its end needs it, so each is added up once from the leaves.
    """
    order = tree.members
    place = {site: index for index, site in enumerate(order)}
    rows: list[float] = []
    sizes: list[float] = []
    at: list[int] = []
    part_of: list[int] = []
    for needs, part in _pieces(stream, subscriptions, class_ids, seen).items():
        for columns, sites in _parts(dict(needs)):
            own = sum(seen.column_bytes.get(name, 0.0) for name in columns if name != _BASE)
            rows.append(part * (_BASE in columns))
            sizes.append(part * own + rows[-1] * seen.base_bytes)
            inside = [place[site] for site in sites if site in place]
            at += inside
            part_of += [len(rows) - 1] * len(inside)
    crosses = np.zeros((len(order), len(rows)), np.bool_)
    crosses[at, part_of] = True
    for child in reversed(order[1:]):
        crosses[place[tree.parents[child]]] |= crosses[place[child]]
    carried = crosses @ np.array([rows, sizes]).T
    return {site: (float(carried[place[site], 0]), float(carried[place[site], 1])) for site in order[1:]}
