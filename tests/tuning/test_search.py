"""Trees improve step by step, and constraints are kept on the way."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.tuning.compile import compile_objective
from headgate.tuning.constraints import compile_constraint
from headgate.tuning.evaluate import TreeView, evaluate
from headgate.tuning.outlook import Outlook
from headgate.tuning.search import Options, Tuner, critical_owners
from headgate.tuning.transformations import STANDARD, candidates
from headgate_studies.workloads.tuning import plane_overlay, random_shape


def test_path_latency_reaches_the_star_with_changes_side_by_side():
    for seed in range(3):
        generator = np.random.default_rng(seed)
        overlay, shape = plane_overlay(generator, 20), random_shape(generator, 20)
        tuner = Tuner(overlay, compile_objective("minimise sum(path_latency)"), options=Options(concurrent=True))
        tuned = tuner.run(shape)
        assert tuned.settled
        assert tuned.shape.parents == [-1] + [0] * 19


def test_every_step_does_what_it_promised():
    generator = np.random.default_rng(2)
    overlay, shape = plane_overlay(generator, 18, noise=0.4), random_shape(generator, 18)
    for text in ("minimise std(path_latency)", "maximise min(path_bandwidth)", "minimise average(path_loss)"):
        compiled = compile_objective(text)
        tuned = Tuner(overlay, compiled).run(shape)
        cost, now = tuned.before, shape
        for step in tuned.steps:
            now = now.moved(step.candidate.moves)
            found = evaluate(compiled, TreeView(overlay, now))
            assert compiled.better(cost, found) == pytest.approx(step.benefit, rel=1e-9, abs=1e-9)
            assert found == pytest.approx(step.cost)
            cost = found
        assert now.parents == tuned.shape.parents


def test_constraints_that_hold_are_never_broken_and_others_come_first():
    for seed in range(3):
        generator = np.random.default_rng(seed)
        overlay, shape = plane_overlay(generator, 18), random_shape(generator, 18)
        limits = [compile_constraint("fanout <= 2"), compile_constraint("max(path_latency) <= 600 ms")]
        tuner = Tuner(overlay, compile_objective("minimise sum(path_latency)"), limits)
        tuned = tuner.run(shape)
        missed, now = [limit.of(TreeView(overlay, shape)) for limit in limits], shape
        assert sum(missed) > 0
        for step in tuned.steps:
            offers = tuner.offers(tuner.scene(now)) if sum(missed) else []
            now = now.moved(step.candidate.moves)
            found = [limit.of(TreeView(overlay, now)) for limit in limits]
            assert all(after <= was + 1e-9 for after, was in zip(found, missed, strict=True))
            if any(offer.relief > 1e-9 for offer in offers):
                assert sum(found) < sum(missed)
            missed = found
        assert sum(missed) < tuned.violation_before


def test_only_critical_units_can_improve_a_bottleneck():
    for text in ("minimise max(path_latency)", "maximise min(path_bandwidth)", "minimise max(matching_cpu)"):
        compiled = compile_objective(text)
        for seed in range(3):
            generator = np.random.default_rng(seed)
            overlay, shape = plane_overlay(generator, 15), random_shape(generator, 15)
            outlook = Outlook(compiled, TreeView(overlay, shape))
            critical = critical_owners(outlook)
            for owner in shape.order:
                unit = outlook.unit(owner)
                pricer = outlook.pricer(unit)
                if any(pricer.price(found.moves).benefit > 1e-12 for found in candidates(unit, STANDARD)):
                    assert owner in critical


def test_random_moves_and_opportunistic_mode_stay_inside_the_constraints():
    generator = np.random.default_rng(9)
    overlay, shape = plane_overlay(generator, 16), random_shape(generator, 16)
    limit = compile_constraint("fanout <= 8")
    assert limit.of(TreeView(overlay, shape)) == 0
    for options in (Options(random_share=0.3, periods=20), Options(mode="opportunistic", periods=20)):
        tuned = Tuner(overlay, compile_objective("minimise max(path_latency)"), [limit], options, seed=4).run(shape)
        now = shape
        for step in tuned.steps:
            now = now.moved(step.candidate.moves)
            assert limit.of(TreeView(overlay, now)) == 0


def test_screening_demotions_changes_nothing():
    for seed in range(3):
        generator = np.random.default_rng(seed)
        overlay, shape = plane_overlay(generator, 12, noise=0.6), random_shape(generator, 12)
        compiled = compile_objective("minimise average(path_latency)")
        found = [Tuner(overlay, compiled, options=Options(screen=screen)).run(shape) for screen in (True, False)]
        assert found[0].shape.parents == found[1].shape.parents
        assert found[0].priced < found[1].priced
