"""The six constructions: valid graphs, the order of their results, what they may know."""

import numpy as np
import pytest

from headgate.planning import ALGORITHMS, ProblemError, edges_of, measure, violations
from headgate.planning.construct import construct
from headgate.planning.generate import Workload, generate


@pytest.mark.parametrize("name", [algorithm.name for algorithm in ALGORITHMS])
def test_graphs_are_valid_and_repeatable(name):
    problem = generate(Workload(sites=40, streams=6, filters_per_stream=15), 3)
    one, two = construct(problem, name, 5), construct(problem, name, 5)
    assert one.graph.parents() == two.graph.parents()
    assert violations(problem, edges_of(problem, one.graph.parents()), bandwidth=False) == []
    assert one.unserved == []
    assert one.rounds_per_join >= 1


def test_the_order_of_the_paper_over_paired_seeds():
    means: dict[str, list[float]] = {algorithm.name: [] for algorithm in ALGORITHMS}
    widths: dict[str, list[float]] = {algorithm.name: [] for algorithm in ALGORITHMS}
    for seed in range(4):
        problem = generate(Workload(), seed)
        for name, values in means.items():
            metrics = measure(construct(problem, name, seed).graph)
            values.append(metrics.geometric_mean)
            widths[name].append(metrics.total_bandwidth_bytes_per_s)
    mean = {name: float(np.mean(values)) for name, values in means.items()}
    width = {name: float(np.mean(values)) for name, values in widths.items()}
    best_plain = max(mean[name] for name in ("brush", "chain", "unfas", "unfag"))
    assert min(mean["qasds"], mean["qasdg"]) > 2 * best_plain
    assert min(width, key=width.__getitem__) == "brush"
    assert max(width, key=width.__getitem__) == "chain"


def test_plenty_of_bandwidth_gives_perfect_quality():
    problem = generate(Workload(sites=40, streams=6, filters_per_stream=15, scale=50.0), 3)
    for name in ("brush", "qasds", "qasdg"):
        assert measure(construct(problem, name).graph).geometric_mean == 1.0


def test_classes_are_declared():
    classes = {a.name: (a.control, a.feedback, a.dynamics) for a in ALGORITHMS}
    assert classes["qasds"] == ("source", "informed", "adjusting")
    assert classes["unfag"] == ("global", "uninformed", "non-adjusting")


def test_an_unknown_construction_is_refused_with_the_nearest():
    with pytest.raises(ProblemError, match="did you mean 'qasdg'"):
        construct(generate(Workload(sites=5, streams=1, filters_per_stream=2), 0), "qasdgg")
