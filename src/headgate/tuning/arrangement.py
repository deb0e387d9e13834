"""A unit's members in one arrangement of its links: children, merged profiles and rates, worked out on demand.

A candidate's arrangement stands on the present one and recomputes only the members whose part of the unit changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headgate.tuning.language.vocabulary import unknown_value
from headgate.tuning.overlay import Bits, Sizing
from headgate.tuning.unit import Measure, Unit, UnitMember


@dataclass(frozen=True, slots=True)
class Setting:
    """What every site of the system knows: what profiles are worth and the cost of matching."""

    sizing: Sizing
    match_entry_s: float = 1e-3
    match_byte_s: float = 0.0


class Arrangement:
    """Members under a set of moves. `base` is the arrangement before them (None for the present one)."""

    def __init__(
        self,
        unit: Unit,
        setting: Setting,
        measure: Measure,
        moves: Mapping[int, int] | None = None,
        base: Arrangement | None = None,
        profiles: bool = True,
    ) -> None:
        self.unit, self.setting, self.measure, self.base = unit, setting, measure, base
        self.moves = moves or {}
        self._arrived: dict[int, list[int]] = {}
        self.dirty: set[int] = set()
        for site, parent in self.moves.items():
            self._arrived.setdefault(parent, []).append(site)
            self.dirty.update((parent, unit.parents[site]))
        if profiles:
            for site in list(self.dirty):
                while (site := self.parent(site)) in unit.members:
                    self.dirty.add(site)
        self._merged: dict[int, Bits] = {}
        self._rate: dict[int, float] = {}

    def parent(self, site: int) -> int:
        """The parent of a member; the top's is the site above the unit."""
        found = self.moves.get(site)
        return found if found is not None else self.unit.parents.get(site, self.unit.above)

    def children(self, site: int) -> list[int]:
        """Children inside the unit."""
        stayed = self.unit.below[site]
        if not self.moves:
            return list(stayed)
        return [child for child in stayed if child not in self.moves] + self._arrived.get(site, [])

    def member(self, site: int) -> UnitMember:
        """The member itself."""
        return self.unit.members[site]

    def merged(self, site: int) -> Bits:
        """The merged profile of a member and everything below it."""
        if self.base is not None and site not in self.dirty:
            return self.base.merged(site)
        if site not in self._merged:
            member = self.unit.members[site]
            merged = _or(member.facts.profile, member.frontier.profile, self.setting.sizing.atoms)
            for child in self.children(site):
                merged |= self.merged(child)
            self._merged[site] = merged
        return self._merged[site]

    def rate(self, site: int) -> float:
        """Bytes per second that a member receives in this tree."""
        if self.base is not None and site not in self.dirty:
            return self.base.rate(site)
        if site not in self._rate:
            self._rate[site] = self.setting.sizing.size(self.merged(site))
        return self._rate[site]

    def view(self, site: int) -> MemberView:
        """Metrics of one member."""
        return MemberView(self, site)


class MemberView:
    """One member's metrics in one arrangement; the scalar twin of `evaluate.TreeView`."""

    __slots__ = ("at", "member", "site")

    def __init__(self, at: Arrangement, site: int) -> None:
        self.at, self.site, self.member = at, site, at.unit.members[site]

    def state(self, name: str) -> Bits:
        """A profile of the member."""
        if name == "merged_profile":
            return self.at.merged(self.site)
        atoms = self.at.setting.sizing.atoms
        if name == "own_profile":
            return _or(self.member.facts.profile, None, atoms)
        below = _or(None, self.member.frontier.profile, atoms)
        for child in self.at.children(self.site):
            below |= self.at.merged(child)
        return below

    def size(self, profile: Bits) -> float:
        """Bytes per second of a profile."""
        return self.at.setting.sizing.size(profile)

    def metric(self, name: str) -> Any:
        """A metric of the member, or of its link to its parent (NaN at the root)."""
        if name.startswith("link_"):
            parent = self.at.parent(self.site)
            if parent < 0:
                return float("nan")
            return 1.0 if name == "link_hop" else self.at.measure(name, self.site, parent)
        computed = getattr(self, f"_{name}", None)
        if computed is not None:
            return computed()
        return self.member.facts.constants.get(name, unknown_value(name))

    @property
    def _is_root(self) -> bool:
        return self.at.parent(self.site) < 0

    def _more(self, name: str) -> float:
        return self.member.facts.elsewhere.get(name, 0.0)

    def _fanout(self) -> float:
        return self.member.frontier.fanout + len(self.at.children(self.site)) + self._more("fanout")

    def _clients(self) -> float:
        return float(self.member.facts.clients)

    def _incoming_rate(self) -> float:
        return self.at.rate(self.site)

    def _own_rate(self) -> float:
        given = self.member.facts.own_rate
        return self.size(self.state("own_profile")) if given is None else given

    def _superfluous_data(self) -> float:
        return 0.0 if self._is_root else self._incoming_rate() - self._own_rate()

    def _outgoing_rate(self) -> float:
        inside = sum(self.at.rate(child) for child in self.at.children(self.site))
        return inside + self.member.frontier.rate + self._more("outgoing_rate")

    def _upload_excess(self) -> float:
        return max(0.0, self._outgoing_rate() - float(self.metric("upload_bandwidth")))

    def _download_excess(self) -> float:
        here = 0.0 if self._is_root else self._incoming_rate()
        return max(0.0, here + self._more("incoming_rate") - float(self.metric("download_bandwidth")))

    def _matching_cpu(self) -> float:
        entries = self._fanout() + self._clients() + self._more("entries")
        moved = self._incoming_rate() + self._more("matched_rate")
        return self.at.setting.match_entry_s * entries + self.at.setting.match_byte_s * moved


def _or(one: Bits | None, other: Bits | None, atoms: int) -> Bits:
    """A fresh union of up to two profiles."""
    if one is not None:
        return one | other if other is not None else one.copy()
    return other.copy() if other is not None else np.zeros(atoms, dtype=np.bool_)
