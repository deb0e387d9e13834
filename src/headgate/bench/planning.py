"""Planning speed: constructions against NumPy oracles, incremental against full evaluation, growth to 10,000 sites."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from headgate.planning import Graph, measure
from headgate.planning.construct import algorithm, construct
from headgate.planning.construct.algorithm import join_order
from headgate.planning.generate import Workload, generate
from headgate.planning.kernel.flow import evaluate, time_moves
from headgate.planning.life import Life, Upkeep
from headgate.planning.oracle import ModelNetwork, construct_slowly
from headgate.planning.problem import tree_members
from headgate.planning.search import Search

REPEATS = 10  # a move is measured over so many repetitions, so that the call from Python does not count


def run(
    seeds: int = 2, moves: int = 400, sizes: Sequence[int] = (100, 1_000, 10_000), slow: bool = True
) -> dict[str, Any]:
    """All parts: `seeds` instances for the constructions, `moves` random moves per size; `slow` runs the oracles."""
    figures: dict[str, Any] = {}
    construct(generate(Workload(sites=10, streams=2, filters_per_stream=4), 0), "qasdg")
    if slow:
        figures |= constructions(seeds)
    for size in sizes:
        figures |= incremental(size, moves)
    figures |= growth(sizes)
    return figures


def constructions(seeds: int) -> dict[str, float]:
    """The six constructions on default instances, compiled against vectorised NumPy."""
    print("\nconstructions on a default instance, seconds (compiled, NumPy) and ratio")
    figures, totals = {}, [0.0, 0.0]
    for name in ("brush", "chain", "unfas", "unfag", "qasds", "qasdg"):
        fast, slow = 0.0, 0.0
        construct(generate(Workload(sites=10, streams=2, filters_per_stream=4), 0), name)
        for seed in range(seeds):
            problem = generate(Workload(), seed)
            graph = Graph(problem)
            order = join_order(graph, seed)
            began = time.perf_counter()
            algorithm(name).run(graph, order)
            graph.evaluate()
            fast += time.perf_counter() - began
            network = ModelNetwork(problem)
            parents = graph.parents()
            began = time.perf_counter()
            if name in ("brush", "chain"):
                # They choose without looking: the oracle's work is the evaluation of the graph that they make.
                network.load(parents)
            else:
                construct_slowly(problem, name, seed)
            slow += time.perf_counter() - began
        print(f"  {name:<6} {fast / seeds:9.4f} {slow / seeds:9.3f} {slow / fast:8.1f}x")
        figures[f"construct_{name}_ratio"] = round(slow / fast, 1)
        totals[0] += fast
        totals[1] += slow
    figures["construct_worst_ratio"] = min(figures.values())
    figures["construct_all_six_ratio"] = round(totals[1] / totals[0], 1)
    return figures


def incremental(size: int, moves: int) -> dict[str, float]:
    """Median time of random moves, tried and undone, against full evaluation by the same kernels."""
    share = size / 10_000
    figures: dict[str, float] = {}
    for name, scale in (("congested", 1.0), ("uncongested", 4.0)):
        workload = Workload(scale=scale) if size <= 100 else Workload(
            sites=size, streams=max(20, int(200 * share)), filters_per_stream=min(500, size // 3),
            scale=scale * (1.0 if size <= 1000 else 3.0), positions=True,
        )  # fmt: skip
        graph = construct(generate(workload, 1), "qasdg", 1).graph
        net = graph.net
        full = []
        for _ in range(5):
            began = time.perf_counter()
            evaluate(net)
            full.append(time.perf_counter() - began)
        seconds, touched = np.zeros(moves), np.zeros(moves)
        time_moves(net, len(net.node) - 1, int(net.node["stream"][-1]), 1)
        done = 0
        random = np.random.default_rng(7)
        while done < moves:
            node = int(random.integers(graph.streams, len(net.node)))
            stream = int(net.node["stream"][node])
            first, last = int(net.flow["first"][stream]), int(net.flow["last"][stream])
            parent = int(random.integers(first - 1, last))
            parent = stream if parent < first else parent
            if _below(net, parent, node) or parent == net.node["parent"][node]:
                continue
            began = time.perf_counter()
            touched[done] = time_moves(net, node, parent, REPEATS)
            seconds[done] = (time.perf_counter() - began) / REPEATS
            done += 1
        ratio = float(np.median(full) / np.median(seconds))
        part = float(np.median(touched)) / len(net.node)
        dropped = float((net.node["kept"][graph.streams :] < 1 - 1e-9).mean())
        print(
            f"  {size:>6} sites, {name:<11} full {1e3 * np.median(full):.3f} ms, move {1e6 * np.median(seconds):.1f} us"
            f", {ratio:.1f}x, touched {100 * part:.2f} % (mean {100 * touched.mean() / len(net.node):.1f} %),"
            f" {100 * dropped:.0f} % of members with drops"
        )
        figures[f"incremental_{name}_{size}_ratio"] = round(ratio, 1)
        figures[f"incremental_{name}_{size}_touched"] = round(part, 5)
    return figures


def _below(net: Any, node: int, top: int) -> bool:
    while node >= 0:
        if node == top:
            return True
        node = int(net.node["parent"][node])
    return False


def growth(sizes: Sequence[int]) -> dict[str, float]:
    """Time, memory and quality from small to the whole size, and a join on the living plan there."""
    print("\ngrowth: seconds to compile and plan by QASDG, quality against BRUSH and UNFAS, one join")
    figures: dict[str, float] = {}
    for size in sizes:
        share = size / 10_000
        workload = Workload(
            sites=size,
            streams=max(4, int(200 * share)),
            filters_per_stream=min(500, size // 3),
            scale=3.0,
            positions=True,
        )
        began = time.perf_counter()
        problem = generate(workload, 3)
        made = time.perf_counter() - began
        began = time.perf_counter()
        graph = construct(problem, "qasdg", 3).graph
        planned = time.perf_counter() - began
        quality = {name: measure(construct(problem, name, 3).graph).geometric_mean for name in ("brush", "unfas")}
        ours = measure(graph).geometric_mean
        join = _join_time(problem)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"  {size:>6} sites {len(problem.flows):>4} streams {len(problem.members):>7} members: made {made:6.2f} s,"
            f" planned {planned:7.2f} s, join {1e3 * join:7.2f} ms, {memory:6.0f} MB; quality {ours:.3f}"
            f" (BRUSH {quality['brush']:.3f}, UNFAS {quality['unfas']:.3f})"
        )
        figures |= {
            f"plan_seconds_{size}": round(planned, 2),
            f"join_ms_{size}": round(1e3 * join, 3),
            f"memory_mb_{size}": round(memory),
            f"quality_{size}": round(ours, 4),
            f"quality_brush_{size}": round(quality["brush"], 4),
            f"quality_unfas_{size}": round(quality["unfas"], 4),
        }
    return figures


def _join_time(problem: Any) -> float:
    """Median seconds of ten joins on a living plan, the choice of the parent and its settling."""
    members = tree_members(problem)
    names = [(member.stream, member.site) for member in members]
    life = Life(problem, names[:0], 0, Upkeep(tries=8, trials=0, loss=1.0, search=Search(steps=0)))
    plan = construct(problem, "qasdg", 3).graph.parent_array
    late = [life.graph.node(*name) for name in names[:: max(1, len(names) // 10)]][:10]
    life.adopt(plan, leaves_out=late)
    seconds = []
    for node in late:
        began = time.perf_counter()
        life.enter(node)
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))
