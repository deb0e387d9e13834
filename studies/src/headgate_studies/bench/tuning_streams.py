"""The tuning benchmark's figures for several stream trees over the same sites, decided by messages alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from headgate.tuning.compile import compile_objective
from headgate.tuning.constraints import compile_constraint
from headgate.tuning.evaluate import TreeView, together
from headgate.tuning.overlay import Overlay
from headgate.tuning.protocol import TuningSettings, TuningSimulation
from headgate.tuning.protocol.simulation import setting_of
from headgate.tuning.protocol.streams import IMPLICIT, StreamSimulation
from headgate.tuning.shape import Shape
from headgate_studies.workloads.tuning import stream_trees

_PERIODS = 60
_QUIET = 3  # periods without a decision: nothing more helps
_LOSS = 0.05


def stream_figures(runs: int, sites: int, streams: int, spread: Callable[..., Iterable[Any]] = map) -> dict[str, Any]:
    """Total cost over all trees before and after, and what became of the limits that are always in force.

    `streams_violations` are periods after which a limit over all trees is missed by more than before them.
    `streams_overloaded_alone` are runs in which the same trees, each tuned without knowing of the others, end with a
    site past its bandwidth. `streams_max_error` compares the judge's picture of the total with re-evaluation.
    """
    found = list(spread(_run, range(runs), [sites] * runs, [streams] * runs))
    cost = np.array([(each["before"], each["after"]) for each in found])
    figures = {
        "streams": streams,
        "streams_sites": sites,
        "streams_cost_before": float(cost[:, 0].mean()),
        "streams_cost_after": float(cost[:, 1].mean()),
        "streams_steps": sum(each["steps"] for each in found),
        "streams_violations": sum(each["worse"] for each in found),
        "streams_violations_with_loss": sum(each["worse_with_loss"] for each in found),
        "streams_missed_at_the_start": sum(each["missed"] for each in found) / runs,
        "streams_held": sum(each["held"] for each in found) / runs,
        "streams_overloaded_alone": sum(each["alone"] for each in found) / runs,
        "streams_max_error": max(each["error"] for each in found),
        "streams_bytes_per_site": float(np.mean([each["bytes"] for each in found])),
    }
    print(
        f"{streams} trees over {sites} sites, {runs} runs: total path latency {figures['streams_cost_before']:.3g} ->"
        f" {figures['streams_cost_after']:.3g} s in {figures['streams_steps']} steps;"
        f" {figures['streams_violations']} made a site's bandwidth or a granted delay worse"
        f" ({figures['streams_violations_with_loss']} with {100 * _LOSS:.0f} % of messages lost)"
    )
    print(
        f"  limits over all trees missed at the start in {100 * figures['streams_missed_at_the_start']:.0f} % of the"
        f" runs, held at the end in {100 * figures['streams_held']:.0f} %; trees that do not know of each other end"
        f" with an overloaded site in {100 * figures['streams_overloaded_alone']:.0f} %"
    )
    print(
        f"  judge's total against re-evaluation: {figures['streams_max_error']:.1e};"
        f" {figures['streams_bytes_per_site']:.0f} bytes a site and period"
    )
    return figures


def _run(seed: int, sites: int, streams: int) -> dict[str, Any]:
    overlays, shapes = stream_trees(np.random.default_rng(seed), sites, streams)
    figures = _together(overlays, shapes, seed, 0.0)
    lossy = _together(overlays, shapes, seed, _LOSS)
    return {**figures, "worse_with_loss": lossy["worse"], "alone": _overloaded_alone(overlays, shapes, seed)}


def _settings(overlay: Overlay) -> TuningSettings:
    limits = tuple(compile_constraint(text) for text in IMPLICIT)
    return TuningSettings(compile_objective("minimise sum(path_latency)"), setting_of(overlay), limits=limits)


def _together(overlays: list[Overlay], shapes: list[Shape], seed: int, loss: float) -> dict[str, Any]:
    settings = _settings(overlays[0])
    simulation = StreamSimulation(overlays, settings, loss=loss, seed=seed)
    simulation.start(shapes)
    simulation.run(settings.optimisation_s - 10 - simulation.network.now)
    before, first = simulation.cost(), simulation.missed()
    missed, worse, error, quiet, periods = first, 0, 0.0, 0, 0
    sent = sum(simulation.network.counts.bytes.values())
    while periods < _PERIODS and quiet < _QUIET:
        decided = len(simulation.applied())
        simulation.run(settings.optimisation_s)
        now = simulation.missed()
        worse += any(after > was + 1e-9 * max(1.0, was) for was, after in zip(missed, now, strict=True))
        missed, periods = now, periods + 1
        quiet = 0 if len(simulation.applied()) > decided else quiet + 1
        error = max(error, abs(simulation.known_cost() / simulation.cost() - 1.0))
    return {
        "before": before,
        "after": simulation.cost(),
        "steps": len(simulation.applied()),
        "worse": worse,
        "missed": any(first),
        "held": not any(missed),
        "error": error,
        "bytes": (sum(simulation.network.counts.bytes.values()) - sent) / periods / overlays[0].size,
    }


def _overloaded_alone(overlays: list[Overlay], shapes: list[Shape], seed: int) -> bool:
    """Whether the trees overload a site when each is tuned as if it were the only one."""
    views = []
    for overlay, shape in zip(overlays, shapes, strict=True):
        simulation = TuningSimulation(overlay, _settings(overlay), seed=seed)
        simulation.start(shape)
        quiet, decided = 0, 0
        while quiet < _QUIET:
            simulation.run(simulation.settings.optimisation_s)
            quiet = 0 if len(simulation.applied()) > decided else quiet + 1
            decided = len(simulation.applied())
        views.append(TreeView(overlay, simulation.shape()))
    everything = together(views)
    return any(compile_constraint(text).of(everything) > 0 for text in IMPLICIT[:2])
