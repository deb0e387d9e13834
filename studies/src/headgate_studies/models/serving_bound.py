"""The most that any plan could serve: an upper bound of the optimum of the grid paper's section 3.3.

What clients get and what goes from site to site share the sites' bandwidth. A site whose own data are asked for more
than it can send must have copies of some of them elsewhere. One cell of data that is sent to another site, once,
relieves its owner by at most the number of queries that want the cell. So the cheapest way to get rid of an excess is
to send the cells that most queries want, and no plan, whatever its index, needs less than that. The bound leaves out
everything else that costs a plan something (regions are made of whole expressions, replicas are copied to several
sites, queries arrive one by one), so that it may lie above the optimum and never below it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headgate.grid.space import Ints
from headgate_studies.workloads.serving import STEPS

Floats = npt.NDArray[np.float64]

_EDGES = 20
_HALVINGS = 50


def most_served(
    low: npt.ArrayLike, high: npt.ArrayLike, side: int, times: float, *, borders: Sequence[npt.ArrayLike] = ()
) -> float:
    """The share of all bandwidth that clients asking for such queries can have at most.

    `low` and `high` are the queries' corners in steps over x, y and both resolutions. Each of `side` by `side` sites
    has bandwidth for `times` its own region. More queries of the same mix are taken to follow until the sites are
    full, and all of them to be served. The field is looked at in cells whose borders lie where the queries' bounds do
    (`borders` adds to those of a dimension); finer cells give a lower bound.

    >>> most_served([[0, 0, 0, 0]], [[1024, 1024, 1024, 1024]], 4, 25)  # everybody wants all: no site has too much
    1.0
    """
    lower, upper = np.asarray(low, dtype=np.int64), np.asarray(high, dtype=np.int64)
    squares = np.arange(side + 1) * STEPS // side
    edges = [
        _edges(np.concatenate([lower[:, d], upper[:, d]]), squares, borders[d] if d < len(borders) else ())
        for d in range(lower.shape[1])
    ]
    wanted, demands = _wanted(lower, upper, edges), _demands(lower, upper, squares)
    capacity = times / side**2
    sites = [
        _Site(wanted, edges, squares, row, column, float(demands[row, column]), capacity)
        for row in range(side)
        for column in range(side)
    ]
    asked = sum(site.asked for site in sites)
    whole = capacity * len(sites)
    least, most = 0.0, whole
    for _ in range(_HALVINGS):
        load = (least + most) / 2
        fits = load + sum(site.cost(load / asked) for site in sites) <= whole
        least, most = (load, most) if fits else (least, load)
    return round(most / whole, 9)


def _edges(bounds: Ints, squares: Ints, more: npt.ArrayLike) -> Ints:
    """Where to cut one dimension: at the borders of sites, and at bounds of queries so that each cell has as many."""
    chosen = np.quantile(bounds, np.linspace(0, 1, _EDGES + 1)).astype(np.int64)
    return np.unique(np.concatenate([[0, STEPS], squares, chosen, np.asarray(more, dtype=np.int64)]))


def _wanted(low: Ints, high: Ints, edges: list[Ints]) -> Ints:
    """How many queries touch each cell: at least as many as want any point in it."""
    counts = np.zeros([len(each) for each in edges], dtype=np.int64)
    first = np.stack([np.searchsorted(e, low[:, d], side="right") - 1 for d, e in enumerate(edges)])
    last = np.stack([np.searchsorted(e, high[:, d], side="left") for d, e in enumerate(edges)])
    for ends in itertools.product((False, True), repeat=len(edges)):
        corner = tuple(np.where(end, last[d], first[d]) for d, end in enumerate(ends))
        np.add.at(counts, corner, -1 if sum(ends) % 2 else 1)
    for d in range(len(edges)):
        counts = np.cumsum(counts, axis=d)
    return counts[tuple(slice(0, -1) for _ in edges)]


def _demands(low: Ints, high: Ints, squares: Ints) -> Floats:
    """Bandwidth that the queries take of each site's region, in regions of the whole field, by row and column."""
    x, y = (
        np.maximum(np.minimum(high[:, d, None], squares[1:]) - np.maximum(low[:, d, None], squares[:-1]), 0) / STEPS
        for d in (0, 1)
    )
    share = np.prod((high[:, 2:] - low[:, 2:]) / STEPS, axis=1)
    return np.asarray(np.einsum("qr,qc,q->rc", y, x, share))


class _Site:
    """One site's own region: what is asked of it, and what it costs to have an excess served elsewhere."""

    def __init__(
        self,
        wanted: Ints,
        edges: list[Ints],
        squares: Ints,
        row: int,
        column: int,
        asked: float,
        capacity: float,
    ) -> None:
        self.asked = asked
        self.capacity = capacity
        inside = [slice(None)] * wanted.ndim
        for d, at in enumerate((column, row)):
            inside[d] = slice(*np.searchsorted(edges[d], squares[at : at + 2]).tolist())
        sizes: Floats = np.ones(())
        for d, each in enumerate(edges):
            sizes = np.multiply.outer(sizes, np.diff(each)[inside[d]] / STEPS)
        counts = wanted[tuple(inside)].ravel()
        order = np.argsort(-counts, kind="stable")[: int(np.count_nonzero(counts))]
        taken = sizes.ravel()[order]
        self._sizes: Floats = np.concatenate([[0.0], np.cumsum(taken)])
        self._relief: Floats = np.concatenate([[0.0], np.cumsum(taken * counts[order])])

    def cost(self, scale: float) -> float:
        """The least that must be sent elsewhere when the queries come `scale` times."""
        excess = self.asked - self.capacity / scale if scale > 0 else 0.0
        return float(np.interp(excess, self._relief, self._sizes)) if excess > 0 else 0.0
