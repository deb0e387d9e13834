"""A change of the tree as steps that lose no row: make the new connection before breaking the old one.

For every site that moves, in an order in which each step leaves a tree: it connects to its new parent and says up to
where its coverage reaches; the new parent sends the missing range from its cache, or asks its own parent for what the
cache no longer holds, up to the root's log; once the new parent has answered, the old connection is dropped. Rows that
arrive twice lie at or below the coverage and are dropped (DESIGN, contract 2). With epochs (contract 7) the same list
runs per site at the sequence where the new plan begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headgate.tuning.shape import Shape


@dataclass(frozen=True, slots=True)
class Step:
    """One step: `kind` is connect, catch up or drop; `site` does it, with `peer`."""

    kind: str
    site: int
    peer: int

    def told(self, names: Sequence[str]) -> str:
        """The step in words."""
        site, peer = names[self.site], names[self.peer]
        return {
            "connect": f"{site} connects to {peer}",
            "catch up": f"{site} asks {peer} for everything after its coverage",
            "drop": f"{site} drops its connection to {peer}",
        }[self.kind]


def order_moves(parents: Mapping[int, int], moves: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The moves in an order in which the tree is a tree after each of them, so that an interrupted change is one too.

    >>> order_moves({1: 0, 2: 1}, [(1, 2), (2, 0)])
    [(2, 0), (1, 2)]
    """
    now, pending = dict(parents), sorted(moves)
    ordered: list[tuple[int, int]] = []
    while pending:
        ready = next((move for move in pending if not _below(now, move[1], move[0])), None)
        if ready is None:
            raise ValueError(f"the moves {pending} cannot be made one after the other")
        now[ready[0]] = ready[1]
        ordered.append(ready)
        pending.remove(ready)
    return ordered


def _below(parents: Mapping[int, int], site: int | None, above: int) -> bool:
    while site is not None and site != above:
        site = parents.get(site)
    return site == above


def make_before_break(shape: Shape, moves: Iterable[tuple[int, int]]) -> tuple[Step, ...]:
    """The steps that carry out some moves."""
    found: list[Step] = []
    for site, parent in order_moves(dict(enumerate(shape.parents)), moves):
        found += [
            Step("connect", site, parent),
            Step("catch up", site, parent),
            Step("drop", site, shape.parents[site]),
        ]
    return tuple(found)
