"""An independent evaluation of a delivery graph: dictionaries, plain iteration, nothing shared with the kernels."""

from __future__ import annotations

from dataclasses import replace

from headgate.planning import Problem, edges_of


def bulky(problem: Problem, rng) -> Problem:
    """The same problem with links that take half to twice the bytes for a row."""
    members = tuple(replace(member, bulk=float(rng.uniform(0.5, 2.0))) for member in problem.members)
    return replace(problem, members=members)


def evaluate(problem: Problem, parents, sweeps: int = 20000, damp: float = 0.5):
    """Drop and delay by (stream, site): Jacobi iteration of Eq. 1 and 2 with damping."""
    edges = {(edge.stream, edge.child): edge for edge in edges_of(problem, parents)}
    index = problem.site_index
    rate = {flow.name: flow.rate_rows_per_s for flow in problem.flows}
    bulk = {(member.stream, member.site): member.bulk for member in problem.members}
    roots = {flow.name: flow.root for flow in problem.flows}
    sites = {site.name: site for site in problem.sites}
    inf = float("inf")

    def chain(stream, site):
        steps = []
        while site != roots[stream]:
            steps.append((stream, site))
            site = parents[stream, site]
        return steps

    order = sorted(edges, key=lambda key: len(chain(*key)))
    kept = dict.fromkeys(edges, 1.0) | dict.fromkeys(roots.items(), 1.0)
    perm: dict = {}
    for _ in range(sweeps):
        load: dict = {}
        for edge in edges.values():
            sent = rate[edge.stream] * edge.interest.size * kept[edge.stream, edge.parent]
            sent *= bulk[edge.stream, edge.child]
            for place in (("up", edge.parent), ("down", edge.child), frozenset((edge.parent, edge.child))):
                load[place] = load.get(place, 0.0) + sent
        change = 0.0
        for place, sent in load.items():
            if isinstance(place, frozenset):
                limit = problem.capacities.get(place, inf)
            else:
                site = sites[place[1]]
                limit = site.upload_bytes_per_s if place[0] == "up" else site.download_bytes_per_s
                limit = inf if limit is None else limit
            new = 1.0 if sent <= limit else limit / sent
            old = perm.get(place, 1.0)
            perm[place] = old + damp * (new - old)
            change = max(change, abs(new - old))
        for key in order:
            edge = edges[key]
            passing = min(perm["up", edge.parent], perm["down", edge.child], perm[frozenset((edge.parent, edge.child))])
            kept[key] = kept[edge.stream, edge.parent] * passing
        if change < 1e-14:
            break
    delay = dict.fromkeys(roots.items(), 0.0)
    for key in order:
        edge = edges[key]
        upper = edge.stream, edge.parent
        hop = problem.delays.between(index[edge.parent], index[edge.child])
        delay[key] = delay[upper] + sites[edge.parent].processing_delay_s + hop
    return kept, delay
