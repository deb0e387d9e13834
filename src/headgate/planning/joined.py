"""Members who come to a plan in force: each joins by Algorithm 2 with the model as feedback, and nobody else moves.

The protocol of the constructions (`headgate.planning.protocol`), in plain NumPy: a running deployment asks for one join
now and then, and must not wait for kernels to be compiled meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.model import Plan, Tree
from headgate.planning.oracle import ModelNetwork
from headgate.planning.problem import Problem, ProblemError
from headgate.planning.protocol import ControlPoint, Request


def joined(problem: Problem, plan: Plan, missing: Iterable[tuple[str, str]]) -> Plan:
    """The plan with members of the problem, by stream and site, who are not in it yet.

    Everybody in the plan must be a member: a site that only relays has no filter that could be compared.
    """
    members = {(member.stream, member.site): member for member in problem.members}
    parents = {
        (flow.name, child): plan.trees[flow.name].parents[child]
        for flow in problem.flows
        if flow.name in plan.trees
        for child in plan.trees[flow.name].members
        if child != flow.root
    }
    if strangers := parents.keys() - members.keys():
        raise ProblemError(f"site {min(strangers)[1]!r} only relays stream {min(strangers)[0]!r}")

    def request(stream: str, site: str) -> Request:
        member = members[stream, site]
        return Request(stream, site, member.interest, member.wants, member.bulk)

    network = ModelNetwork(problem)
    network.load(parents)
    point = ControlPoint(problem.flows, network, _usual_hop(problem))
    for (stream, site), parent in parents.items():
        point.adopt(request(stream, site), parent)
    for stream, site in missing:
        parents[stream, site], _ = point.join_qasd(request(stream, site))
    trees: dict[str, dict[str, str]] = {flow.name: {} for flow in problem.flows}
    for (stream, site), parent in parents.items():
        trees[stream][site] = parent
    return Plan({flow.name: Tree(flow.name, flow.root, trees[flow.name]) for flow in problem.flows})


def _usual_hop(problem: Problem) -> float:
    """The mean delay between two sites: what a hop counts for that nobody has seen."""
    count = len(problem.sites)
    hops = [problem.delays.between(one, other) for one in range(count) for other in range(one)]
    return sum(hops) / len(hops) if hops else 0.0
