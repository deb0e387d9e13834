"""Cost of the GBD-tree against the number of queries, and its answers against a set oracle in the same run."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.grid import DzSet, DzSpace, GbdTree, bounded_batch, choose_depths, decompose_batch, overlaps

Ints = npt.NDArray[np.int64]


def hot_boxes(space: DzSpace, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Query boxes around the middle of the field with uniform resolutions, in finest cells of the space."""
    low = np.empty((count, len(space.names)), dtype=np.int64)
    high = np.empty_like(low)
    for d, size in enumerate(space.shape):
        if d < 2:
            centre = np.clip(rng.normal(0.5, 0.15, count), 0, 1)
            width = np.minimum(rng.pareto(1.5, count) * 0.02 + 2 / size, 0.5)
            low[:, d] = np.clip((centre - width / 2) * size, 0, size - 1).astype(np.int64)
            high[:, d] = np.clip(np.ceil((centre + width / 2) * size), low[:, d] + 1, size).astype(np.int64)
        else:
            low[:, d] = 0
            high[:, d] = rng.integers(1, size + 1, count)
    return low, high


def cost(sizes: tuple[int, ...], seed: int) -> list[dict[str, float]]:
    """Microseconds per query for insert, serve and remove, milliseconds for find, for trees of growing size."""
    space = DzSpace.round_robin({"x": 10, "y": 10, "space": 4, "time": 4})
    rng = np.random.default_rng(seed)
    _measure(space, 100, rng)  # compiles the kernels
    return [_measure(space, size, rng) for size in sizes]


def _measure(space: DzSpace, size: int, rng: np.random.Generator) -> dict[str, float]:
    low, high = hot_boxes(space, size, rng)
    at = [time.perf_counter()]
    offsets, codes, lengths = bounded_batch(space, low, high, 4)
    at.append(time.perf_counter())
    weights = overlaps(space, offsets, codes, lengths, low, high)
    keys = np.repeat(np.arange(size), np.diff(offsets))
    tree = GbdTree(space, room=len(codes))
    at.append(time.perf_counter())
    slots = tree.insert(codes, lengths, weights, keys)
    at.append(time.perf_counter())
    found = tree.find(limit=12)
    at.append(time.perf_counter())
    asked = min(size, 20_000)
    local = GbdTree(space)
    local.insert(*DzSet.of(space, "0", "1100", "101101").expressions())
    part = slice(0, int(offsets[asked]))
    at.append(time.perf_counter())
    local.serve(codes[part], lengths[part])
    at.append(time.perf_counter())
    nodes, stored = tree.nodes, tree.nbytes
    tree.remove(slots)
    at.append(time.perf_counter())
    took = np.diff(at)
    return {
        "queries": size,
        "parts": len(codes),
        "nodes": nodes,
        "bytes_per_query": stored / size,
        "decompose_us": took[0] / size * 1e6,
        "insert_us": took[2] / size * 1e6,
        "serve_us": took[5] / asked * 1e6,
        "find_ms": took[3] * 1e3,
        "candidates": len(found),
        "remove_us": took[6] / size * 1e6,
    }


def depths(totals: tuple[int, ...], seed: int) -> list[dict[str, Any]]:
    """What a cover takes in beyond the queries, as a multiple of them, with digits shared evenly and with chosen ones.

    Maps want small regions at few resolutions, so that digits are worth more along x and y.
    """
    rng = np.random.default_rng(seed)
    names = ("x", "y", "space", "time")
    low, high = np.zeros((2000, 4)), np.ones((2000, 4))
    low[:, :2] = np.clip(rng.normal(0.5, 0.15, (2000, 2)), 0, 0.98)
    high[:, :2] = np.minimum(low[:, :2] + np.minimum(rng.pareto(1.5, (2000, 2)) * 0.02 + 0.004, 0.5), 1)
    high[:, 2] = 0.5 ** rng.integers(0, 4, 2000)
    rows = []
    for digits in totals:
        even = dict(zip(names, [digits // 4 + (d < digits % 4) for d in range(4)], strict=True))
        chosen = choose_depths(low, high, names, digits)
        rows.append(
            {
                "digits": digits,
                "even_over_cover": _over_cover(low, high, even),
                "chosen_over_cover": _over_cover(low, high, chosen),
                "chosen": " ".join(f"{name} {depth}" for name, depth in chosen.items()),
            }
        )
    return rows


def _over_cover(low: npt.NDArray[np.float64], high: npt.NDArray[np.float64], digits: dict[str, int]) -> float:
    scale = np.array([float(1 << depth) for depth in digits.values()])
    covered = ((np.ceil(high * scale) - np.floor(low * scale)) / scale).prod(axis=1)
    return float(covered.mean() / (high - low).prod(axis=1).mean())


def mismatches(rounds: int, seed: int) -> int:
    """How often serve, the sums or the regions differ from plain sets of cells, over random trees."""
    rng = np.random.default_rng(seed)
    wrong = 0
    for _ in range(rounds):
        depths = {name: int(rng.integers(1, 4)) for name in ("x", "y", "space", "time")}
        space = DzSpace.round_robin(depths)
        low, high = hot_boxes(space, 24, rng)
        offsets, codes, lengths = decompose_batch(space, low, high)
        tree = GbdTree(space)
        slots = tree.insert(codes[: offsets[12]], lengths[: offsets[12]])
        kept = slots[rng.random(len(slots)) < 0.5]
        tree.remove(np.setdiff1d(slots, kept))
        held = np.zeros(space.cells, dtype=bool)
        numbers, depth, *_ = tree.parts(kept)
        for code, length in zip(numbers.tolist(), depth.tolist(), strict=True):
            held[code : code + (1 << (space.digits - length))] = True
        cells = space.decode(np.arange(space.cells))
        for row in range(12, 24):
            part = slice(int(offsets[row]), int(offsets[row + 1]))
            served = tree.serve(codes[part], lengths[part])
            want = ((cells >= low[row]) & (cells < high[row])).all(axis=1)
            have = DzSet.from_expressions(space, served.have_codes, served.have_lengths)
            miss = DzSet.from_expressions(space, served.miss_codes, served.miss_lengths)
            every = np.arange(space.cells)
            wrong += not np.array_equal(have.contains(every), want & held)
            wrong += not np.array_equal(miss.contains(every), want & ~held)
        wrong += tree.total != int((1 << (space.digits - depth)).sum())
    return wrong
