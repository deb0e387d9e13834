"""Rows of a stream that were lost before anybody matched them: nothing is known of them but what was declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.fabric import Fabric
from headgate.service.books import stored_sums
from headgate.service.why.rows import DeclaredGap
from headgate.service.why.times import time_text
from headgate.wire.manifest import Manifest
from headgate.wire.unsent import add_reasons

_NAMED: Final = 3
"""So many gaps are named in the text."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What was lost unread of a stream.

    `shed` by admission control, `unsent` by reason what senders gave up, `gaps` of the source, newest first, and the
    numbers of rows that were committed and are `gone` with a part of the root log. `times_ms` are when the newest of
    each was declared, as far as the root log still says.
    """

    shed: int
    unsent: Mapping[str, int]
    gaps: tuple[DeclaredGap, ...]
    gone: int
    times_ms: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.shed or self.unsent or self.gaps or self.gone)

    def __str__(self) -> str:
        parts = []
        if self.gaps:
            named = "; ".join(f"{each.reason} (declared at {time_text(each.time_ms)})" for each in self.gaps[:_NAMED])
            more = len(self.gaps) - _NAMED
            parts.append(named + (f"; and {more:,} gaps before" if more > 0 else ""))
        if self.unsent:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.unsent.items()))
            told = f"{sum(self.unsent.values()):,} rows were given up by their senders ({reasons}"
            parts.append(f"{told}{self._newest('unsent')})")
        if self.shed:
            parts.append(f"admission control has shed {self.shed:,} rows{self._newest('shed', ' (', ')')}")
        if self.gone:
            parts.append(f"{self.gone:,} rows were committed and lost with a part of the root log")
        return "; ".join(parts)

    def _newest(self, kind: str, before: str = "; ", behind: str = "") -> str:
        found = self.times_ms.get(kind)
        return f"{before}the newest at {time_text(found)}{behind}" if found else ""

    def to_document(self) -> dict[str, Any]:
        """JSON-ready."""
        gaps = [{"reason": each.reason, "time_ms": each.time_ms} for each in self.gaps]
        found = {"shed": self.shed, "unsent": dict(self.unsent), "source_gaps": gaps, "gone": self.gone}
        return {**found, "times_ms": dict(self.times_ms)}


async def losses_of(fabric: Fabric, stream: str, manifests: Sequence[Manifest], gaps: Sequence[DeclaredGap]) -> Losses:
    """What was lost of a stream up to the newest of its manifests: the stored sums, and what came after them."""
    sums, _ = await stored_sums(fabric, stream)
    shed, gone, unsent = sums.shed, sums.gaps, dict(sums.unsent)
    times: dict[str, int] = {}
    for manifest in manifests:
        declared = manifest.unsent.reasons if manifest.unsent else {}
        if not sums.has(manifest):
            shed, gone = shed + manifest.shed, gone + manifest.gaps
            add_reasons(unsent, declared)
        lost = {"shed": manifest.shed, "unsent": declared, "gone": manifest.gaps}
        times |= {kind: manifest.time_ms for kind, count in lost.items() if count}
    return Losses(shed, unsent, tuple(gaps), gone, times)
