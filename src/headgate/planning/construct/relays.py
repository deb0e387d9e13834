"""Members that only relays can reach: the shortest chain of allowed relays joins them to their tree."""

from __future__ import annotations

from headgate.planning.graph import Graph


def connect(graph: Graph) -> None:
    """Give every member that a construction left outside a chain of relays to its tree, where there is one."""
    nodes, site = graph.net.node, graph.net.node["site"]
    names = [found.name for found in graph.problem.sites]
    for stream, place in graph.unserved:
        start = graph.node(stream, place)
        index = int(nodes["stream"][start])
        mates = [index, *range(int(graph.net.flow["first"][index]), int(graph.net.flow["last"][index]))]
        before: dict[int, int] = {start: -1}
        pending = [start]
        for at in pending:
            if at == index or nodes["parent"][at] >= 0:
                while before[at] >= 0:
                    graph.move(before[at], at)
                    at = before[at]  # noqa: PLW2901  # walks back along the chain that was found
                break
            for mate in mates:
                free = mate == index or nodes["parent"][mate] >= 0 or graph.layout.relay[mate]
                if mate not in before and free and graph.problem.linked(names[site[mate]], names[site[at]]):
                    before[mate] = at
                    pending.append(mate)
