"""Outputs that stand still: rows wait in a relay's queue, and nothing of them has been sent for a while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headgate.protocol.reports import RelayReport, StandingOutput

FRESH_MS: Final = 10_000
"""A relay reports every second; one that has not for so long is cut off or not running, and is not judged."""
_WORTH_MS: Final = 5_000


class Standing:
    """Follows the relays' reports: since when each output with rows in its queue covers the same."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], tuple[int | None, int]] = {}

    def update(self, relays: Mapping[str, RelayReport], now_ms: int) -> list[StandingOutput]:
        """Take in the reports of all relays; returns the outputs that have stood for some seconds.

        >>> from headgate.protocol.reports import OutputReport
        >>> outputs = {"sub-1": OutputReport(rows=3, coverage=7)}
        >>> relay = lambda now: RelayReport(site="oslo", time_ms=now, outputs=outputs)
        >>> standing = Standing()
        >>> standing.update({"oslo": relay(0)}, 0)
        []
        >>> standing.update({"oslo": relay(9000)}, 9000)
        [StandingOutput(site='oslo', output='sub-1', rows=3, since_ms=0)]
        """
        since: dict[tuple[str, str], tuple[int | None, int]] = {}
        found = []
        for site, report in relays.items():
            if now_ms - report.time_ms > FRESH_MS:
                continue
            for output, each in report.outputs.items():
                if not each.rows:
                    continue
                coverage, began_ms = self._since.get((site, output), (None, now_ms))
                if coverage != each.coverage:
                    began_ms = now_ms
                since[site, output] = (each.coverage, began_ms)
                if now_ms - began_ms >= _WORTH_MS:
                    found.append(StandingOutput(site=site, output=output, rows=each.rows, since_ms=began_ms))
        self._since = since
        return found
