"""How long the demo waits: as long as anything moves, and on a busy machine that may take minutes.

What moves is rows that come in, rows that are delivered, and whatever the Spark job reports. `Patience` has no clock of
its own: time comes in with each status.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from headgate.errors import HeadgateError

SAY_S: Final = 10.0
"""After so long without rows, it is said what is waited for."""
GIVE_UP_S: Final = 600.0
"""After so long without any sign at all, nothing is expected any more."""
_STARTS: Final = 3


def signs_of(status: dict[str, Any], starts: int) -> tuple[Any, ...]:
    """What changes when something moves."""
    reports = [status["job"], *(each["job"] for each in status["streams"].values())]
    return (
        starts,
        sum(each["rows_in"] for each in status["streams"].values()),
        sum(each["delivered"] + each["reduced"] + each["expired"] for each in status["subscriptions"].values()),
        tuple((each.get("state"), each.get("batch"), each.get("time_ms")) for each in reports),
    )


@dataclass(slots=True)
class Patience:
    """Watches one status after another; `look` says what is waited for, and raises when it is in vain."""

    log: str
    signs: tuple[Any, ...] = ()
    moved_s: float = 0.0
    rows: tuple[Any, ...] = ()
    rows_s: float = 0.0
    _began: bool = field(default=False)

    def look(self, status: dict[str, Any], now_s: float, starts: int, *, draining: bool = False) -> str:
        """What is waited for, empty while rows come (or, when draining, are delivered)."""
        signs = signs_of(status, starts)
        rows = signs[2:3] if draining else signs[1:2]
        if not self._began or signs != self.signs:
            self.signs, self.moved_s = signs, now_s
        if not self._began or rows != self.rows:
            self.rows, self.rows_s = rows, now_s
        self._began = True
        if now_s - self.moved_s > GIVE_UP_S:
            raise HeadgateError(
                f"nothing has moved for {GIVE_UP_S / 60:.0f} minutes: {self._reason(status, draining=draining)}",
                hint=f"see {self.log}",
            )
        quiet_s = now_s - self.rows_s
        if quiet_s < SAY_S:
            return ""
        return f"waiting for {quiet_s:,.0f} s: {self._reason(status, draining=draining)}"

    def _reason(self, status: dict[str, Any], *, draining: bool) -> str:
        if draining:
            late = {name: each["in_flight"] for name, each in status["subscriptions"].items() if each["in_flight"]}
            first = max(late, key=lambda name: late[name], default="")
            return f"{sum(late.values()):,} rows are on their way to {len(late)} subscribers, most of them to {first}"
        failed = [name for name, each in status["streams"].items() if each["job"].get("state") == "failed"]
        if failed:
            return (
                f"stream {failed[0]} has failed and is tried again: {status['streams'][failed[0]]['job'].get('error')}"
            )
        if status["job"].get("state") != "ready":
            return f"the Spark job is not ready yet ({status['job'].get('state', 'starting')})"
        return "the Spark job runs a micro-batch (on a busy machine one takes long)"


def check_starts(starts: int, log: str) -> None:
    """Raise when the Spark job has ended again and again before it took a row."""
    if starts >= _STARTS:
        raise HeadgateError(f"the Spark job has ended {starts} times before it took a row", hint=f"see {log}")
