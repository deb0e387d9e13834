"""The paper's worked examples: both graphs of figure 2, the expansion of figure 3, the permeability example."""

import pytest

from headgate.model import Site
from headgate.planning import (
    Edge,
    Flow,
    Graph,
    InterestPieces,
    Member,
    Problem,
    Universe,
    Want,
    edges_of,
    measure,
    violations,
)

TEN = Universe.blocks(10)


def pieces(*blocks):
    return InterestPieces(TEN, sum(1 << block for block in blocks))


Q13, Q15, Q12 = pieces(0, 1, 2, 3), pieces(0, 1), pieces(6, 7)  # q15 within q13
Q54, Q53 = pieces(0, 1, 2), pieces(0)  # q53 within q54


def figure_2(capacity_35=100.0):
    links = {("p1", "p2"): 100, ("p1", "p3"): 100, ("p3", "p5"): capacity_35, ("p4", "p5"): 100, ("p3", "p4"): 100}
    links |= {("p2", "p5"): 100}
    return Problem(
        tuple(Site(f"p{i}") for i in range(1, 6)),
        (Flow("s1", "p1", 10.0, TEN), Flow("s5", "p5", 10.0, TEN)),
        tuple(
            Member(stream, site, interest, (Want(f"{stream}{site}"),))
            for stream, site, interest in (
                ("s1", "p2", Q12),
                ("s1", "p3", Q13),
                ("s1", "p5", Q15),
                ("s5", "p4", Q54),
                ("s5", "p3", Q53),
            )
        ),
        capacities={frozenset(pair): float(capacity) for pair, capacity in links.items()},
        physical=True,
    )


FIRST = {("s1", "p2"): "p1", ("s1", "p3"): "p1", ("s1", "p5"): "p3", ("s5", "p4"): "p5", ("s5", "p3"): "p4"}
SECOND = FIRST | {("s1", "p5"): "p2"}


def test_both_graphs_of_figure_2_are_valid_and_the_first_is_cheaper():
    problem = figure_2()
    cost = {}
    for name, parents in (("first", FIRST), ("second", SECOND)):
        assert violations(problem, edges_of(problem, parents)) == []
        cost[name] = measure(Graph.of(problem, parents)).total_bandwidth_bytes_per_s
    assert cost["first"] == pytest.approx(10 * (0.2 + 0.4 + 0.2 + 0.3 + 0.1))
    assert cost["second"] - cost["first"] == pytest.approx(10 * (0.4 - 0.2))  # the link to p2 carries q12 and q15


def test_the_direct_link_of_figure_2_is_invalid_when_its_capacity_is_shared():
    problem = figure_2(capacity_35=2.5)  # q15 takes 2, q53 would take 1
    direct = FIRST | {("s5", "p3"): "p5"}
    assert violations(problem, edges_of(problem, FIRST)) == []
    (broken,) = violations(problem, edges_of(problem, direct))
    assert (broken.condition, broken.where) == (3, "link p3 - p5")
    assert broken.by == pytest.approx(0.5)


def test_expansion_of_figure_3_and_its_inverse():
    problem = Problem(
        tuple(Site(f"p{i}") for i in range(1, 6)),
        (Flow("s", "p1", 1.0, TEN),),
        (Member("s", "p3", pieces(0, 1), (Want("a"),)), Member("s", "p5", pieces(4), (Want("b"),))),
    )
    graph = Graph.of(problem, {("s", "p3"): "p1"})
    node = graph.node("s", "p3")
    assert graph.net.node["size"][node] == pytest.approx(0.2)
    graph.move(graph.node("s", "p5"), node)
    assert graph.net.node["size"][node] == pytest.approx(0.3)
    edges = {edge.child: edge.interest for edge in edges_of(problem, graph.parents())}
    assert edges["p3"] == pieces(0, 1, 4)
    graph.move(graph.node("s", "p5"), graph.node("s", "p1"))
    assert graph.net.node["size"][node] == pytest.approx(0.2)


def test_permeability_example():
    streams = {"a": 1.0, "b": 1.0, "c": 2.0}
    problem = Problem(
        (Site("w"), Site("k")),
        tuple(Flow(name, "w", rate, TEN) for name, rate in streams.items()),
        tuple(Member(name, "k", TEN.everything, (Want(name),)) for name in streams),
        capacities={frozenset("wk"): 2.0},
        physical=True,
    )
    graph = Graph.of(problem, {(name, "k"): "w" for name in streams})
    assert graph.net.node["kept"][len(streams) :] == pytest.approx([0.5, 0.5, 0.5])


@pytest.mark.parametrize(
    ("change", "condition", "part"),
    [
        (lambda e: [x for x in e if x.child != "p4"], 1, "no site forwards"),
        (lambda e: [*e, Edge("s1", "p4", "p3", Q13)], 1, "received from"),
        (lambda e: [Edge(x.stream, x.parent, x.child, Q12) if x.child == "p5" else x for x in e], 1, "not applicable"),
        (lambda e: [Edge(x.stream, x.parent, x.child, TEN.everything) if x.child == "p5" else x for x in e], 2, "all"),
        (lambda e: [*e, Edge("s1", "p5", "p4", Q15)], 2, "has no filter"),
        (
            lambda e: [Edge("s5", "p1", "p3", Q53) if (x.stream, x.child) == ("s5", "p3") else x for x in e],
            2,
            "receive",
        ),
        (lambda e: [Edge("s1", "p5", "p3", Q13) if x == e[1] else x for x in e], 4, "p3"),
    ],
)
def test_each_condition_is_named_with_its_place(change, condition, part):
    problem = figure_2()
    broken = violations(problem, change(edges_of(problem, FIRST)))
    assert any(found.condition == condition and part in str(found) for found in broken), [str(x) for x in broken]
