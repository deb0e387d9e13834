"""When to ask which feed: an interval for each, a gap between requests to one host, patience after failures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Politeness:
    """How often a server is bothered.

    A feed is asked every `interval_s`, one host at most every `host_gap_s`. After a failure the interval doubles, up to
    `patience_s`; a server that says when to come back (`Retry-After`) is obeyed; a feed that is gone (410) is not asked
    again.
    """

    interval_s: float = 1800.0
    host_gap_s: float = 1.0
    patience_s: float = 86_400.0
    timeout_s: float = 20.0
    max_bytes: int = 5_000_000

    def after_failure(self, failures: int, retry_after_s: float | None) -> float:
        """Seconds until the next try after so many failures in a row.

        >>> Politeness(interval_s=60).after_failure(3, None)
        480.0
        """
        wait = min(self.patience_s, self.interval_s * 2.0 ** min(failures, 30))
        return wait if retry_after_s is None else max(retry_after_s, self.interval_s)
