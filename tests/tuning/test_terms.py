"""Plans by a deployment file's objective and within its constraints, or an error that names what cannot be kept."""

from dataclasses import replace

import pytest

from headgate.catalog import parse_deployment
from headgate.planning import plan_deployment, problem_of
from headgate.tuning.terms import ConstraintError, Terms, plan_within, within

FILE = """
sites: {root: {upload: 10 Mbit/s}, a: {upload: 10 Mbit/s}, b: {upload: 10 Mbit/s}, c: {upload: 10 Mbit/s}, d: }
links:
  default_delay: 20 ms
  pairs: [{between: [root, d], delay: 300 ms}, {between: [c, d], delay: 5 ms}]
streams:
  wind: {root: root, schema: {station: string, speed: double}, rate: 50/s, source: {format: json}}
subscriptions:
  at-a: {stream: wind, site: a}
  at-b: {stream: wind, site: b}
  at-c: {stream: wind, site: c}
  at-d: {stream: wind, site: d}
"""
LISTED = "{between: [root, c]}, {between: [a, c]}, {between: [b, c]}, {between: [a, b]}"


@pytest.fixture
def deployment():
    return parse_deployment(FILE, "headgate.yaml")


def _fanout(plan):
    parents = list(plan.trees["wind"].parents.values())
    return max(parents.count(site) for site in parents)


@pytest.mark.parametrize(("bound", "least"), [(1, 1), (2, 1), (3, 1)])
def test_a_plan_keeps_to_a_constraint_that_the_quality_plan_misses(deployment, bound, least):
    asked = replace(deployment, constraints=(f"fanout <= {bound}",))
    found = plan_within(asked, "brush")
    assert _fanout(plan_deployment(deployment, "brush").plan) == 4
    assert least <= _fanout(found.plan) <= bound
    assert found.metrics.zeros == 0
    assert Terms.of(asked).misses(problem_of(asked), found.plan) == ()


def test_sites_that_cannot_connect_are_never_joined_for_the_sake_of_the_terms(deployment):
    """a and b cannot connect to the root, which the objective would like best."""
    listed = FILE.replace("delay: 5 ms}]", f"delay: 5 ms}}, {LISTED}]\n  only: listed")
    asked = replace(parse_deployment(listed, "headgate.yaml"), objective="minimise average(path_latency) over clients")
    pairs = set(asked.links.pairs)
    for bound in (2, 3, 4):
        bounded = replace(asked, constraints=(f"fanout <= {bound}",))
        problem = problem_of(bounded)
        kept = plan_within(bounded).plan
        tuned = within(problem, plan_deployment(bounded, "qasdg").plan, Terms.of(bounded))
        for plan in (kept, tuned):
            assert {frozenset(edge) for edge in plan.trees["wind"].parents.items()} <= pairs
    open_plan = plan_within(replace(asked, links=replace(asked.links, only_listed=False), constraints=("fanout <= 4",)))
    assert not {frozenset(edge) for edge in open_plan.plan.trees["wind"].parents.items()} <= pairs


def test_a_constraint_that_nobody_can_keep_is_named_where_few_sites_can_connect(deployment):
    """A brush would serve c and d alone, and so miss the bound by less: it is no plan."""
    listed = FILE.replace("delay: 5 ms}]", f"delay: 5 ms}}, {LISTED}]\n  only: listed")
    asked = replace(parse_deployment(listed, "headgate.yaml"), constraints=("max(path_latency) <= 30 ms",))
    with pytest.raises(ConstraintError, match="max\\(path_latency\\) over brokers <= 30 ms"):
        plan_within(asked)


def test_an_objective_decides_where_constraints_leave_a_choice(deployment):
    asked = replace(deployment, objective="minimise average(path_latency) over clients", constraints=("fanout <= 3",))
    found = plan_within(asked, "chain")
    # d is 25 ms from the root over c and 300 ms on its own; the others are nearest below the root.
    assert dict(found.plan.trees["wind"].parents) == {"a": "root", "b": "root", "c": "root", "d": "c"}
    assert "terms" in found.algorithm
    without = plan_within(replace(deployment, objective=None), "chain")
    assert without.algorithm == "chain"
    assert Terms.of(asked).gain(problem_of(asked), without.plan, found.plan) > 0.2


def test_what_cannot_be_kept_is_named_with_the_sites_that_miss_it(deployment):
    with pytest.raises(ConstraintError) as told:
        plan_within(replace(deployment, constraints=("max(path_latency) <= 24 ms",)))
    assert "max(path_latency) over brokers <= 24 ms" in str(told.value)
    assert "d has 25 ms" in str(told.value)
    assert "no plan was found" in str(told.value)


def test_two_constraints_that_exclude_each_other_are_told_as_such(deployment):
    with pytest.raises(ConstraintError) as told:
        plan_within(replace(deployment, constraints=("fanout <= 1", "hops <= 2")))
    assert "alone it could be kept, together with" in str(told.value)


def test_a_constraint_on_what_is_only_measured_is_refused_by_name(deployment):
    with pytest.raises(ConstraintError, match=r"loss_rate.*not known before a deployment runs"):
        plan_within(replace(deployment, constraints=("loss_rate <= 0.01",)))


def test_a_plan_within_its_constraints_stays_as_it_is_and_a_search_can_be_stopped(deployment):
    asked = replace(deployment, constraints=("fanout <= 4",))
    star = plan_deployment(deployment, "brush").plan
    assert within(problem_of(asked), star, Terms.of(asked)) == star
    tight = Terms.of(replace(deployment, constraints=("fanout <= 1",)))
    assert within(problem_of(asked), star, tight, stop=lambda: True) == star
    assert within(problem_of(asked), star, tight) != star
