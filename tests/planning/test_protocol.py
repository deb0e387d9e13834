"""The join protocol: agrees with the compiled constructions, and a source's control point sees its own trees only."""

import numpy as np
import pytest

from headgate.planning import measure
from headgate.planning.construct import construct
from headgate.planning.generate import Workload, generate
from headgate.planning.protocol import ControlPoint, Request
from headgate_studies.models.planning import ModelNetwork, construct_slowly

from .oracle import bulky

SMALL = Workload(sites=16, streams=5, filters_per_stream=8)


@pytest.mark.parametrize("name", ["unfas", "unfag", "qasds", "qasdg"])
def test_the_protocol_builds_what_the_kernels_build(name):
    same, fast, slow = [], [], []
    for seed in range(5):
        problem = generate(SMALL, seed)
        if seed % 2:
            problem = bulky(problem, np.random.default_rng(seed))
        one, two = construct(problem, name, seed).graph, construct_slowly(problem, name, seed)
        parents, others = one.parents(), two.parents()
        same.append(np.mean([parents[key] == others[key] for key in parents]))
        fast.append(measure(one).geometric_mean)
        slow.append(measure(two).geometric_mean)
    assert np.mean(same) > 0.9  # ties may fall either way
    assert np.mean(fast) == pytest.approx(np.mean(slow), rel=0.02)


class Blinkered(ModelNetwork):
    """Refuses questions about streams of other sources, and about sites that are in none of the own trees."""

    def __init__(self, problem, source):
        super().__init__(problem)
        self.own = {flow.name for flow in problem.flows if flow.root == source}
        self.sites = {flow.root for flow in problem.flows if flow.root == source}

    def view(self):
        outer = self

        class View:
            def _mine(self, stream):
                assert stream in outer.own, stream

            def assign(self, stream, child, parent):
                self._mine(stream)
                outer.sites.add(child)
                outer.assign(stream, child, parent)

            def withdraw(self, stream, child):
                self._mine(stream)
                outer.withdraw(stream, child)

            def kept(self, stream, site):
                self._mine(stream)
                return outer.kept(stream, site)

            def delay_s(self, stream, site):
                self._mine(stream)
                return outer.delay_s(stream, site)

            def shed(self, site):
                assert site in outer.sites, site
                return outer.shed(site)

            def hop_s(self, one, other):
                assert {one, other} <= outer.sites
                return outer.hop_s(one, other)

        return View()


def test_a_source_control_point_needs_nothing_but_its_own_trees():
    problem = generate(SMALL, 3)
    source = problem.flows[0].root
    flows = tuple(flow for flow in problem.flows if flow.root == source)
    names = {flow.name for flow in flows}
    members = [member for member in problem.members if member.stream in names]
    blind = Blinkered(problem, source)
    free = ModelNetwork(problem)
    points = [ControlPoint(flows, blind.view(), 0.25), ControlPoint(flows, free, 0.25)]
    for member in members:
        request = Request(member.stream, member.site, member.interest, member.wants)
        assert points[0].join_qasd(request) == points[1].join_qasd(request)
