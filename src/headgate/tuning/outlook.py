"""Units cut out of a tree that one process holds: the states of every site, built once for each shape of the tree."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from headgate.tuning.arrangement import Setting
from headgate.tuning.benefit import NO_CHILDREN, Partial, Pricer, add_child
from headgate.tuning.compile import Compiled
from headgate.tuning.evaluate import TreeView, node_costs
from headgate.tuning.overlay import Floats, Ints
from headgate.tuning.states import Additive, Extreme, Prefix, advance, algebra_for, start
from headgate.tuning.unit import Facts, Frontier, Unit, UnitMember


class Outlook:
    """One objective on one tree: every site's state, prefix and surroundings.

    `rest` is the absolute result of the sites of other trees, when an objective spans several.
    """

    def __init__(self, compiled: Compiled, view: TreeView, rest: Any = None) -> None:
        self.compiled, self.view, self.shape = compiled, view, view.shape
        self.algebra = algebra_for(compiled)
        self.rest = self.algebra.merge([]) if rest is None else rest
        self.order = self.shape.order
        self.weights: list[int] = view.overlay.weights(compiled.over).tolist()
        self.paths = [index for index, term in enumerate(compiled.terms) if term.kind == "path"]
        self.child_terms = [index for index, term in enumerate(compiled.terms) if term.kind == "children"]
        size = view.overlay.size
        arrays = [np.broadcast_to(np.asarray(term.value(view), np.float64), (size,)) for term in compiled.terms]
        self.locals: list[tuple[float, ...]] = list(zip(*(array.tolist() for array in arrays), strict=True))
        self.costs: Floats = node_costs(compiled, view)
        self._states()

    def _states(self) -> None:
        shape, algebra = self.shape, self.algebra
        self.below: list[Any] = [None] * len(shape.parents)  # strict descendants, relative to the site
        self.lifted: list[Any] = [None] * len(shape.parents)  # the site and its descendants, relative to its parent
        self.prefix: list[Prefix] = [()] * len(shape.parents)
        for site in reversed(self.order):
            self.below[site] = algebra.union(self.lifted[child] for child in shape.children[site])
            own = algebra.single(self.weights[site], self._fixed(site))
            self.lifted[site] = algebra.extend(algebra.union((own, self.below[site])), self.path_local(site))
        for site in self.order:
            parent = shape.parents[site]
            above = start(self.compiled) if parent < 0 else self.prefix[parent]
            self.prefix[site] = advance(self.compiled, above, self.path_local(site))

    def path_local(self, site: int) -> tuple[float, ...]:
        """Local values of the path terms; NaN for links at the root."""
        root = site == self.shape.root
        return tuple(
            float("nan") if root and self.compiled.terms[index].on_link else self.locals[site][index]
            for index in self.paths
        )

    def _fixed(self, site: int) -> tuple[float, ...]:
        """Terms that no change above the site can touch."""
        children = iter(self.child_values[site]) if self.child_terms else iter(())
        return tuple(
            float("nan") if term.kind == "path" else (next(children) if term.kind == "children" else local)
            for term, local in zip(self.compiled.terms, self.locals[site], strict=True)
        )

    @cached_property
    def child_values(self) -> list[tuple[float, ...]]:
        """Values of the children terms by site."""
        from headgate.tuning.evaluate import term_values

        arrays = [term_values(self.compiled.terms[index], self.view).tolist() for index in self.child_terms]
        return list(zip(*arrays, strict=True))

    @cached_property
    def total(self) -> Any:
        """The absolute result of every site."""
        root = self.shape.root
        own = self.algebra.own(self.weights[root], float(self.costs[root]))
        return self.algebra.merge([self.rest, own, self.algebra.settle(self.below[root], self.prefix[root])])

    @property
    def cost(self) -> float:
        """The system cost, from the root's state."""
        return self.algebra.finish(self.total)

    def outside(self, site: int) -> Any:
        """The absolute result of every site that is not this one or below it."""
        if isinstance(self.algebra, Additive):
            inside = self._inside(site)
            return self.total[0] - inside[0], self.total[1] - inside[1]
        if isinstance(self.algebra, Extreme):
            return self._extremes[site]
        first, last = self._spans[0][site], self._spans[1][site]
        costs, weights = self._spans[2], self._spans[3]
        return self.algebra.merge([self.rest, (costs[:first], weights[:first]), (costs[last:], weights[last:])])

    def _inside(self, site: int) -> Any:
        own = self.algebra.own(self.weights[site], float(self.costs[site]))
        return self.algebra.merge([own, self.algebra.settle(self.below[site], self.prefix[site])])

    @cached_property
    def _extremes(self) -> list[Any]:
        merge, shape = self.algebra.merge, self.shape
        found: list[Any] = [self.rest] * len(shape.parents)
        for site in self.order:
            children = shape.children[site]
            inside = [self._inside(child) for child in children]
            here = merge([found[site], self.algebra.own(self.weights[site], float(self.costs[site]))])
            after = [here]
            for value in reversed(inside[1:]):
                after.append(merge([after[-1], value]))
            before = merge([])
            for child, value, later in zip(children, inside, reversed(after), strict=False):
                found[child] = merge([before, later])
                before = merge([before, value])
        return found

    @cached_property
    def _spans(self) -> tuple[list[int], list[int], Floats, Ints]:
        """Sites in depth-first order, so that everything below a site is one slice."""
        shape = self.shape
        first, last = [0] * len(shape.parents), [0] * len(shape.parents)
        order: list[int] = []
        for site in self.order:  # depth first, parents before children
            first[site] = len(order)
            order.append(site)
        for site in reversed(self.order):
            last[site] = max([first[site] + 1, *(last[child] for child in shape.children[site])])
        weights = np.array(self.weights, dtype=np.int64)
        return first, last, self.costs[order], weights[order]

    def facts(self, site: int) -> Facts:
        """What a site knows of itself."""
        overlay = self.view.overlay
        profile = overlay.wanted.bits[site] if self.compiled.needs_profiles else None
        return Facts(
            self.weights[site],
            int(overlay.client_counts[site]),
            profile,
            {name: float(values[site]) for name, values in overlay.constants.items()},
            {name: float(values[site]) for name, values in self.view.elsewhere.items()},
        )

    def frontier(self, site: int, outside: list[int]) -> Frontier:
        """What a member sees of those children that are not members."""
        everything = len(outside) == len(self.shape.children[site])
        state = self.below[site] if everything else self.algebra.union(self.lifted[child] for child in outside)
        partials: list[Partial] = []
        for index in self.child_terms:
            partial = NO_CHILDREN
            for child in outside:
                partial = add_child(partial, self.locals[child][index])
            partials.append(partial)
        profile, rate = None, 0.0
        if self.compiled.needs_profiles and outside:
            profile = np.logical_or.reduce(self.view.merged[outside], axis=0)
            rate = float(self.view.metric("incoming_rate")[outside].sum())
        return Frontier(len(outside), state, tuple(partials), profile, rate)

    def unit(self, owner: int, levels: int = 3) -> Unit:
        """The optimisation unit of a site: its parent, itself, and `levels` - 1 levels below."""
        shape = self.shape
        top = owner if shape.parents[owner] < 0 else shape.parents[owner]
        parents: dict[int, int] = {} if top == owner else {owner: top}
        sites, row = [owner] if top == owner else [top, owner], [owner]
        for _ in range(levels - 1):
            below = [(child, site) for site in row for child in shape.children[site]]
            parents.update(below)
            row = [child for child, _ in below]
            sites.extend(row)
        inside = set(sites)
        members = {
            site: UnitMember(
                site,
                self.facts(site),
                self.frontier(site, [child for child in shape.children[site] if child not in inside]),
            )
            for site in sites
        }
        above = shape.parents[top]
        prefix = start(self.compiled) if above < 0 else self.prefix[above]
        return Unit(owner, top, above, levels, members, parents, prefix, self.outside(top))

    @cached_property
    def setting(self) -> Setting:
        """What every site of the system knows."""
        overlay = self.view.overlay
        return Setting(overlay.wanted.sizing, overlay.match_entry_s, overlay.match_byte_s)

    def measure(self, name: str, child: int, parent: int) -> float:
        """A link metric between two sites."""
        return self.view.overlay.links[name].between(child, parent)

    def pricer(self, unit: Unit) -> Pricer:
        """Prices changes of a unit of this tree."""
        return Pricer(self.compiled, unit, self.setting, self.measure)
