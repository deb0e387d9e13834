"""Members who come to a plan: the best parent there is, and what is remembered of filters is what comparing says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import Plan, Schema, Source, Stream, Subscription, Tree
from headgate.planning import Graph, ProblemError, construct
from headgate.planning import covering as covering_module
from headgate.planning.covering import Comparisons, class_text
from headgate.planning.generate import Workload, generate
from headgate.planning.graph import parents_of
from headgate.planning.late_members import joined
from headgate.planning.net import scalar_of
from headgate.planning.search import Objective
from headgate.planning.search.improve import wishes
from headgate.service.extending import extend_plan
from headgate_studies.bench.joins import deployment_of, run, snapshot_of


@pytest.mark.parametrize("seed", range(4))
def test_a_member_gets_the_parent_that_is_best_for_all(seed):
    problem = generate(Workload(sites=14, streams=3, filters_per_stream=9, scale=0.7), seed)
    plan = construct(problem, "qasdg", seed).graph.plan()
    tree = plan.trees["s1"]
    site = next(each for each in tree.parents if each not in tree.parents.values())
    left = Plan({**plan.trees, "s1": Tree("s1", tree.root, {k: v for k, v in tree.parents.items() if k != site})})
    found = joined(problem, left, [("s1", site)])
    assert {key: each for key, each in parents_of(found).items() if key != ("s1", site)} == parents_of(left)

    def worth(parent):
        graph = Graph.of(problem, parents_of(left) | {("s1", site): parent})
        return scalar_of(graph.net, wishes(graph, Objective()))

    every = {parent: worth(parent) for parent in (tree.root, *left.trees["s1"].parents)}
    assert every[found.trees["s1"].parents[site]] == pytest.approx(max(every.values()), rel=1e-3)


def test_a_member_that_no_link_reaches_is_refused():
    problem = generate(Workload(sites=6, streams=1, filters_per_stream=3), 1)
    alone, other = (member.site for member in problem.members[:2])
    linked = frozenset((problem.flows[0].root, other))
    physical = type(problem)(
        problem.sites, problem.flows, problem.members, problem.delays, {linked: 1e6}, physical=True
    )
    with pytest.raises(ProblemError, match=f"has a link to '{alone}'"):
        joined(physical, Plan({}), [("s0", other), ("s0", alone)])


STREAM = Stream("s", root="r", schema=Schema.of({"a": "double", "b": "double"}), source=Source("json"))
filters = st.tuples(st.sampled_from("ab"), st.sampled_from("<>"), st.integers(0, 3))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sets(filters, min_size=1, max_size=6), min_size=1, max_size=5))
def test_what_is_remembered_is_what_comparing_all_says(rounds):
    known = Comparisons()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(covering_module, "MAX_COMPARED", 6)  # so that old ones are forgotten too
        for wanted in rounds:
            subscriptions = [Subscription(str(each), "s", "r", where="{} {} {}".format(*each)) for each in wanted]
            texts = {class_text(each): each for each in subscriptions}
            classes = {text: index for index, text in enumerate(texts)}
            shapes = dict.fromkeys(texts)
            held = known.covered(STREAM, texts, classes, shapes)
            assert held == Comparisons().covered(STREAM, texts, classes, shapes)
            for one, (column, sign, bound) in enumerate(wanted):
                for other, (same, alike, inner) in enumerate(wanted):
                    beyond = inner >= bound if sign == ">" else inner <= bound
                    expected = one == other or (same == column and alike == sign and beyond)
                    assert bool(held[one] >> other & 1) == expected
    assert np.all([bits.bit_length() <= 6 for bits in held])


@pytest.mark.slow
def test_the_bench_joins_all_who_are_missing(capsys):
    deployment = deployment_of(200)
    snapshot, missing = snapshot_of(deployment)
    plan = extend_plan(snapshot)
    assert plan is not None
    assert set(missing) == parents_of(plan).keys() - parents_of(snapshot.plan).keys()
    figures = run("200", 1)
    assert figures["members_at_200"] == len({(each.stream, each.site) for each in deployment.subscriptions.values()})
    assert figures["quality_root_at_0.5"] <= figures["quality_now_at_0.5"] + 1e-9
    assert "protocol in NumPy" in capsys.readouterr().out
