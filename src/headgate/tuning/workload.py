"""Seeded overlays and trees for the tests, the benchmark and the studies.

Latencies are distances in a plane (the triangle inequality holds exactly) or the same with noise; bandwidths are
heavy-tailed; clients pick feeds by a Zipf law (XPORT, section 5.1).
"""

from __future__ import annotations

import numpy as np

from headgate.tuning.overlay import Bits, Floats, Ints, MatrixMetric, Overlay, PlaneMetric, Profiles
from headgate.tuning.shape import Shape


def random_parents(generator: np.random.Generator, size: int) -> Ints:
    """A random recursive tree: every site joins below a site that is already there, chosen at random."""
    parents = np.full(size, -1, dtype=np.int64)
    for site in range(1, size):
        parents[site] = generator.integers(0, site)
    return parents


def random_shape(generator: np.random.Generator, size: int) -> Shape:
    """The shape of a random recursive tree with site 0 as its root."""
    return Shape(random_parents(generator, size))


def zipf_profiles(
    generator: np.random.Generator,
    sites: int,
    *,
    clients: int = 100,
    feeds: int = 700,
    skew: float = 0.97,
    mean_bytes: float = 27_700.0,
    per_client: int = 1,
) -> tuple[Profiles, Ints]:
    """Clients attached to random sites, each asking for feeds by a Zipf law; the atoms' rates are the feed sizes."""
    popularity = 1.0 / np.arange(1, feeds + 1) ** skew
    popularity /= popularity.sum()
    sizes = generator.lognormal(0.0, 1.0, feeds)
    sizes *= mean_bytes / sizes.mean()
    bits: Bits = np.zeros((sites, feeds), dtype=np.bool_)
    counts: Ints = np.zeros(sites, dtype=np.int64)
    for site in generator.integers(0, sites, clients):
        counts[site] += 1
        bits[site, generator.choice(feeds, size=per_client, p=popularity)] = True
    return Profiles.of_atoms(bits, sizes), counts


def plane_overlay(
    generator: np.random.Generator,
    size: int,
    *,
    span_s: float = 0.2,
    noise: float = 0.0,
    profiles: tuple[Profiles, Ints] | None = None,
    matrix: bool = True,
) -> Overlay:
    """Sites in a square `span_s` seconds wide; `noise` multiplies latencies log-normally and breaks the triangle."""
    positions: Floats = generator.random((size, 2))
    wanted, clients = profiles or (None, None)
    access = generator.pareto(1.5, size) * 2e6 + 1e5
    if not matrix:
        plane = PlaneMetric(positions, span_s, 0.002)
        return Overlay(size, {"link_latency": plane}, {"upload_bandwidth": access}, wanted, clients)
    gap = positions[:, None, :] - positions[None, :, :]
    latency = 0.002 + span_s * np.hypot(gap[..., 0], gap[..., 1])
    if noise:
        factor = np.exp(generator.normal(0.0, noise, (size, size)))
        latency = latency * np.sqrt(factor * factor.T)
    np.fill_diagonal(latency, 0.0)
    bandwidth = np.minimum(access[:, None], access[None, :]) * generator.uniform(0.5, 1.0, (size, size))
    bandwidth = np.minimum(bandwidth, bandwidth.T)
    loss = np.minimum(0.2, generator.exponential(0.01, (size, size)))
    links = {
        "link_latency": MatrixMetric(latency),
        "link_bandwidth": MatrixMetric(bandwidth),
        "link_loss": MatrixMetric((loss + loss.T) / 2),
    }
    constants = {
        "upload_bandwidth": access,
        "download_bandwidth": access * 2,
        "processing_delay": generator.exponential(0.002, size),
    }
    return Overlay(size, links, constants, wanted, clients)
