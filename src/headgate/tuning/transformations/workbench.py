"""Where primitives are applied: a scratch copy of a unit's parents that keeps every step inside the unit."""

from __future__ import annotations

from headgate.tuning.unit import Unit


class Refused(Exception):  # noqa: N818  (a result of a rule, not an error of the program)
    """A step that the unit does not allow: it would move the top, leave the unit, or make a cycle."""


class Workbench:
    """A unit's links while a composite runs. Child lists asked for before a step are frozen (ERRATA, Table 2).

    The last level of the unit keeps its children: they are not members, so no step can name them.
    """

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.changed: dict[int, int] = {}
        self.steps: list[tuple[str, int, int]] = []

    def children(self, site: int) -> tuple[int, ...]:
        """Children of a site right now."""
        stayed = [child for child in self.unit.below[site] if self.changed.get(child, site) == site]
        came = [child for child, parent in self.changed.items() if parent == site and self.unit.parents[child] != site]
        return (*stayed, *came)

    def parent(self, site: int) -> int:
        """The parent of a site right now; the top has none inside the unit."""
        parent = self.changed.get(site, self.unit.parents.get(site))
        if parent is None:
            raise Refused(f"site {site} has no parent inside the unit")
        return parent

    def promote(self, site: int) -> None:
        """Move a site, with everything below it, under its grandparent."""
        parent = self.parent(site)
        self._move("promote", site, self.parent(parent))

    def demote(self, site: int, under: int) -> None:
        """Move a site, with everything below it, under one of its siblings."""
        if site == under or self.parent(site) != self.parent(under):
            raise Refused(f"site {under} is not a sibling of site {site}")
        self._move("demote", site, under)

    def _move(self, what: str, site: int, under: int) -> None:
        self.changed[site] = under
        self.steps.append((what, site, under))

    def moves(self) -> tuple[tuple[int, int], ...]:
        """Sites whose parent changed, with their new one, by site."""
        return tuple(sorted(item for item in self.changed.items() if self.unit.parents[item[0]] != item[1]))
