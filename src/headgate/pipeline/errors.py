"""Errors of admission control while running: sums over batches of what samples say, with a confidence interval."""

from __future__ import annotations

from typing import Any

from headgate.fabric import SyncFabric
from headgate.matching.admission import ErrorEstimate
from headgate.matching.admission.class_errors import add_errors
from headgate.pipeline.staged import Staged
from headgate.protocol.reports import ErrorsReport

_SUMS = tuple(name for name in ErrorsReport.__struct_fields__ if name != "of_classes")


class Errors(ErrorsReport, frozen=True):
    """Since the stream began: matches that were missed (false negatives), matches that were wrong (false positives).

    Batches are independent samples, so estimates and variances add up.
    """

    @classmethod
    def read(cls, fabric: SyncFabric, stream: str) -> Errors:
        """What an earlier driver reported last, so that a restart forgets nothing."""
        stored = fabric.last(fabric.logs.state, fabric.logs.stats("errors", stream))
        found = fabric.quarantine.take(fabric.logs.state, stored, cls.decode, "counted from 0") if stored else None
        fabric.report_quarantine(f"driver-{stream}")
        return found or cls()

    def after(self, staged: Staged, fabric: SyncFabric, stream: str) -> Errors:
        """With one more batch; reported, for `headgate status` and the next driver, if that gave anything up."""
        before = {int(each): figures for each, figures in self.of_classes.items()}
        of_classes = add_errors([before, staged.class_errors()])
        found = Errors(
            *(getattr(self, name) + staged.total(name) for name in _SUMS),
            of_classes={str(each): tuple(round(figure, 3) for figure in of_classes[each]) for each in of_classes},  # type: ignore[misc] # four of them
        )
        if found != self:
            fabric.publish(fabric.logs.stats("errors", stream), found.encode())
        return found

    def to_document(self) -> dict[str, Any]:
        """Both estimates with their 95 % intervals."""
        return {
            "false_negatives": _shown(self.missed, self.missed_var),
            "false_positives": _shown(self.wrong, self.wrong_var),
            "sampled_rows": self.sampled,
        }

    def of_class(self, class_id: int, unlooked: float = 0.0, unlooked_var: float = 0.0) -> dict[str, Any]:
        """The estimates of one class, with what it missed among rows that were not looked at for it."""
        missed, missed_var, wrong, wrong_var = self.of_classes.get(str(class_id), (0.0, 0.0, 0.0, 0.0))
        return {
            "false_negatives": _shown(missed + unlooked, missed_var + unlooked_var),
            "false_positives": _shown(wrong, wrong_var),
        }


def _shown(errors: float, variance: float) -> dict[str, float]:
    found = ErrorEstimate.of(errors, variance)
    return {"estimate": round(found.errors, 1), "low": round(found.low, 1), "high": round(found.high, 1)}
