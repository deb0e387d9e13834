"""The six constructions of section 5, one a file, and what each of them needs to know."""

from __future__ import annotations

from headgate.errors import nearest
from headgate.planning.construct.algorithm import Algorithm, Built
from headgate.planning.construct.brush import BRUSH
from headgate.planning.construct.chain import CHAIN
from headgate.planning.construct.qasdg import QASDG
from headgate.planning.construct.qasds import QASDS
from headgate.planning.construct.unfag import UNFAG
from headgate.planning.construct.unfas import UNFAS
from headgate.planning.problem import Problem, ProblemError

ALGORITHMS: tuple[Algorithm, ...] = (BRUSH, CHAIN, UNFAS, UNFAG, QASDS, QASDG)

__all__ = ["ALGORITHMS", "Algorithm", "Built", "algorithm", "construct"]


def algorithm(name: str) -> Algorithm:
    """A construction by its name, in any case; an unknown one is refused with the nearest."""
    known = {found.name: found for found in ALGORITHMS}
    if name.lower() not in known:
        close = nearest(name.lower(), known)
        hint = f"did you mean {close!r}?" if close else f"known: {', '.join(known)}"
        raise ProblemError(f"no construction {name!r}", hint=hint)
    return known[name.lower()]


def construct(problem: Problem, name: str = "qasdg", seed: int = 0) -> Built:
    """Build a graph; the seed fixes the order of joins (interleaved over streams)."""
    return algorithm(name).build(problem, seed)
