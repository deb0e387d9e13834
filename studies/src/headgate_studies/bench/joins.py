"""Joins of a running deployment: what a new site costs as subscriptions grow, and how well it is placed.

A site that subscribes while a deployment runs is given a parent before the request is answered. Times are processor
seconds of the whole step (the problem of the deployment, the graph of the plan, the choice), beside what the same
request costs anyway: writing the catalog's snapshot, which every relay reads. Its peer is the join protocol in NumPy
(`headgate.planning.protocol`), which served joins before, and a place below the root, where larger deployments put
whoever came.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.model import Column, Deployment, Plan, Schema, Site, Source, Stream, Subscription, Tree
from headgate.planning import Graph, Problem, construct, measure, problem_of
from headgate.planning.covering import Comparisons
from headgate.planning.generate import Workload, generate
from headgate.planning.late_members import joined
from headgate.planning.protocol import ControlPoint, Request
from headgate.planning.replan import warm
from headgate.planning.search import Search, improve
from headgate.service.extending import extend_plan
from headgate.wire.snapshot import Snapshot
from headgate_studies.models.planning import ModelNetwork

SUBSCRIPTIONS = (500, 5_000, 50_000)
PEER = 5_000  # up to so many the protocol in NumPy is measured too: its time grows with the square of the members
STREAMS = 20


def run(subscriptions: str = ",".join(map(str, SUBSCRIPTIONS)), seeds: int = 8) -> dict[str, Any]:
    """Cost by the number of subscriptions, and quality after ten joins of fifty members."""
    warm()
    found: dict[str, Any] = {}
    print("subscriptions  sites  members  first join  the next  protocol in NumPy  snapshot written  (CPU s)")
    for count in (int(part) for part in subscriptions.split(",")):
        line = _cost(count)
        peer = f"{line['protocol_s']:.3f}" if "protocol_s" in line else "-"
        print(
            f"{count:13,}  {line['sites']:5}  {line['members']:7,}  {line['first_s']:10.3f}  {line['join_s']:8.3f}"
            f"  {peer:>17}  {line['snapshot_s']:16.3f}"
        )
        found |= {f"{name}_at_{count}": value for name, value in line.items()}
    print("bandwidths  quality before  below the root  by the protocol  as now")
    for scale in (0.5, 1.0, 2.0):
        means = np.mean([_quality(seed, scale) for seed in range(seeds)], axis=0)
        print(f"{scale:10g}  {means[0]:14.3f}  {means[1]:14.3f}  {means[2]:15.3f}  {means[3]:6.3f}")
        found |= dict(
            zip((f"quality_{name}_at_{scale:g}" for name in ("before", "root", "protocol", "now")), means, strict=True)
        )
    return found


def deployment_of(count: int, seed: int = 0) -> Deployment:
    """So many subscriptions of sixty filters a stream at a tenth as many sites, at most a thousand."""
    random, sites = np.random.default_rng([seed, count]), min(1_000, count // 10)
    schema = Schema(tuple(Column(name, pa.float64()) for name in "abcdef"))
    names = [f"p{index}" for index in range(sites)]
    streams = {
        f"s{index}": Stream(f"s{index}", root=names[index], schema=schema, source=Source("json"), rate_rows_per_s=100.0)
        for index in range(STREAMS)
    }
    uploads = random.uniform(5e4, 3e5, sites)
    wanted = {}
    for index, (stream, site, low, high) in enumerate(
        random.integers((STREAMS, sites, 20, 3), size=(count, 4)).tolist()
    ):
        name = f"w{index}"
        wanted[name] = Subscription(name, f"s{stream}", names[site], where=f"a > {low} and b < {high}")
    places = {name: Site(name, float(upload)) for name, upload in zip(names, uploads, strict=True)}
    return Deployment(streams, places, subscriptions=wanted)


def snapshot_of(deployment: Deployment, seed: int = 0) -> tuple[Snapshot, list[tuple[str, str]]]:
    """The deployment under random trees that lack two members, and those."""
    random, trees = np.random.default_rng([seed, 1]), dict[str, Tree]()
    missing: list[tuple[str, str]] = []
    for name, stream in deployment.streams.items():
        sites = sorted({each.site for each in deployment.subscriptions.values() if each.stream == name} - {stream.root})
        order, parents = [stream.root, *random.permutation(sites).tolist()], {}
        for index, site in enumerate(order[1:], 1):
            parents[site] = order[int(random.integers(max(0, index - 20), index))]
        if len(missing) < 2:
            missing.append((name, order[-1]))
            del parents[order[-1]]
        trees[name] = Tree(name, stream.root, parents)
    ids = {name: index for index, name in enumerate(deployment.subscriptions)}
    return Snapshot(1, deployment, Plan(trees), ids, ids), missing


def _cost(count: int) -> dict[str, float]:
    deployment = deployment_of(count)
    snapshot, missing = snapshot_of(deployment)
    before = snapshot.plan or Plan({})
    # The first join finds one member missing, the next one the other too.
    stream, site = missing[-1]
    some = _grown(before, {(stream, site): before.trees[stream].root})
    known = Comparisons()
    first, _ = _timed(lambda: extend_plan(replace(snapshot, plan=some), known))
    join, _ = _timed(lambda: extend_plan(snapshot, known))
    written, _ = _timed(snapshot.to_bytes)
    members = {(each.stream, each.site) for each in deployment.subscriptions.values()}
    line = {"sites": len(deployment.sites), "members": len(members), "first_s": first, "join_s": join}
    if count <= PEER:
        problem = problem_of(deployment)
        line["protocol_s"], _ = _timed(lambda: by_protocol(problem, before, missing))
    return line | {"snapshot_s": written}


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def by_protocol(problem: Problem, plan: Plan, missing: list[tuple[str, str]]) -> Plan:
    """The plan with those who are missing, each by Algorithm 2 with the model as feedback."""
    members = {(member.stream, member.site): member for member in problem.members}
    parents = {
        (flow.name, child): plan.trees[flow.name].parents[child]
        for flow in problem.flows
        for child in plan.trees[flow.name].members
        if child != flow.root
    }

    def request(stream: str, site: str) -> Request:
        member = members[stream, site]
        return Request(stream, site, member.interest, member.wants, member.bulk)

    network = ModelNetwork(problem)
    network.load(parents)
    point = ControlPoint(problem.flows, network, float(Graph(problem).net.rule[2]))
    for (stream, site), parent in parents.items():
        point.adopt(request(stream, site), parent)
    for stream, site in missing:
        parents[stream, site], _ = point.join_qasd(request(stream, site))
    return _grown(plan, {key: parents[key] for key in missing})


def _grown(plan: Plan, parents: dict[tuple[str, str], str]) -> Plan:
    trees = dict(plan.trees)
    for (stream, site), parent in parents.items():
        trees[stream] = Tree(stream, trees[stream].root, {**trees[stream].parents, site: parent})
    return Plan(trees)


def _quality(seed: int, scale: float) -> tuple[float, float, float, float]:
    """Of a searched plan, and after two members of each of its trees have left and joined again in each way."""
    problem = generate(Workload(sites=25, streams=5, filters_per_stream=10, scale=scale), seed)
    graph = improve(construct(problem, "qasdg", seed).graph, seed, Search(steps=6_000)).graph
    trees, missing = {}, []
    for name, tree in graph.plan().trees.items():
        leaves = [site for site in tree.parents if site not in tree.parents.values()][:2]
        missing += [(name, site) for site in leaves]
        trees[name] = Tree(name, tree.root, {site: each for site, each in tree.parents.items() if site not in leaves})
    left = Plan(trees)
    plans = (
        _grown(left, {(stream, site): trees[stream].root for stream, site in missing}),
        by_protocol(problem, left, missing),
        joined(problem, left, missing),
    )
    below, protocol, now = (measure(Graph.of(problem, plan)).geometric_mean for plan in plans)
    return measure(graph).geometric_mean, below, protocol, now
