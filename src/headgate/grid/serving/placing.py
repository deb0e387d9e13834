"""Which region to replicate, and where: the choice that a site makes when a query does not fit (section 4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headgate.grid.dzset import DzSet
from headgate.grid.serving.holdings import Holdings
from headgate.grid.space import Ints
from headgate.grid.tree import Candidates

# A stream costs its bandwidth and, as a share of what is needed now, the effort of one more connection.
THRIFT = 1 / 32


@dataclass(frozen=True, slots=True)
class Choice:
    """A region for a site: the weight of the queries that could move, and the bandwidth of the stream it needs."""

    code: int
    length: int
    site: str
    weight: int
    cost: int


def covered(cells: DzSet, starts: Ints, ends: Ints) -> Ints:
    """How many cells of each interval a set covers."""
    if not len(cells.bounds):
        return np.zeros(len(starts), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(cells.bounds[:, 1] - cells.bounds[:, 0])])

    def up_to(at: Ints) -> Ints:
        row = np.searchsorted(cells.bounds[:, 0], at, side="right") - 1
        inside = np.minimum(at, cells.bounds[row, 1]) - cells.bounds[row, 0]
        return np.where(row >= 0, before[row] + inside, 0)

    return up_to(ends) - up_to(starts)


def choose(
    holdings: Holdings,
    free: Mapping[str, int],
    *,
    need: int,
    limit: int,
    failed: frozenset[tuple[int, int, str]],
    paper: bool = False,
) -> Choice | None:
    """The replica that frees most for what its stream costs; None when none frees anything.

    With `paper` the one that frees most whatever it costs, which is the paper's ranking.

    First among neighbours farther from the region's origin that do not provide it; then, so that corners are no dead
    ends, among all sites that the region did not pass on its way here.
    """
    candidates = holdings.clients.find(limit=limit, within=holdings.available, nested=True, larger=not paper)
    if not len(candidates):
        return None
    neighbours = holdings.partition.neighbours[holdings.site]
    near = {site: free[site] for site in neighbours if site in free}
    for sites, strict in ((near, True), (free, False)):
        best, best_score = None, 0.0
        for site, room in sites.items():
            if site == holdings.site or room <= 0:
                continue
            found = _best_for(holdings, candidates, site, room, need, failed, strict, paper)
            if found is not None and found[1] > best_score:
                best, best_score = found
        if best is not None:
            return best
    return None


def _best_for(
    holdings: Holdings,
    candidates: Candidates,
    site: str,
    room: int,
    need: int,
    failed: frozenset[tuple[int, int, str]],
    strict: bool,
    paper: bool,
) -> tuple[Choice, float] | None:
    sizes = np.int64(1) << (holdings.partition.space.digits - candidates.lengths)
    cost = sizes - covered(holdings.sent_to(site), candidates.codes, candidates.codes + sizes)
    moved = np.minimum(candidates.weights, room)
    gain = (moved - cost).astype(np.float64)
    # What a stream costs counts against all that can ever move over it; a region that is there already is best.
    weighed = gain if paper else gain / (cost + need * THRIFT + 1)
    score = np.where(gain > 0, weighed, -1.0)
    for at in np.argsort(-score, kind="stable").tolist():
        if score[at] <= 0:
            return None
        code, length = int(candidates.codes[at]), int(candidates.lengths[at])
        if (code, length, site) in failed or not eligible(holdings, code, length, site, strict):
            continue
        return Choice(code, length, site, int(candidates.weights[at]), int(cost[at])), float(score[at])
    return None


def eligible(holdings: Holdings, code: int, length: int, site: str, strict: bool) -> bool:
    """Whether a site may receive a region from here: never one that it passed; if strict, only away from its origin."""
    sources = holdings.sources_of(code, length)
    if any(site in source.region.path for source in sources):
        return False
    if not strict:
        return True
    partition = holdings.partition
    origin = partition.centres[partition.owner_at(partition.centre_of(code, length))]
    provides = {source.peer for source in holdings.sources.values()}
    return site not in provides and partition.apart(site, origin) > partition.apart(holdings.site, origin)
