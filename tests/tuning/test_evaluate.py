"""The evaluation of a whole tree against the definitions, written out naively."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import numpy as np
import pytest

from headgate.model import Tree
from headgate.tuning.aggregate import system_cost
from headgate.tuning.compile import compile_objective
from headgate.tuning.evaluate import TreeView, evaluate, node_costs
from headgate.tuning.language.vocabulary import Vocabulary
from headgate.tuning.overlay import MatrixMetric, Overlay, Profiles
from headgate.tuning.shape import Shape
from headgate_studies.models.combinations import random_case

LATENCY = np.array([[0, 1, 2, 4], [1, 0, 3, 5], [2, 3, 0, 7], [4, 5, 7, 0]], dtype=float)
PROFILES = Profiles.of_atoms(
    np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 1]], dtype=bool), np.array([10.0, 20.0, 40.0])
)
OVERLAY = Overlay(4, {"link_latency": MatrixMetric(LATENCY)}, profiles=PROFILES, clients=np.array([0, 1, 2, 3]))
CHAIN = Shape([-1, 0, 1, 1])  # 0 - 1 - (2, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sum(path_latency)", 1 + (1 + 3) + (1 + 5)),
        ("average(path_latency)", 11 / 4),
        ("max(path_latency)", 6),
        ("sum(path_latency) over clients", 1 * 1 + 2 * 4 + 3 * 6),
        ("average(path_latency) over clients", 27 / 6),
        ("average(path_latency) over brokers-clients", 38 / 10),
        ("sum(path_latency) over brokers-clients", 2 * 1 + 3 * 4 + 4 * 6),
        ("variance(path_latency)", statistics.variance([0, 1, 4, 6])),
        ("std(path_latency)", statistics.stdev([0, 1, 4, 6])),
        ("product(path_latency)", 0),
        ("p50(path_latency)", 1),
        ("sum(average(link_latency) over path)", 1 + 2 + 3),
        ("sum(min(link_latency) over path)", 3),
        ("sum(max(link_latency) over children)", 1 + 5),
        ("sum(incoming_rate)", 70 + 70 + 20 + 50),
        ("sum(superfluous_data)", 60),
        ("sum(outgoing_rate)", 70 + 70),
        ("sum(sum(incoming_rate) over children)", 70 + 70),
        ("max(fanout)", 2),
        ("sum(hops)", 5),
        ("sum(size(merged_profile) - size(own_profile))", 70 + 60),
        ("sum(overlap(merged_profile, own_profile))", 10 + 20 + 50),
        ("sum(size(children_profile))", 70 + 70),
    ],
)
def test_definitions(text, expected):
    compiled = compile_objective(f"minimise {text}")
    assert evaluate(compiled, TreeView(OVERLAY, CHAIN)) == pytest.approx(expected, abs=1e-12)


def test_the_root_has_no_link_above_it():
    """Equation 3 sums over all sites: a sum over no links is 0, the other functions have no value there."""
    assert node_costs(compile_objective("minimise sum(path_latency)"), TreeView(OVERLAY, CHAIN))[0] == 0
    worst = compile_objective("minimise sum(max(link_latency) over path)")
    assert math.isnan(node_costs(worst, TreeView(OVERLAY, CHAIN))[0])


def test_the_root_has_a_path_of_nodes():
    costs = node_costs(compile_objective("minimise sum(sum(fanout) over path)"), TreeView(OVERLAY, CHAIN))
    assert costs.tolist() == [1, 3, 3, 3]


def test_functions_of_profiles():
    vocabulary = Vocabulary({"atoms": lambda profile: float(profile.sum())})
    compiled = compile_objective("minimise sum(atoms(merged_profile))", vocabulary)
    assert evaluate(compiled, TreeView(OVERLAY, CHAIN)) == 3 + 3 + 1 + 2


def test_against_a_naive_walk():
    for seed in range(30):
        overlay, shape = random_case(seed, 12)
        tree = shape.tree("s", [f"n{site:02d}" for site in range(overlay.size)])
        latency = {
            site: sum(_latency(overlay, child, parent) for parent, child in pairwise(path))
            for site in tree.members
            for path in [tree.path(site)]
            if len(path) > 1
        }
        view = TreeView(overlay, shape)
        assert evaluate(compile_objective("minimise sum(path_latency)"), view) == pytest.approx(sum(latency.values()))
        below = {
            site: np.logical_or.reduce(
                [overlay.wanted.bits[int(name[1:])] for name in (site, *tree.below(site))], axis=0
            )
            for site in tree.members
        }
        extra = sum(
            overlay.wanted.size(bits) - overlay.wanted.size(overlay.wanted.bits[int(site[1:])])
            for site, bits in below.items()
            if site != tree.root
        )
        assert evaluate(compile_objective("minimise sum(extra_incoming())"), view) == pytest.approx(extra)


def _latency(overlay, child, parent):
    return overlay.links["link_latency"].between(int(child[1:]), int(parent[1:]))


def test_percentiles_count_weights():
    costs, weights = np.array([1.0, 2.0, 3.0]), np.array([8, 1, 1])
    assert system_cost("p80", costs, weights) == 1
    assert system_cost("p90", costs, weights) == 2
    assert system_cost("p100", costs, weights) == 3


def test_shapes_and_trees_convert():
    tree = Tree("s", "a", {"b": "a", "c": "b"})
    numbers = {"a": 0, "b": 1, "c": 2, "unused": 3}
    shape = Shape.of(tree, numbers)
    assert shape.parents == [-1, 0, 1, -2]
    assert shape.tree("s", list(numbers)) == tree
    with pytest.raises(ValueError, match="below the root"):
        Shape([-1, 2, 1])
