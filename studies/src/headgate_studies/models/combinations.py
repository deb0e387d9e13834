"""Every combination that a benefit must be exact for, and the comparison with brute force.

A combination is a system function, a node cost (function, set and local value), a system set and a transformation,
one of which is a composite that only its primitives define.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from headgate.tuning.benefit import Pricer
from headgate.tuning.compile import Compiled, compile_objective
from headgate.tuning.evaluate import TreeView, evaluate
from headgate.tuning.outlook import Outlook
from headgate.tuning.overlay import Overlay
from headgate.tuning.shape import Shape
from headgate.tuning.transformations import WIDE, Candidate, Transformation, Workbench
from headgate.tuning.transformations.registry import apply
from headgate_studies.workloads.tuning import plane_overlay, random_shape, zipf_profiles

SYSTEM = ("min", "max", "sum", "average", "product", "variance", "std", "p50", "p95")
NODE = ("min", "max", "sum", "average")
LOCAL = ("link_latency", "link_bandwidth / 1 MB/s", "processing_delay * 100", "fanout", "superfluous_data / 100 kB")
SETS = ("brokers", "clients", "brokers-clients")
ONE_LEVEL = ("superfluous_data / 100 kB", "fanout", "link_latency", "outgoing_rate / 1 MB", "matching_cpu * 100")
SEVERAL = (
    "path_latency * path_bandwidth / 1 MB/s",
    "path_latency + path_cpu",
    "(min(link_bandwidth) over path) / (1 MB/s) + (sum(fanout) over children)",
    "max(path_latency, 0.1 * fanout) + size(merged_profile) / 1 MB",
    "(average(link_latency + 0.01 * fanout) over path) * (max(link_latency) over children)",
)


def _third(bench: Workbench, site: int) -> None:
    """Before: i - site - (a, b), i - c. After: i - a - (b, c), i - site."""
    below = bench.children(site)
    if not below:
        return
    for child in below:
        bench.promote(child)
    for child in bench.children(bench.parent(site)):
        if child not in (site, below[0]):
            bench.demote(child, below[0])


OWN = Transformation(
    "gather below the first grandchild", _third, lambda unit: [(j,) for j in unit.children(unit.owner)]
)


TURNS = len(LOCAL) * len(SETS)
"""Trees after which every local value has met every system set."""


def objectives() -> Iterator[str]:
    """Every system function over every node cost, local value and several metrics at once."""
    for turn in range(TURNS):
        yield from objectives_of(turn)


def objectives_of(turn: int) -> Iterator[str]:
    """Every system function over every node function and set, with one local value and system set that `turn` picks.

    All turns together give every objective once.
    """
    local, over = turn % len(LOCAL), SETS[turn // len(LOCAL) % len(SETS)]
    for system in SYSTEM:
        goal = "maximise" if system == "min" else "minimise"
        for node, where in product(NODE, ("path", "children")):
            yield f"{goal} {system}({node}({LOCAL[local]}) over {where}) over {over}"
        for cost in (ONE_LEVEL[local], SEVERAL[local]):
            yield f"{goal} {system}({cost}) over {over}"


def transformations() -> tuple[Transformation, ...]:
    """The built-in ones and one of a user."""
    return (*WIDE, OWN)


@dataclass(slots=True)
class CombinationReport:
    """What a comparison found: trees built, prices compared, combinations that occurred, and the largest error.

    `kinds` counts the trees that each system function, node function, node set and transformation was compared on.
    """

    trees: int = 0
    compared: int = 0
    max_error: float = 0.0
    worst: str = ""
    combinations: set[tuple[str, str]] = field(default_factory=set)
    kinds: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)

    def add(self, other: CombinationReport) -> None:
        """Take in what another run found on trees of its own."""
        self.trees += other.trees
        self.compared += other.compared
        self.combinations |= other.combinations
        self.kinds += other.kinds
        if other.max_error > self.max_error:
            self.max_error, self.worst = other.max_error, other.worst


def random_case(seed: int, sites: int) -> tuple[Overlay, Shape]:
    """A small random overlay with profiles, and a random tree on it."""
    generator = np.random.default_rng(seed)
    size = int(generator.integers(max(4, sites // 2), sites + 1))
    profiles = zipf_profiles(generator, size, clients=size, feeds=24)
    return plane_overlay(generator, size, noise=0.3, profiles=profiles), random_shape(generator, size)


def compare(
    compiled: Sequence[Compiled], overlay: Overlay, shape: Shape, seed: int, outcome: CombinationReport
) -> None:
    """One random application of every transformation: price it under every objective, and re-evaluate the tree."""
    view = TreeView(overlay, shape)
    changes = _changes(view, np.random.default_rng(seed))
    after = {name: TreeView(overlay, shape.moved(candidate.moves)) for name, (_, _, candidate) in changes.items()}
    outcome.trees += 1
    for objective in compiled:
        outlook = Outlook(objective, view)
        before = evaluate(objective, view)
        _note(outcome, objective, "cost", outlook.cost, before)
        kind = (objective.function, *_node(objective))
        pricers: dict[tuple[int, int], Pricer] = {}
        for name, (owner, levels, candidate) in changes.items():
            if (owner, levels) not in pricers:
                pricers[owner, levels] = outlook.pricer(outlook.unit(owner, levels))
            price = pricers[owner, levels].price(candidate.moves)
            found = evaluate(objective, after[name])
            outcome.compared += 1
            outcome.combinations.add((objective.text, name))
            outcome.kinds[*kind, name] += 1
            _note(outcome, objective, name, price.benefit, objective.better(before, found), before, found)


def _changes(view: TreeView, generator: np.random.Generator) -> dict[str, tuple[int, int, Candidate]]:
    """For every transformation one owner, levels of its unit, and what the transformation makes of it."""
    outlook = Outlook(_ANY, view)
    shape = view.shape
    owners = [site for site in shape.order if shape.children[site]]
    found: dict[str, tuple[int, int, Candidate]] = {}
    for transformation in transformations():
        for owner in generator.permutation(owners).tolist():
            levels = int(generator.integers(3, 5))
            unit = outlook.unit(owner, levels)
            choices = list(transformation.sites(unit))
            if not choices:
                continue
            candidate = apply(unit, transformation, choices[int(generator.integers(len(choices)))])
            if candidate is not None:
                found[transformation.name] = (owner, levels, candidate)
                break
    return found


_ANY = compile_objective("minimise sum(link_hop)")


def _node(compiled: Compiled) -> tuple[str, str]:
    if compiled.combine is not None:
        return "several", "several"
    term = compiled.terms[0]
    return (term.function, term.kind) if term.function else ("none", "none")


def _note(
    outcome: CombinationReport, compiled: Compiled, what: str, got: float, expected: float, *scale: float
) -> None:
    size = max([1.0, *(abs(value) for value in (expected, *scale) if np.isfinite(value))])
    same = got == expected or (np.isnan(got) and np.isnan(expected))
    error = 0.0 if same else abs(got - expected) / size
    if not error <= outcome.max_error:
        outcome.max_error, outcome.worst = error, f"{compiled.text} / {what}: {got} instead of {expected}"


def compare_trees(seeds: range, sites: int) -> CombinationReport:
    """Random trees of up to `sites` sites, each under the objectives of its turn."""
    outcome = CombinationReport()
    compiled: dict[int, list[Compiled]] = {}
    for seed in seeds:
        turn = seed % TURNS
        if turn not in compiled:
            compiled[turn] = [compile_objective(text) for text in objectives_of(turn)]
        compare(compiled[turn], *random_case(seed, sites), seed, outcome)
    return outcome


def compiled_objectives() -> list[Compiled]:
    """Every objective, compiled once."""
    return [compile_objective(text) for text in objectives()]
