"""Every combination that a benefit must be exact for, and the comparison with brute force.

A combination is a system function, a node cost (function, set and local value), a system set and a transformation,
one of which is a composite that only its primitives define.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from headgate.tuning.compile import Compiled, compile_objective
from headgate.tuning.evaluate import TreeView, evaluate
from headgate.tuning.outlook import Outlook
from headgate.tuning.overlay import Overlay
from headgate.tuning.shape import Shape
from headgate.tuning.transformations import WIDE, Transformation, Workbench
from headgate.tuning.transformations.registry import apply
from headgate.tuning.unit import Unit
from headgate.tuning.workload import plane_overlay, random_shape, zipf_profiles

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


@dataclass(frozen=True, slots=True)
class Combination:
    """One objective and one transformation."""

    objective: str
    transformation: Transformation


def objectives() -> Iterator[str]:
    """Every system function over every node cost, local value and several metrics at once."""
    for system, over in product(SYSTEM, SETS):
        goal = "maximise" if system == "min" else "minimise"
        for node, where, local in product(NODE, ("path", "children"), LOCAL):
            yield f"{goal} {system}({node}({local}) over {where}) over {over}"
        for cost in (*ONE_LEVEL, *SEVERAL):
            yield f"{goal} {system}({cost}) over {over}"


def transformations() -> tuple[Transformation, ...]:
    """The built-in ones and one of a user."""
    return (*WIDE, OWN)


@dataclass(slots=True)
class Outcome:
    """What a comparison found: trees built, prices compared, combinations that occurred, and the largest error."""

    trees: int = 0
    compared: int = 0
    max_error: float = 0.0
    worst: str = ""
    combinations: set[tuple[str, str]] = None  # type: ignore[assignment]  # set in __post_init__

    def __post_init__(self) -> None:
        self.combinations = set()


def random_case(seed: int, sites: int) -> tuple[Overlay, Shape]:
    """A small random overlay with profiles, and a random tree on it."""
    generator = np.random.default_rng(seed)
    size = int(generator.integers(max(4, sites // 2), sites + 1))
    profiles = zipf_profiles(generator, size, clients=size, feeds=24)
    return plane_overlay(generator, size, noise=0.3, profiles=profiles), random_shape(generator, size)


def compare(compiled: Compiled, overlay: Overlay, shape: Shape, seed: int, outcome: Outcome, each: int = 1) -> None:
    """Price `each` random applications of every transformation and re-evaluate the changed tree for each."""
    generator = np.random.default_rng(seed)
    view = TreeView(overlay, shape)
    outlook = Outlook(compiled, view)
    before = evaluate(compiled, view)
    _note(outcome, compiled, "cost", outlook.cost, before)
    owners = [site for site in shape.order if shape.children[site]]
    for transformation in transformations():
        found = 0
        for owner in generator.permutation(owners):
            unit: Unit = outlook.unit(int(owner), int(generator.integers(3, 5)))
            choices = list(transformation.sites(unit))
            if not choices:
                continue
            arguments = choices[int(generator.integers(len(choices)))]
            candidate = apply(unit, transformation, arguments)
            if candidate is None:
                continue
            price = outlook.pricer(unit).price(candidate.moves)
            after = evaluate(compiled, TreeView(overlay, shape.moved(candidate.moves)))
            outcome.compared += 1
            outcome.combinations.add((compiled.text, transformation.name))
            _note(outcome, compiled, transformation.name, price.benefit, compiled.better(before, after), before, after)
            found += 1
            if found == each:
                break


def _note(outcome: Outcome, compiled: Compiled, what: str, got: float, expected: float, *scale: float) -> None:
    size = max([1.0, *(abs(value) for value in (expected, *scale) if np.isfinite(value))])
    same = got == expected or (np.isnan(got) and np.isnan(expected))
    error = 0.0 if same else abs(got - expected) / size
    if not error <= outcome.max_error:
        outcome.max_error, outcome.worst = error, f"{compiled.text} / {what}: {got} instead of {expected}"


def compiled_objectives() -> list[Compiled]:
    """Every objective, compiled once."""
    return [compile_objective(text) for text in objectives()]
