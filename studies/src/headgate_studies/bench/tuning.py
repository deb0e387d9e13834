"""`headgate bench tuning`: benefits against brute force, convergence, constraints, and the protocol's traffic."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np

from headgate.tuning.compile import compile_objective
from headgate.tuning.constraints import CompiledConstraint, compile_constraint
from headgate.tuning.evaluate import TreeView, evaluate
from headgate.tuning.overlay import Overlay
from headgate.tuning.protocol import TuningSettings, TuningSimulation
from headgate.tuning.protocol.simulation import setting_of
from headgate.tuning.search import TOLERANCE, Options, Tuner
from headgate.tuning.shape import Shape
from headgate.tuning.steps import make_before_break
from headgate_studies.bench.tuning_streams import stream_figures
from headgate_studies.models.combinations import CombinationReport, compare_trees, objectives
from headgate_studies.models.interleavings import Model
from headgate_studies.workloads.tuning import plane_overlay, random_shape, zipf_profiles
from headgate_studies.workloads.tuning_traffic import approximation_figures, traffic_figures

_BATCH = 25


def run(
    trees: int = 2000,
    sites: int = 16,
    seeds: int = 20,
    steps: bool = True,
    constrained_sites: int = 20,
    priced_sites: int = 1000,
    traffic_sites: tuple[int, ...] = (100, 1000, 10000),
    approximate_sites: int = 60,
    stream_sites: int = 12,
    streams: int = 3,
    processes: int | None = None,
) -> dict[str, Any]:
    """Compare `trees` random trees of up to `sites` sites, then improve `seeds` random trees per experiment.

    A quarter of the seeds tunes `streams` trees over the same `stream_sites` sites together.
    The work is spread over `processes` processes (one a core when not given).
    """
    count = processes or os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")  # forking a process with threads is not safe
    with ProcessPoolExecutor(count, context) if count > 1 else nullcontext() as pool:
        spread: Callable[..., Iterable[Any]] = pool.map if pool is not None else map
        figures = _exactness(trees, sites, spread)
        figures |= _convergence(seeds)
        figures |= _constraints(seeds, constrained_sites, spread)
        figures |= _speed(priced_sites)
        figures |= traffic_figures(tuple(traffic_sites), spread)
        figures |= approximation_figures(approximate_sites, max(1, seeds // 4), spread)
        figures |= stream_figures(max(1, seeds // 4), stream_sites, streams, spread)
    if steps:
        figures |= _steps()
    return figures


def _exactness(trees: int, sites: int, spread: Callable[..., Iterable[Any]]) -> dict[str, Any]:
    """Every tree under every system function, node function and set, and every transformation on each.

    Local values and system sets take turns, so that 15 trees meet every objective once.
    """
    outcome = CombinationReport()
    batches = [range(start, min(start + _BATCH, trees)) for start in range(0, trees, _BATCH)]
    for found in spread(compare_trees, batches, [sites] * len(batches)):
        outcome.add(found)
    kinds = outcome.kinds
    print(f"benefit against brute force: {outcome.compared:,} changes of {outcome.trees:,} trees")
    print(
        f"  {len(kinds)} combinations of system function, node function, node set and transformation, each on"
        f" {min(kinds.values()):,} to {max(kinds.values()):,} trees"
    )
    print(f"  {len(outcome.combinations):,} with local values and system sets ({len(set(objectives())):,} objectives)")
    print(f"  largest relative error {outcome.max_error:.2e} ({outcome.worst})")
    return {
        "combinations": len(outcome.combinations),
        "trees": outcome.trees,
        "max_error": outcome.max_error,
        "compared": outcome.compared,
        "kinds": len(kinds),
        "trees_per_kind": min(kinds.values()),
        "objectives": len(set(objectives())),
    }


def _convergence(seeds: int) -> dict[str, Any]:
    latency = compile_objective("minimise sum(path_latency)")
    extra = compile_objective("minimise sum(superfluous_data)")
    stars, zeros, steps, extra_steps = 0, 0, [], []
    for seed in range(seeds):
        generator = np.random.default_rng(seed)
        overlay, shape = plane_overlay(generator, 20), random_shape(generator, 20)
        tuned = Tuner(overlay, latency).run(shape)
        stars += all(parent <= 0 for parent in tuned.shape.parents)
        steps.append(len(tuned.steps))
        generator = np.random.default_rng(1000 + seed)
        overlay = plane_overlay(generator, 40, profiles=zipf_profiles(generator, 40))
        tuned = Tuner(overlay, extra).run(random_shape(generator, 40))
        zeros += tuned.after <= 1e-6
        extra_steps.append(len(tuned.steps))
    print(f"20 sites, path latency: {stars} of {seeds} reach the star, {np.mean(steps):.1f} steps on average")
    print(f"40 sites, superfluous data: {zeros} of {seeds} reach 0, {np.mean(extra_steps):.1f} steps on average")
    return {
        "star_reached": stars / seeds,
        "superfluous_zero": zeros / seeds,
        "star_steps": float(np.mean(steps)),
        "superfluous_steps": float(np.mean(extra_steps)),
    }


LIMITS: tuple[tuple[str, ...], ...] = (
    ("fanout <= 4",),
    ("path_latency <= 400 ms", "fanout <= 12"),
    ("average(path_latency) <= 200 ms", "max(fanout) <= 8"),
    ("path_bandwidth >= 20 kB/s", "fanout != 5"),
)


def _constraints(seeds: int, sites: int, spread: Callable[..., Iterable[Any]]) -> dict[str, Any]:
    """Constraints that hold go on holding, and those that do not come closer before anything else is improved.

    Counted after every step, by re-evaluating the tree: `constraint_violations` are steps that made a constraint miss
    by more than before, `relief_passed_over` steps that left one missed although some change would have helped it.
    """
    total: Counter[str] = Counter()
    few = max(1, seeds // 4)
    for found in spread(_constrained, range(seeds), [sites] * seeds):
        total.update(found)
    for found in spread(_constrained_protocol, range(few), [sites // 2] * few):
        total.update(found)
    print(
        f"constraints: {total['worse']} of {total['steps'] + total['decided']} steps ({total['decided']} decided by"
        f" messages) made one worse, {total['passed']} passed over a change that brings one closer;"
        f" {total['missing']} of {total['runs']} runs start with one missed, {total['held']} end with all holding"
    )
    return {
        "constraint_violations": total["worse"],
        "constraint_steps": total["steps"] + total["decided"],
        "relief_passed_over": total["passed"],
        "constraint_runs_missed_at_the_start": total["missing"],
        "constraints_held": total["held"] / total["runs"],
    }


def _constrained(seed: int, sites: int) -> Counter[str]:
    """One random tree under every set of limits, one change at a time and several side by side."""
    objective, total = compile_objective("minimise sum(path_latency)"), Counter[str]()
    generator = np.random.default_rng(seed)
    overlay, shape = plane_overlay(generator, sites), random_shape(generator, sites)
    for texts, concurrent in product(LIMITS, (False, True)):
        limits = [compile_constraint(text) for text in texts]
        tuner = Tuner(overlay, objective, limits, Options(periods=200, concurrent=concurrent))
        now, missed = shape, _missed(limits, overlay, shape)
        total.update(runs=1, missing=int(any(missed)))
        for step in tuner.run(shape).steps:
            relief = any(missed) and not concurrent and _relief(tuner, now)
            now = now.moved(step.candidate.moves)
            found = _missed(limits, overlay, now)
            total.update(steps=1, worse=_worse(missed, found), passed=int(relief and not sum(found) < sum(missed)))
            missed = found
        total.update(held=int(not any(missed)))
    return total


def _constrained_protocol(seed: int, sites: int) -> Counter[str]:
    """The same with sites on their own, several changes a period, looked at after every period."""
    total: Counter[str] = Counter()
    for texts in LIMITS:
        generator = np.random.default_rng(seed)
        overlay, shape = plane_overlay(generator, sites), random_shape(generator, sites)
        limits = tuple(compile_constraint(text) for text in texts)
        objective = compile_objective("minimise sum(path_latency)")
        settings = TuningSettings(objective, setting_of(overlay), limits=limits, concurrent=True)
        simulation = TuningSimulation(overlay, settings, seed=seed)
        simulation.start(shape)
        missed = _missed(limits, overlay, shape)
        for _ in range(15):
            simulation.run(settings.optimisation_s)
            found = _missed(limits, overlay, simulation.shape())
            total.update(worse=_worse(missed, found))
            missed = found
        total.update(decided=len(simulation.applied()))
    return total


def _missed(limits: Sequence[CompiledConstraint], overlay: Overlay, shape: Shape) -> list[float]:
    view = TreeView(overlay, shape)
    return [limit.of(view) for limit in limits]


def _worse(before: list[float], after: list[float]) -> int:
    return sum(now > was + 1e-9 for now, was in zip(after, before, strict=True))


def _relief(tuner: Tuner, shape: Shape) -> bool:
    return any(offer.relief > TOLERANCE for offer in tuner.offers(tuner.scene(shape)))


def _speed(size: int) -> dict[str, Any]:
    """Pricing a change from its unit, against evaluating the changed tree."""
    generator = np.random.default_rng(7)
    overlay, shape = plane_overlay(generator, size), random_shape(generator, size)
    compiled = compile_objective("minimise sum(path_latency)")
    tuner = Tuner(overlay, compiled, options=Options(periods=1))
    scene = tuner.scene(shape)
    began = time.perf_counter()
    tuner.offers(scene)
    price_s = (time.perf_counter() - began) / tuner.priced
    began = time.perf_counter()
    for _ in range(20):
        evaluate(compiled, TreeView(overlay, shape))
    whole_s = (time.perf_counter() - began) / 20
    print(
        f"pricing a change of {size:,} sites: {price_s * 1e6:.0f} us from the unit, {whole_s * 1e6:.0f} us from scratch"
    )
    return {f"price_speedup_{size}": whole_s / price_s}


def _steps() -> dict[str, Any]:
    """Every interleaving of a parent-child swap's step list on a small tree, with rows in flight and no cache."""
    shape = Shape([-1, 0, 1, 2])
    verdict = Model(shape, make_before_break(shape, [(1, 2), (2, 0), (3, 1)]), rows=2, cache=0).check()
    print(f"make before break, parent-child swap: {verdict.states:,} states, fault: {verdict.fault}")
    return {"interleaved_states": verdict.states, "interleaved_faults": int(verdict.fault is not None)}
