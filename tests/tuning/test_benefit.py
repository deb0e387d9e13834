"""Benefits from a unit's state equal brute force, for every combination."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.tuning.compile import compile_objective
from headgate.tuning.evaluate import TreeView, evaluate
from headgate.tuning.outlook import Outlook
from headgate.tuning.states.algebra import aggregation_type
from headgate.tuning.transformations import STANDARD, candidates
from headgate_studies.models.combinations import (
    LOCAL,
    NODE,
    SYSTEM,
    TURNS,
    compare_trees,
    compiled_objectives,
    random_case,
    transformations,
)
from headgate_studies.workloads.tuning import plane_overlay, random_shape


def test_benefits_equal_brute_force():
    outcome = compare_trees(range(0, TURNS, 3), 12)  # every local value and every system set; the bench takes all pairs
    assert outcome.max_error < 1e-9, outcome.worst
    assert {name for _, name in outcome.combinations} == {rule.name for rule in transformations()}
    assert len(outcome.kinds) == len(SYSTEM) * (len(NODE) * 2 + 2) * len(transformations())


def test_the_objectives_cover_the_grammar():
    texts = [compiled.text for compiled in compiled_objectives()]
    assert len(set(texts)) == len(texts) == len(SYSTEM) * 3 * (len(NODE) * 2 * len(LOCAL) + 10)
    kinds = {aggregation_type(compiled) for compiled in compiled_objectives()}
    assert kinds == {"I", "II", "III", "IV", "V", "VI", "local", "multi"}


@pytest.mark.parametrize(
    ("text", "kind", "constant"),
    [
        ("minimise average(path_latency)", "I", True),
        ("maximise sum(path_bandwidth)", "II", False),
        ("minimise max(path_latency)", "III", True),
        ("maximise min(path_bandwidth)", "IV", True),
        ("minimise variance(path_latency)", "V", False),
        ("minimise variance(path_bandwidth)", "VI", False),
        ("minimise average(path_latency * path_bandwidth)", "multi", False),
    ],
)
def test_state_sizes_are_those_of_table_4(text, kind, constant):
    compiled = compile_objective(text)
    assert aggregation_type(compiled) == kind
    sizes = []
    for size in (20, 200):
        generator = np.random.default_rng(3)
        overlay, shape = plane_overlay(generator, size), random_shape(generator, size)
        outlook = Outlook(compiled, TreeView(overlay, shape))
        sizes.append(outlook.algebra.size(outlook.below[0]))
    if constant:
        assert sizes[0] == sizes[1] <= 2
    else:
        assert sizes[1] > 1.5 * sizes[0]


def test_a_transformation_is_transparent_outside_its_unit():
    for seed in range(8):
        overlay, shape = random_case(seed, 16)
        outlook = Outlook(compile_objective("minimise sum(path_latency)"), TreeView(overlay, shape))
        for owner in shape.order:
            unit = outlook.unit(owner)
            last = [site for site in unit.members if not unit.children(site)]
            for candidate in candidates(unit, STANDARD):
                moved = shape.moved(candidate.moves)
                for site, parent in enumerate(shape.parents):
                    if site not in unit.members or site == unit.top:
                        assert moved.parents[site] == parent
                for site in last:
                    outside = [child for child in shape.children[site] if child not in unit.members]
                    assert set(outside) <= set(moved.children[site])
                before, after = TreeView(overlay, shape), TreeView(overlay, moved)
                if unit.top != owner:
                    assert (before.merged[unit.top] == after.merged[unit.top]).all()
                    assert len(moved.children[unit.top]) == len(shape.children[unit.top])


def test_units_of_more_levels_price_the_same():
    compiled = compile_objective("minimise variance(path_latency)")
    overlay, shape = random_case(5, 16)
    outlook = Outlook(compiled, TreeView(overlay, shape))
    before = evaluate(compiled, TreeView(overlay, shape))
    for levels in (3, 4, 5):
        unit = outlook.unit(shape.root, levels)
        pricer = outlook.pricer(unit)
        for candidate in candidates(unit, STANDARD):
            after = evaluate(compiled, TreeView(overlay, shape.moved(candidate.moves)))
            assert pricer.price(candidate.moves).benefit == pytest.approx(before - after, abs=1e-12)
