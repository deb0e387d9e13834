"""`headgate bench tuning`: benefits against brute force, convergence, constraints, and the protocol's traffic."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from headgate.tuning.combinations import Outcome, compare, compiled_objectives, random_case
from headgate.tuning.compile import compile_objective
from headgate.tuning.constraints import compile_constraint
from headgate.tuning.evaluate import TreeView, evaluate
from headgate.tuning.interleavings import Model
from headgate.tuning.overlay import PlaneMetric
from headgate.tuning.protocol import Settings, Simulation
from headgate.tuning.protocol.simulation import Traffic, setting_of
from headgate.tuning.search import Options, Tuner
from headgate.tuning.shape import Shape
from headgate.tuning.steps import make_before_break
from headgate.tuning.workload import plane_overlay, random_shape, zipf_profiles


def run(
    trees: int = 2000,
    sites: int = 16,
    each: int = 1,
    seeds: int = 20,
    steps: bool = True,
    traffic_sites: tuple[int, ...] = (100, 1000, 10000),
) -> dict[str, Any]:
    """Compare `trees` random trees of up to `sites` sites, then improve `seeds` random trees per experiment."""
    figures = _exactness(trees, sites, each)
    figures |= _convergence(seeds)
    figures |= _constraints(seeds)
    figures |= _speed()
    figures |= _traffic(tuple(traffic_sites), steps)
    return figures


def _exactness(trees: int, sites: int, each: int) -> dict[str, Any]:
    """Every objective in turn on its own trees, every transformation on each."""
    objectives = compiled_objectives()
    outcome, turn = Outcome(), 0
    share = max(1, -(-len(objectives) * 2 // trees))  # every objective meets at least two trees
    for seed in range(trees):
        overlay, shape = random_case(seed, sites)
        outcome.trees += 1
        for _ in range(share):
            compare(objectives[turn % len(objectives)], overlay, shape, seed, outcome, each)
            turn += 1
    print(f"benefit against brute force: {outcome.compared} changes of {outcome.trees} trees")
    print(f"  {len(outcome.combinations)} combinations of {len(objectives)} objectives and transformations")
    print(f"  largest relative error {outcome.max_error:.2e} ({outcome.worst})")
    return {
        "combinations": len(outcome.combinations),
        "objectives": len(objectives),
        "trees": outcome.trees,
        "compared": outcome.compared,
        "max_error": outcome.max_error,
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


def _constraints(seeds: int) -> dict[str, Any]:
    """Constraints that hold must go on holding, those that do not must come closer with every step that they get."""
    objective = compile_objective("minimise sum(path_latency)")
    broken, held, start, end = 0, 0, 0.0, 0.0
    for seed in range(seeds):
        generator = np.random.default_rng(seed)
        overlay, shape = plane_overlay(generator, 40), random_shape(generator, 40)
        for texts in (("fanout <= 4",), ("path_latency <= 400 ms", "fanout <= 12")):
            limits = [compile_constraint(text) for text in texts]
            tuned = Tuner(overlay, objective, limits, Options(periods=200)).run(shape)
            now, missed = shape, [limit.of(TreeView(overlay, shape)) for limit in limits]
            start += sum(missed)
            for step in tuned.steps:
                now = now.moved(step.candidate.moves)
                found = [limit.of(TreeView(overlay, now)) for limit in limits]
                broken += sum(after > before + 1e-9 for after, before in zip(found, missed, strict=True))
                missed = found
            held += not any(missed)
            end += sum(missed)
    print(f"constraints: {broken} steps made one worse; {held} of {2 * seeds} runs end with all of them holding")
    return {
        "constraint_violations": broken,
        "constraints_held": held / (2 * seeds),
        "violation_before": start,
        "violation_after": end,
    }


def _speed() -> dict[str, Any]:
    """Pricing a change from its unit, against evaluating the changed tree, on 1,000 sites."""
    generator = np.random.default_rng(7)
    size = 1000
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
    print(f"pricing a change of 1,000 sites: {price_s * 1e6:.0f} us from the unit, {whole_s * 1e6:.0f} us from scratch")
    return {"price_speedup_1000": whole_s / price_s}


TYPES = {
    "I": "minimise average(path_latency)",
    "II": "maximise sum(path_bandwidth)",
    "III": "minimise max(path_latency)",
    "IV": "maximise min(path_bandwidth)",
    "V": "minimise variance(path_latency)",
}


def traffic_of(text: str, size: int, *, seed: int = 1, approximate: float | None = None) -> Traffic:
    """What the sites of a random tree send in one optimisation period of 240 s with 12 maintenance phases."""
    generator = np.random.default_rng(seed)
    overlay, shape = plane_overlay(generator, size, matrix=False), random_shape(generator, size)
    wide = PlaneMetric(generator.random((size, 2)), 1e6, 1e5)
    overlay = replace(overlay, links={**overlay.links, "link_bandwidth": wide})
    settings = Settings(
        compile_objective(text),
        setting_of(overlay),
        maintenance_s=20.0,
        optimisation_s=240.0,
        approximate=approximate,
    )
    simulation = Simulation(overlay, settings, seed=seed)
    simulation.start(shape)
    simulation.run(235.0 - simulation.network.now)
    return simulation.traffic()


def _traffic(sizes: tuple[int, ...], steps: bool) -> dict[str, Any]:
    """Bytes per site and period by type; beyond 1,000 sites the first type only, which takes a minute."""
    figures: dict[str, Any] = {}
    print("traffic per site and optimisation period (the root apart)")
    for kind, text in TYPES.items():
        for size in sizes:
            if size > 1000 and kind != "I":
                continue
            found = traffic_of(text, size)
            print(
                f"  type {kind:>3} {size:>6} sites: {found.messages:7.1f} messages, {found.bytes:10.0f} bytes,"
                f" root {found.root_bytes:12.0f} bytes"
            )
            name = "bytes_per_site" if kind == "I" else f"bytes_per_site_type_{kind}"
            figures[f"{name}_{size}"] = found.bytes
    if steps:
        shape = Shape([-1, 0, 1, 2])
        verdict = Model(shape, make_before_break(shape, [(1, 2), (2, 0), (3, 1)]), rows=2, cache=0).check()
        print(f"make before break, parent-child swap: {verdict.states} states, fault: {verdict.fault}")
        figures |= {"interleaved_states": verdict.states, "interleaved_faults": int(verdict.fault is not None)}
    return figures
