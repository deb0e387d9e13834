"""Random problems as in Table 2 of the QASD paper, and larger ones of the same kind.

ERRATA readings: the source holds the whole stream and is not a member; a filter type takes each block with probability
one half and is drawn again when empty; a KByte is 1000 bytes and a Mbit 125,000; processing delay is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.model import Quality, Site
from headgate.planning.interest import InterestPieces, Universe
from headgate.planning.problem import Delays, Flow, Member, Problem, Want

MBIT = 125_000.0


@dataclass(frozen=True, slots=True)
class Workload:
    """The parameters of Table 2 with their defaults; `scale` multiplies the bandwidths of all sites."""

    sites: int = 100
    streams: int = 20
    filters_per_stream: int = 30
    delay_s: tuple[float, float] = (0.010, 0.500)
    drop_threshold: tuple[float, float] = (0.0, 0.2)
    delay_threshold_s: tuple[float, float] = (1.0, 5.0)
    blocks: int = 10
    filter_types: int = 4
    stream_bytes_per_s: tuple[float, float] = (50_000.0, 100_000.0)
    download_mbit: tuple[float, float] = (1.0, 5.0)
    upload_mbit: tuple[float, float] = (0.5, 2.5)
    scale: float = 1.0
    delay_scale: float = 1.0
    positions: bool = False


def generate(workload: Workload, seed: int) -> Problem:
    """One random problem; the same seed gives the same draws for every scale, so runs can be paired.

    >>> problem = generate(Workload(sites=31), seed=0)
    >>> len(problem.sites), len(problem.flows), len(problem.members)
    (31, 20, 600)
    """
    resources, draws = (np.random.default_rng([seed, part]) for part in (1, 2))
    n = workload.sites
    names = [f"p{index}" for index in range(n)]
    up = resources.uniform(*workload.upload_mbit, n) * MBIT * workload.scale
    down = resources.uniform(*workload.download_mbit, n) * MBIT * workload.scale
    sites = tuple(Site(names[i], float(up[i]), float(down[i])) for i in range(n))
    if workload.positions:
        low, high = (bound * workload.delay_scale for bound in workload.delay_s)
        delays = Delays(None, resources.uniform(0.0, 1.0, (n, 2)), low, (high - low) / np.sqrt(2.0))
    else:
        upper = np.triu(resources.uniform(*workload.delay_s, (n, n)) * workload.delay_scale, 1)
        delays = Delays(upper + upper.T)
    flows, members = [], []
    universe = Universe.blocks(workload.blocks)
    for index in range(workload.streams):
        source = int(draws.integers(n))
        flow = Flow(f"s{index}", names[source], float(draws.uniform(*workload.stream_bytes_per_s)), universe)
        types = [_draw_type(draws, workload.blocks) for _ in range(workload.filter_types)]
        others = np.delete(np.arange(n), source)
        for place in draws.choice(others, workload.filters_per_stream, replace=False):
            rows = types[int(draws.integers(len(types)))]
            quality = Quality(
                float(draws.uniform(*workload.drop_threshold)), float(draws.uniform(*workload.delay_threshold_s))
            )
            want = Want(f"s{index}@{names[place]}", quality)
            members.append(Member(flow.name, names[place], InterestPieces(universe, rows), (want,)))
        flows.append(flow)
    return Problem(sites, tuple(flows), tuple(members), delays)


def _draw_type(draws: np.random.Generator, blocks: int) -> int:
    while True:
        rows = int("".join("1" if bit else "0" for bit in draws.integers(0, 2, blocks)), 2)
        if rows:
            return rows
