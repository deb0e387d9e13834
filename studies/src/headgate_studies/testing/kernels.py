"""Compile every kernel before anybody waits for one: ``python -m headgate_studies.testing.kernels``.

Numba keeps compiled kernels on disk, so each is compiled once per checkout. Two test workers that start together find
nothing there and both compile everything; `make test` runs this first, which compiles in two processes, each one half.
The calls below are the smallest that use every kernel with the types that the product uses.
"""

from __future__ import annotations

import importlib
import multiprocessing
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import headgate

# Packages with kernels. `headgate.reduction` has one inside a function; it compiles in half a second where it is used.
ROOMS = ("headgate.planning", "headgate.matching.compiled", "headgate.grid")


def compile_planning() -> None:
    """Constructions, search, replanning and the exact search."""
    from headgate.planning import measure, plan_problem
    from headgate.planning.generate import Workload, generate
    from headgate.planning.kernel.trials import end_trials, try_by_groups
    from headgate.planning.living_plan import Life
    from headgate.planning.replan import warm

    warm()
    problem = generate(Workload(sites=4, streams=1, filters_per_stream=3, blocks=4, scale=0.9), 2)
    graph = plan_problem(problem, "unfag").graph
    measure(graph)
    plan_problem(problem, "optimum")
    Life(problem).bandwidth(problem.sites[0].name, 1e5, 1e5)
    node, parents = len(graph.net.node) - 1, graph.parent_array
    graph.move(node, int(parents[node]), keep=False)
    try_by_groups(graph.net, parents[:0], parents[:0], False, 1)
    end_trials(graph.net)


def compile_matching() -> None:
    """The compiled index: building, matching, changing."""
    from headgate.matching import warm_up

    warm_up()


def compile_grid() -> None:
    """DZ expressions, the query tree, thinning, polygons, gridding and filling."""
    import numpy as np

    from headgate.grid import DzSet, DzSpace, Field, GbdTree, parse_layout, parse_region
    from headgate.grid.decompose import bounded_batch, decompose_batch, overlaps
    from headgate.grid.gridding import interpolate
    from headgate.grid.permutation import line_rank, plane_rank
    from headgate.model import Schema

    space = DzSpace.round_robin({"x": 3, "y": 2})
    offsets, codes, lengths = decompose_batch(space, [[0, 0]], [[3, 2]])
    bounded_batch(space, [[0, 0]], [[3, 2]], 2)
    overlaps(space, offsets, codes, lengths, [[0, 0]], [[3, 2]])
    space.decode(space.encode([[1, 1]]))
    tree = GbdTree(space)
    slots = tree.insert(codes, lengths, None, np.arange(len(codes)))
    tree.serve(codes, lengths)
    tree.find(limit=space.digits)
    tree.inside(0, 0), tree.above(0, space.digits)
    tree.remove(slots)
    (DzSet.whole(space) - DzSet.of(space, "01")).expressions()
    line_rank([0, 1], 1), plane_rank([0, 1], [0, 1], 1)
    axes = {"x": {"column": "lon", "size": 4, "bounds": [0, 4]}, "y": {"column": "lat", "size": 4, "bounds": [0, 4]}}
    layout = parse_layout({**axes, "time": {"tick": "t"}}, Schema.of({"lon": "double", "lat": "double", "t": "bigint"}))
    some = np.array([0.5, 1.5, 2.5])
    region = parse_region({"polygon": [[0, 0], [3, 0], [0, 3]]}, layout)
    region.contains(some, some, {}), region.within((some, some + 1, some, some + 1), {})
    interpolate(layout, some, some, some[None, :], 2.0)
    Field(layout, ("v",)).filled("v")


# Two halves that take about as long as each other, a process each.
HALVES: tuple[tuple[Callable[[], None], ...], ...] = ((compile_planning,), (compile_matching, compile_grid))


def kernels() -> Iterator[tuple[str, Any]]:
    """Name and compiler of every kernel that Python calls and that is kept on disk."""
    from numba.core.caching import NullCache
    from numba.core.dispatcher import Dispatcher

    for room in ROOMS:
        package = importlib.import_module(room)
        for module in _modules(package):
            for name, value in vars(module).items():
                own = isinstance(value, Dispatcher) and value.py_func.__module__ == module.__name__
                if own and not isinstance(value._cache, NullCache):  # noqa: SLF001 (numba has no public way to ask)
                    yield f"{module.__name__}.{name}", value


def is_kept(kernel: Any) -> bool:
    """Whether a kernel, as its sources are now, was compiled for any types and lies on disk."""
    return bool(kernel._cache._cache_file._load_index())  # noqa: SLF001 (numba has no public way to ask)


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    yield package
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        yield importlib.import_module(found.name)


def _run(half: int) -> None:
    for compile_room in HALVES[half]:
        compile_room()


def main() -> int:
    """Compile both halves at once; the seconds of processor and clock time that it took."""
    import resource

    began = time.monotonic()
    processes = [multiprocessing.get_context("spawn").Process(target=_run, args=(half,)) for half in range(len(HALVES))]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = f"{time.monotonic() - began:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processor time"
    print(f"kernels of headgate {headgate.__version__} are compiled: {took}")
    return max(abs(process.exitcode or 0) for process in processes)


if __name__ == "__main__":
    sys.exit(main())
