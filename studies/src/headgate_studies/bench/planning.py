"""Planning speed: constructions against NumPy oracles, incremental against full evaluation, growth to 10,000 sites.

All times are CPU time of this process, which works in one thread: others on the machine change them little.
"""

from __future__ import annotations

import functools
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headgate.planning import Graph, Problem, measure
from headgate.planning.construct import algorithm, construct
from headgate.planning.construct.algorithm import join_order
from headgate.planning.generate import Workload, generate
from headgate.planning.kernel.flow import evaluate, time_moves
from headgate.planning.kernel.trials import end_trials, try_by_groups
from headgate.planning.living_plan import EventWork, Life
from headgate.planning.problem import tree_members
from headgate.planning.search import Search
from headgate_studies.models.planning import ModelNetwork, construct_slowly

BLIND = ("brush", "chain")
# A move is repeated until it takes so long, but not more often than this: the call from Python is not what is measured.
LONG_S, MOST_REPEATS = 2e-3, 1_000


def run(
    seeds: int = 2, moves: int = 400, sizes: Sequence[int] = (100, 1_000, 10_000), slow: bool = True
) -> dict[str, Any]:
    """All parts: `seeds` instances for the constructions, `moves` random moves per size; `slow` runs the oracles."""
    figures: dict[str, Any] = {}
    construct(generate(Workload(sites=10, streams=2, filters_per_stream=4), 0), "qasdg")
    if slow:
        figures |= constructions(seeds)
    figures |= growth(sizes)  # before what else is large: memory is the most that the process ever took
    for size in sizes:
        figures |= incremental(size, moves)
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
            fast += _time_construction(problem, name, seed)
            slow += _time_oracle(problem, name, seed)
        print(f"  {name:<6} {fast / seeds:9.4f} {slow / seeds:9.3f} {slow / fast:8.1f}x")
        figures[f"construct_{name}_ratio"] = round(slow / fast, 1)
        totals[0] += fast
        totals[1] += slow
    figures["construct_worst_ratio"] = min(figures.values())
    figures["construct_all_six_ratio"] = round(totals[1] / totals[0], 1)
    return figures


def _time_construction(problem: Problem, name: str, seed: int) -> float:
    """CPU seconds of a construction with the evaluation of its graph; the blind ones take a millisecond: repeated."""
    total, times = 0.0, 20 if name in BLIND else 1
    for _ in range(times):
        graph = Graph(problem)
        order = join_order(graph, seed)
        began = time.process_time()
        algorithm(name).run(graph, order)
        graph.evaluate()
        total += time.process_time() - began
    return total / times


def _time_oracle(problem: Problem, name: str, seed: int) -> float:
    """The same in NumPy. The blind ones choose without looking: the work is the evaluation of the graph they make."""
    if name not in BLIND:
        began = time.process_time()
        construct_slowly(problem, name, seed)
        return time.process_time() - began
    parents, total = construct(problem, name, seed).graph.parents(), 0.0
    for _ in range(3):
        network = ModelNetwork(problem)
        began = time.process_time()
        network.load(parents)
        total += time.process_time() - began
    return total / 3


def incremental(size: int, moves: int) -> dict[str, float]:
    """Median time of random moves of a subtree, tried and undone, against full evaluation of the same graph.

    Trials go by groups, as in a search. Full evaluation is timed both ways: by sweeps of the reduced graph, which is
    what a planner without incremental evaluation would run, and node by node. A move that is kept by itself, outside of
    a search, and written to every node that it touches is timed beside them.
    """
    print(f"\nincremental evaluation at {size:,} sites")
    share = size / 10_000
    figures: dict[str, float] = {}
    for name, scale in (("congested", 1.0), ("uncongested", 4.0)):
        workload = Workload(scale=scale) if size <= 100 else Workload(
            sites=size, streams=max(20, int(200 * share)), filters_per_stream=min(500, size // 3),
            scale=scale * (1.0 if size <= 1000 else 3.0), positions=True,
        )  # fmt: skip
        graph = construct(generate(workload, 1), "qasdg", 1).graph
        net = graph.net
        full, swept = _time_full(graph, False), _time_full(graph, True)
        dropped = float((net.node["kept"][graph.streams :] < 1 - 1e-9).mean())
        before = graph.statistics()["fallbacks"]
        found = _time_random_moves(graph, moves)
        fallbacks = graph.statistics()["fallbacks"] - before
        trial, sweeps, groups, written, touched = (float(np.median(column)) for column in found.T)
        part = touched / len(net.node)
        print(
            f"  {size:>6} sites, {name:<11} full {1e3 * full:.3f} ms ({1e3 * swept:.3f} swept), trial"
            f" {1e6 * trial:.2f} us: {full / trial:.1f}x ({swept / trial:.1f}x of swept); {sweeps:.0f} sweeps,"
            f" {groups:.0f} groups change; written to {100 * part:.3g} % of the nodes (mean"
            f" {100 * found[:, 4].mean() / len(net.node):.1f} %) {1e6 * written:.1f} us, {fallbacks} fall-backs,"
            f" {100 * dropped:.0f} % of members with drops",
            flush=True,
        )
        figures |= {
            f"incremental_{name}_{size}_{key}": value
            for key, value in (
                ("ratio", round(swept / trial, 1)),
                ("ratio_to_node_by_node", round(full / trial, 1)),
                ("trial_us", round(1e6 * trial, 2)),
                ("written_us", round(1e6 * written, 2)),
                ("full_us", round(1e6 * swept, 1)),
                ("touched", round(part, 5)),
                ("sweeps", sweeps),
                ("groups_changed", groups),
                ("fallbacks", fallbacks),
            )
        }
    return figures


def _time_full(graph: Graph, swept: bool) -> float:
    """Median seconds of five full evaluations, of fifty where they are short."""
    seconds = []
    for _ in range(6 if len(graph.net.node) > 10_000 else 51):
        began = time.process_time()
        evaluate(graph.net, swept)
        seconds.append(time.process_time() - began)
    return float(np.median(seconds[1:]))


def _random_move(graph: Graph, random: np.random.Generator) -> tuple[int, int]:
    """Any member with all below it, and any other of its tree that can be its parent."""
    net = graph.net
    while True:
        node = int(random.integers(graph.streams, len(net.node)))
        stream = int(net.node["stream"][node])
        first, last = int(net.flow["first"][stream]), int(net.flow["last"][stream])
        parent = int(random.integers(first - 1, last))
        parent = stream if parent < first else parent
        if not _below(net, parent, node) and parent != net.node["parent"][node]:
            return node, parent


def _time_random_moves(graph: Graph, moves: int) -> Any:
    """Random moves, each tried and undone: one row each.

    Seconds of the trial by groups, its sweeps, the groups that changed; seconds when it is written to the nodes, and
    how many it touches then.
    """
    net, random = graph.net, np.random.default_rng(7)
    chosen = [_random_move(graph, random) for _ in range(moves)]
    found = np.zeros((moves, 5))
    for row, (node, parent) in zip(found, chosen, strict=True):
        time_moves(net, node, parent, 1)
        row[4] = net.counter[0]["noted_nodes"]
        row[3] = _time_repeated(functools.partial(time_moves, net, node, parent))
    for row, (node, parent) in zip(found, chosen, strict=True):
        nodes, parents = np.array([node], np.int32), np.array([parent], np.int32)
        swept = int(net.counter[0]["sweeps"])
        try_by_groups(net, nodes, parents, False, 1)
        row[1], row[2] = int(net.counter[0]["sweeps"]) - swept, net.counter[0]["noted_groups"]
        row[0] = _time_repeated(functools.partial(try_by_groups, net, nodes, parents, False))
    end_trials(net)
    return found


def _time_repeated(run: Callable[[int], object]) -> float:
    """Seconds of a run, repeated so often that the call from Python is not what is measured."""
    began = time.process_time()
    run(1)
    repeats = int(min(max(LONG_S / max(time.process_time() - began, 1e-9), 1), MOST_REPEATS))
    began = time.process_time()
    run(repeats)
    return (time.process_time() - began) / repeats


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
        began = time.process_time()
        problem = generate(workload, 3)
        made = time.process_time() - began
        began = time.process_time()
        graph = construct(problem, "qasdg", 3).graph
        planned = time.process_time() - began
        quality = {name: measure(construct(problem, name, 3).graph).geometric_mean for name in ("brush", "unfas")}
        ours = measure(graph).geometric_mean
        joins = _join_times(problem)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"  {size:>6} sites {len(problem.flows):>4} streams {len(problem.members):>7} members: made {made:6.2f} s,"
            f" planned {planned:7.2f} s, join {1e3 * np.median(joins):7.2f} ms (worst"
            f" {1e3 * joins.max():.2f}), {memory:6.0f} MB; quality {ours:.3f} (BRUSH {quality['brush']:.3f},"
            f" UNFAS {quality['unfas']:.3f})"
        )
        figures |= {
            f"plan_seconds_{size}": round(planned, 2),
            f"join_ms_{size}": round(1e3 * float(np.median(joins)), 3),
            f"join_worst_ms_{size}": round(1e3 * float(joins.max()), 3),
            f"memory_mb_{size}": round(memory),
            f"quality_{size}": round(ours, 4),
            f"quality_brush_{size}": round(quality["brush"], 4),
            f"quality_unfas_{size}": round(quality["unfas"], 4),
        }
    return figures


def _join_times(problem: Problem) -> Any:
    """Seconds of ten joins on a living plan of everybody else: the choice of the parent and its settling."""
    members = tree_members(problem)
    names = [(member.stream, member.site) for member in members]
    life = Life(problem, names[:0], 0, EventWork(tries=8, trials=0, loss=1.0, search=Search(steps=0)))
    plan = construct(problem, "qasdg", 3).graph.parent_array
    late = [life.graph.node(*name) for name in names[:: max(1, len(names) // 11)]][:11]
    life.adopt(plan, leaves_out=late)
    life.enter(late.pop())  # compiled with the first
    seconds = []
    for node in late:
        began = time.process_time()
        life.enter(node)
        seconds.append(time.process_time() - began)
    return np.array(seconds)
