"""A plan as a drawing: one tree per stream, links as wide as their load, what sheds in red. Plain SVG, no library.

A link leaves its parent in a curve and arrives on a straight line of its own. The site's name stands above that line
and the link's load below it, so that no label lies on a link.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from html import escape
from math import log10

from headgate.planning.graph import Graph

_CURVE, _ROW, _TOP, _MARGIN = 70.0, 44.0, 40.0, 20.0
_LETTER, _SMALL_LETTER = 7.2, 5.4  # widest usual width of a letter, in the two sizes of text
_MOST, _GAP = 8.0, 10.0  # width of the heaviest link; from the end of a text to its circle


@dataclass(frozen=True, slots=True)
class _Label:
    """What is written at a site: its name with the part of its rows that arrives, and the load of the link into it."""

    name: str
    load: str = ""

    @property
    def width(self) -> float:
        return max(_LETTER * len(self.name), _SMALL_LETTER * len(self.load))


def draw(graph: Graph, unknown_rates: Collection[str] = ()) -> str:
    """The SVG text of a graph with link loads in bytes per second and the part that arrives at each site.

    Of streams whose rates are unknown only who serves whom is drawn.
    """
    net, streams = graph.net, graph.streams
    records = net.node
    children: dict[int, list[int]] = {}
    for node in range(streams, len(records)):
        if records["parent"][node] >= 0:
            children.setdefault(int(records["parent"][node]), []).append(node)
    shown = [*range(streams), *(node for below in children.values() for node in below)]
    labels = {node: _label(graph, node, unknown_rates) for node in shown}
    left = _MARGIN + _GAP + max((labels[node].width for node in range(streams)), default=0.0)
    lead = 2 * _GAP + max((labels[node].width for node in shown if node >= streams), default=0.0)
    places: dict[int, tuple[float, float]] = {}
    titles: list[tuple[float, str]] = []
    y = _TOP
    for source in range(streams):
        titles.append((y, graph.problem.flows[source].name))
        y = _place(source, (left, _CURVE + lead), y, children, places) + _ROW
    width = _MARGIN + max((x for x, _ in places.values()), default=0.0)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {y:.0f}" font-family="sans-serif"'
        ' font-size="12" role="img"><title>Delivery graph</title><rect width="100%" height="100%" fill="#fff"/>'
    )
    parts = [f'<text x="12" y="{top:.0f}" font-weight="bold">{escape(name)}</text>' for top, name in titles]
    heaviest = max(float(records["size"][streams:].max()) if len(records) > streams else 1.0, 1.0)
    for node, place in places.items():
        if node >= streams:
            parts.append(_link(graph, node, places[int(records["parent"][node])], place, heaviest, labels[node].load))
    for node, (x, top) in places.items():
        shed = net.resource["permeable"][records["site"][node]] < 1 - 1e-9
        colour = "#c0392b" if shed else "#1f6f8b"
        parts.append(f'<circle cx="{x:.0f}" cy="{top:.0f}" r="6" fill="{colour}"/>')
        end, label = f'x="{x - _GAP:.0f}" text-anchor="end"', labels[node]
        above = top + 4 if node < streams else top - _MOST / 2 - 4
        parts.append(f'<text {end} y="{above:.0f}">{escape(label.name)}</text>')
        if label.load:
            below = top + _MOST / 2 + 10
            parts.append(f'<text {end} y="{below:.0f}" fill="#555" font-size="9">{escape(label.load)}</text>')
    return "\n".join([head, *parts, "</svg>"])


def _place(
    top_node: int,
    across: tuple[float, float],
    y: float,
    children: dict[int, list[int]],
    places: dict[int, tuple[float, float]],
) -> float:
    """Lay a tree out to the right, each leaf on a line of its own; the next free line. Without recursion.

    `across` is where the source lies and how far a site is to the right of its parent.
    """
    stack, pending = [(top_node, 0, False)], y
    while stack:
        node, level, done = stack.pop()
        below = children.get(node, [])
        x = across[0] + level * across[1]
        if not below:
            pending += _ROW
            places[node] = (x, pending)
        elif done:
            places[node] = (x, (places[below[0]][1] + places[below[-1]][1]) / 2)
        else:
            stack.append((node, level, True))
            stack.extend((child, level + 1, False) for child in reversed(below))
    return pending


def _passing(graph: Graph, node: int) -> float:
    """The part of what a site's parent has that passes the link into it."""
    kept = graph.net.node["kept"]
    return float(kept[node]) / max(1e-12, float(kept[int(graph.net.node["parent"][node])]))


def _label(graph: Graph, node: int, unknown_rates: Collection[str]) -> _Label:
    stream, name = graph.name(node)
    if node < graph.streams:
        return _Label(name)
    if stream in unknown_rates:
        return _Label(name, "rate unknown")
    passing = _passing(graph, node)
    load = f"{float(graph.net.node['size'][node]) / 1000:,.1f} kB/s"
    return _Label(
        f"{name} {100 * float(graph.net.node['kept'][node]):.0f} %",
        load + (f", passes {100 * passing:.0f} %" if passing < 1 - 1e-9 else ""),
    )


def _link(
    graph: Graph, node: int, start: tuple[float, float], end: tuple[float, float], heaviest: float, load: str
) -> str:
    size = float(graph.net.node["size"][node])
    stroke = 1.0 + (_MOST - 1.0) * log10(1 + 9 * size / heaviest)
    colour = "#c0392b" if _passing(graph, node) < 1 - 1e-9 else "#8fb8c4"
    (x, y), (x2, y2) = start, end
    middle, bend = x + _CURVE / 2, x + _CURVE
    path = f"M{x:.0f},{y:.1f} C{middle:.0f},{y:.1f} {middle:.0f},{y2:.1f} {bend:.0f},{y2:.1f} H{x2:.0f}"
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{stroke:.1f}" stroke-opacity="0.7">'
        f"<title>{escape(load)}</title></path>"
    )
