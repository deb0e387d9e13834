"""A plan as a drawing: one tree per stream, links as wide as their load, what sheds in red. Plain SVG, no library."""

from __future__ import annotations

from html import escape
from math import log10

from headgate.planning.graph import Graph

_COLUMN, _ROW, _LEFT, _TOP = 170.0, 34.0, 70.0, 40.0


def draw(graph: Graph) -> str:
    """The SVG text of a graph with link loads in bytes per second and the part that arrives at each site."""
    net, streams = graph.net, graph.streams
    records = net.node
    children: dict[int, list[int]] = {}
    for node in range(streams, len(records)):
        if records["parent"][node] >= 0:
            children.setdefault(int(records["parent"][node]), []).append(node)
    places: dict[int, tuple[float, float]] = {}
    titles: list[tuple[float, str]] = []
    y = _TOP
    for source in range(streams):
        titles.append((y, graph.problem.flows[source].name))
        y += _ROW * 0.7
        y = _place(source, 0, y, children, places) + _ROW
    width = _LEFT * 2 + _COLUMN * (1 + max((int(d) for d in records["depth"]), default=0))
    parts = []
    parts.append(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {y:.0f}" font-family="sans-serif"'
        ' font-size="12" role="img"><title>Delivery graph</title><rect width="100%" height="100%" fill="#fff"/>'
    )
    parts += [f'<text x="12" y="{top:.0f}" font-weight="bold">{escape(name)}</text>' for top, name in titles]
    heaviest = max(float(records["size"][streams:].max()) if len(records) > streams else 1.0, 1.0)
    for node, (x, top) in places.items():
        if node >= streams:
            parts.append(_link(graph, node, places[int(records["parent"][node])], (x, top), heaviest))
    for node, (x, top) in places.items():
        kept, shed = float(records["kept"][node]), net.resource["permeable"][records["site"][node]] < 1 - 1e-9
        colour = "#c0392b" if shed else "#1f6f8b"
        name = escape(graph.name(node)[1])
        parts.append(f'<circle cx="{x:.0f}" cy="{top:.0f}" r="6" fill="{colour}"/>')
        share = "" if node < streams else f" {100 * kept:.0f} %"
        parts.append(f'<text x="{x:.0f}" y="{top - 9:.0f}" text-anchor="middle">{name}{share}</text>')
    return "\n".join([*parts, "</svg>"])


def _place(
    top_node: int, depth: int, y: float, children: dict[int, list[int]], places: dict[int, tuple[float, float]]
) -> float:
    """Lay a tree out to the right, each leaf on a line of its own; the next free line. Without recursion."""
    stack, pending = [(top_node, depth, False)], y
    while stack:
        node, level, done = stack.pop()
        below = children.get(node, [])
        x = _LEFT + level * _COLUMN
        if not below:
            pending += _ROW
            places[node] = (x, pending)
        elif done:
            places[node] = (x, (places[below[0]][1] + places[below[-1]][1]) / 2)
        else:
            stack.append((node, level, True))
            stack.extend((child, level + 1, False) for child in reversed(below))
    return pending


def _link(graph: Graph, node: int, start: tuple[float, float], end: tuple[float, float], heaviest: float) -> str:
    records = graph.net.node
    size, parent = float(records["size"][node]), int(records["parent"][node])
    passing = float(records["kept"][node]) / max(1e-12, float(records["kept"][parent]))
    stroke = 1.0 + 7.0 * (log10(1 + 9 * size / heaviest))
    colour = "#c0392b" if passing < 1 - 1e-9 else "#8fb8c4"
    middle = (start[0] + end[0]) / 2
    (x, y), (x2, y2) = start, end
    path = f"M{x:.0f},{y:.0f} C{middle:.0f},{y:.0f} {middle:.0f},{y2:.0f} {x2:.0f},{y2:.0f}"
    label = f"{size / 1000:,.1f} kB/s" + (f", passes {100 * passing:.0f} %" if passing < 1 - 1e-9 else "")
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{stroke:.1f}" stroke-opacity="0.7">'
        f"<title>{escape(label)}</title></path>"
        f'<text x="{middle:.0f}" y="{(start[1] + end[1]) / 2 + 12:.0f}" text-anchor="middle" fill="#555" font-size="9">'
        f"{escape(label)}</text>"
    )
