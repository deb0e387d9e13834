"""What a construction is: its class in the three dimensions of section 5.1, and how it builds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headgate.planning.construct.relays import connect
from headgate.planning.graph import Graph
from headgate.planning.net import EXACT, TOLERANCE
from headgate.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class Built:
    """A constructed graph: who stayed without a parent, and how many rounds of assignment the joins took."""

    graph: Graph
    rounds_per_join: float = 1.0

    @property
    def unserved(self) -> list[tuple[str, str]]:
        """Members that nothing could be found for (the physical model only)."""
        return self.graph.unserved


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A construction by its name and class: point of control, node feedback, assignment dynamics."""

    name: str
    control: str  # source | global | none
    feedback: str  # informed | uninformed
    dynamics: str  # adjusting | non-adjusting
    run: Callable[[Graph, npt.NDArray[np.int32]], float]

    def build(self, problem: Problem, seed: int = 0) -> Built:
        """Join all members in a random order and evaluate the result."""
        graph = Graph(problem)
        rounds = self.run(graph, join_order(graph, seed))
        graph.evaluate()
        if problem.relays and graph.unserved:
            connect(graph)
        return Built(graph, rounds)


@contextmanager
def observed(graph: Graph) -> Iterator[None]:
    """How exactly drops are observed while members join: to 1e-10, and to 1e-4 in graphs of more than 2,000 members.

    Every join waits for the whole graph to settle, which a large congested graph does slowly. The finished graph is
    always evaluated exactly.
    """
    graph.net.rule[TOLERANCE] = 1e-10 if len(graph.net.node) <= 2_000 else 1e-4
    try:
        yield
    finally:
        graph.net.rule[TOLERANCE] = EXACT


def join_order(graph: Graph, seed: int) -> npt.NDArray[np.int32]:
    """Members in the order in which they ask to join: one random order over all streams."""
    members = np.flatnonzero(~graph.layout.relay)[graph.streams :].astype(np.int32)
    return np.random.default_rng([seed, 3]).permutation(members).astype(np.int32)
