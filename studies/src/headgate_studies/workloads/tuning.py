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


def stream_trees(generator: np.random.Generator, sites: int, streams: int) -> tuple[list[Overlay], list[Shape]]:
    """Several streams over the same sites, each with its own root, profiles, clients and random tree.

    Streams share roots two by two. A root can send its streams a little more than once and another site a third of all
    of them, heavy-tailed more: what fits one tree may not fit two. A third of the sites was granted a delay of up to
    three times its direct way from the root.
    """
    base = plane_overlay(generator, sites)
    latency = base.links["link_latency"]
    found = [zipf_profiles(generator, sites, clients=2 * sites, feeds=50) for _ in range(streams)]
    every = np.arange(sites)
    whole = [profiles.size(np.logical_or.reduce(profiles.bits)) for profiles, _ in found]
    upload = sum(whole) * (0.3 + 0.2 * generator.pareto(1.5, sites))
    for root in range((streams + 1) // 2):
        upload[root] = 1.2 * sum(whole[2 * root : 2 * root + 2])
    overlays: list[Overlay] = []
    shapes: list[Shape] = []
    for stream, (profiles, clients) in enumerate(found):
        names = generator.permutation(sites)
        names[np.flatnonzero(names == stream // 2)], names[0] = names[0], stream // 2
        parents = np.full(sites, -1, dtype=np.int64)
        drawn = random_parents(generator, sites)
        parents[names[1:]] = names[drawn[1:]]
        shapes.append(Shape(parents))
        direct = latency.pairs(every, np.full(sites, names[0]))
        granted = np.where(generator.random(sites) < 1 / 3, direct * generator.uniform(1.5, 3.0, sites), np.inf)
        granted[names[0]] = np.inf
        constants = {"upload_bandwidth": upload, "download_bandwidth": 2 * upload, "granted_delay": granted}
        overlays.append(Overlay(sites, base.links, constants, profiles, clients, match_byte_s=1e-9))
    return overlays, shapes
