"""Errors of admission control while running: sums over batches of what samples say, with a confidence interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headgate.fabric import SyncFabric
from headgate.matching.admission import ErrorEstimate
from headgate.wire.sealed import read_object, write_object

_SUMS = ("missed", "missed_var", "wrong", "wrong_var", "sampled")


@dataclass(frozen=True, slots=True)
class Errors:
    """Since the stream began: matches that were missed (false negatives), matches that were wrong (false positives).

    Batches are independent samples, so estimates and variances add up.
    """

    missed: float = 0.0
    missed_var: float = 0.0
    wrong: float = 0.0
    wrong_var: float = 0.0
    sampled: int = 0

    @classmethod
    def read(cls, fabric: SyncFabric, stream: str) -> Errors:
        """What an earlier driver reported last, so that a restart forgets nothing."""
        stored = fabric.last(fabric.logs.state, fabric.logs.stats("errors", stream))
        found = fabric.quarantine.take(fabric.logs.state, stored, cls.decode, "counted from 0") if stored else None
        fabric.report_quarantine(f"driver-{stream}")
        return found or cls()

    @classmethod
    def decode(cls, data: bytes) -> Errors:
        """Read what `to_document` gives, as it is stored."""
        sums = read_object(data)["sums"]
        missed, missed_var, wrong, wrong_var = (float(sums[name]) for name in _SUMS[:-1])
        return cls(missed, missed_var, wrong, wrong_var, int(sums["sampled"]))

    def after(self, staged: Sequence[Any], fabric: SyncFabric, stream: str) -> Errors:
        """With one more batch; reported, for `headgate status` and the next driver, if that gave anything up."""
        found = Errors(*(getattr(self, name) + sum(row[name] for row in staged) for name in _SUMS))
        if found != self:
            fabric.publish(fabric.logs.stats("errors", stream), write_object(found.to_document()))
        return found

    def to_document(self) -> dict[str, Any]:
        """Both estimates with their 95 % intervals, and the sums to go on from."""
        return {
            "false_negatives": _shown(self.missed, self.missed_var),
            "false_positives": _shown(self.wrong, self.wrong_var),
            "sampled_rows": self.sampled,
            "sums": {name: getattr(self, name) for name in _SUMS},
        }


def _shown(errors: float, variance: float) -> dict[str, float]:
    found = ErrorEstimate.of(errors, variance)
    return {"estimate": round(found.errors, 1), "low": round(found.low, 1), "high": round(found.high, 1)}
