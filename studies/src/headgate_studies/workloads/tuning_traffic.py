"""What the tuning protocol sends, by type of objective and number of sites, and what approximate statistics change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from headgate.tuning.compile import compile_objective
from headgate.tuning.evaluate import TreeView, evaluate
from headgate.tuning.overlay import Overlay, PlaneMetric
from headgate.tuning.protocol import TuningSettings, TuningSimulation
from headgate.tuning.protocol.simulation import Traffic, setting_of
from headgate.tuning.shape import Shape
from headgate_studies.workloads.tuning import plane_overlay, random_shape

TYPES: Mapping[str, str] = MappingProxyType(
    {
        "I": "minimise average(path_latency)",
        "II": "maximise sum(path_bandwidth)",
        "III": "minimise max(path_latency)",
        "IV": "maximise min(path_bandwidth)",
        "V": "minimise variance(path_latency)",
        "VI": "minimise variance(path_bandwidth)",
    }
)
CONSTANT = ("I", "III", "IV")
"""Types whose state is constant in Table 4."""


def traffic_of(text: str, size: int, *, seed: int = 1, approximate: float | None = None) -> Traffic:
    """What the sites of a random tree send in one optimisation period of 240 s with 12 maintenance phases."""
    generator = np.random.default_rng(seed)
    overlay, shape = plane_overlay(generator, size, matrix=False), random_shape(generator, size)
    wide = PlaneMetric(generator.random((size, 2)), 1e6, 1e5)
    overlay = replace(overlay, links={**overlay.links, "link_bandwidth": wide})
    settings = TuningSettings(
        compile_objective(text),
        setting_of(overlay),
        maintenance_s=20.0,
        optimisation_s=240.0,
        approximate=approximate,
    )
    simulation = TuningSimulation(overlay, settings, seed=seed)
    simulation.start(shape)
    simulation.run(235.0 - simulation.network.now)
    return simulation.traffic()


def traffic_cases(sizes: tuple[int, ...], largest_growing: int = 1000) -> Iterator[tuple[str, int]]:
    """Every type at every size; types that grow stop at `largest_growing` sites, where they send 100 KB a site."""
    for kind in TYPES:
        for size in sizes:
            if kind in CONSTANT or size <= largest_growing:
                yield kind, size


@dataclass(frozen=True, slots=True)
class Approximated:
    """A system after some periods: its cost, steps, and maintenance bytes a site in the first period."""

    before: float
    after: float
    steps: int
    maintenance_bytes: float
    connected: bool


def approximated(
    overlay: Overlay, shape: Shape, constant: float | None, *, seed: int, periods: int, text: str = TYPES["V"]
) -> Approximated:
    """Run the protocol with exact statistics (None) or with every site reporting each (w * constant)-th phase."""
    settings = TuningSettings(compile_objective(text), setting_of(overlay), approximate=constant)
    simulation = TuningSimulation(overlay, settings, seed=seed)
    simulation.start(shape)
    simulation.run(115.0 - simulation.network.now)
    first = simulation.traffic()
    simulation.run((periods - 1) * settings.optimisation_s)
    return Approximated(
        evaluate(settings.objective, TreeView(overlay, shape)),
        simulation.cost(),
        len(simulation.applied()),
        first.maintenance_bytes,
        simulation.connected(),
    )


def traffic_figures(sizes: tuple[int, ...], spread: Callable[..., Iterable[Any]] = map) -> dict[str, Any]:
    """Print and return messages and bytes per site and period by type and size, the root apart.

    `spread` is `map`, or one that uses several processes.
    """
    figures: dict[str, Any] = {}
    print("traffic per site and optimisation period; the root apart")
    print("  type   sites  messages  bytes  against first   root messages  root bytes")
    first: dict[str, float] = {}
    cases = list(traffic_cases(sizes))
    traffic = spread(traffic_of, [TYPES[kind] for kind, _ in cases], [size for _, size in cases])
    for (kind, size), found in zip(cases, traffic, strict=True):
        grown = found.bytes / first.setdefault(kind, found.bytes)
        print(
            f"  {kind:>4} {size:>7,} {found.messages:>9.1f} {found.bytes:>6.0f} {grown:>14.2f}"
            f" {found.root_messages:>15.0f} {found.root_bytes:>11.0f}"
        )
        name = "" if kind == "I" else f"_type_{kind}"
        figures[f"bytes_per_site{name}_{size}"] = found.bytes
        figures[f"messages_per_site{name}_{size}"] = found.messages
        figures[f"root_bytes{name}_{size}"] = found.root_bytes
    return figures


def approximation_figures(
    sites: int, seeds: int, spread: Callable[..., Iterable[Any]] = map, periods: int = 16
) -> dict[str, Any]:
    """Print and return what approximate statistics save in maintenance bytes and cost in the objective."""
    figures: dict[str, Any] = {}
    exact: list[Approximated] = []
    constants = (None, 1.0, 3.0)
    work = [(sites, seed, constant, periods) for constant in constants for seed in range(seeds)]
    found: list[Approximated] = list(spread(_approximated, *zip(*work, strict=True)))
    for number, constant in enumerate(constants):
        runs = found[number * seeds : (number + 1) * seeds]
        exact = exact or runs
        saved = 1 - sum(run.maintenance_bytes for run in runs) / sum(run.maintenance_bytes for run in exact)
        ratio = sum(run.after for run in runs) / sum(run.after for run in exact)
        steps = float(np.mean([run.steps for run in runs]))
        told = "exact statistics" if constant is None else f"approximate, p = {constant:g}"
        print(
            f"{told}, {sites} sites, variance of latency: {runs[0].maintenance_bytes:.0f} maintenance bytes a site,"
            f" {100 * saved:.0f} % saved, final variance x{ratio:.2f}, {steps:.1f} steps in {periods} periods"
        )
        if constant is not None:
            figures[f"approximation_saved_p{constant:g}"] = saved
            figures[f"approximation_cost_p{constant:g}"] = ratio - 1
    return figures


def _approximated(sites: int, seed: int, constant: float | None, periods: int) -> Approximated:
    generator = np.random.default_rng((seed, sites))
    overlay, shape = plane_overlay(generator, sites), random_shape(generator, sites)
    return approximated(overlay, shape, constant, seed=seed, periods=periods)
