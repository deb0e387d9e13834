"""Which conditions have become alerts, and which alerts are over. No clock, no I/O.

A condition becomes an alert when it has lasted for as long as its kind allows; an alert is over when its condition has
been away for a while. So something that comes and goes is one alert, and what lasts a moment is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from headgate.model.alerts import AlertRules
from headgate.protocol.reports import AlertReport

CONTRACT: Final = "contract"
SILENT: Final = "silent"
LEDGER: Final = "ledger"
LOG: Final = "log"
KINDS: Final = (CONTRACT, SILENT, LEDGER, LOG)
_REMEMBERED: Final = 50
_LOG_MS: Final = 5_000

Key = tuple[str, str]
"""A kind and what it is about."""


@dataclass(frozen=True, slots=True)
class _Watched:
    """A condition: since when it holds, what is said of it, and since when it is away, if it is."""

    since_ms: int
    text: str
    away_ms: int | None = None
    raised_ms: int | None = None


class AlertBook:
    """Follows conditions from one look to the next."""

    def __init__(self, rules: AlertRules, known: Iterable[AlertReport] = ()) -> None:
        """`known` are alerts of before a restart: those that were not over go on, and nobody is told again."""
        self._patience_ms = {
            CONTRACT: rules.contract_s * 1000,
            SILENT: 0.0,  # how long it was silent is part of the condition
            LEDGER: rules.ledger_s * 1000,
            LOG: _LOG_MS,
        }
        self._clear_ms = rules.clear_s * 1000
        self._watched: dict[Key, _Watched] = {}
        self._over: deque[AlertReport] = deque(maxlen=_REMEMBERED)
        for each in known:
            if each.cleared_ms is None:
                held = _Watched(each.since_ms, each.text, None, each.raised_ms)
                self._watched[each.kind, each.subject] = held
            else:
                self._over.append(each)

    @property
    def raised(self) -> frozenset[Key]:
        """What is an alert now."""
        return frozenset(key for key, each in self._watched.items() if each.raised_ms is not None)

    @property
    def alerts(self) -> list[AlertReport]:
        """The alerts that hold, oldest first, and then those that are over, newest first."""
        held = [_report(key, each) for key, each in self._watched.items() if each.raised_ms is not None]
        return [*sorted(held, key=lambda each: each.raised_ms), *reversed(self._over)]

    def update(self, conditions: Mapping[Key, str], now_ms: int) -> list[AlertReport]:
        """Take in what holds now; returns the alerts that were raised or are over by it."""
        told: list[AlertReport] = []
        for key, text in conditions.items():
            known = self._watched.get(key, _Watched(now_ms, text))
            known = replace(known, text=text, away_ms=None)
            if known.raised_ms is None and now_ms - known.since_ms >= self._patience_ms[key[0]]:
                known = replace(known, raised_ms=now_ms)
                told.append(_report(key, known))
            self._watched[key] = known
        for key, known in list(self._watched.items()):
            if key in conditions:
                continue
            away_ms = now_ms if known.away_ms is None else known.away_ms
            if known.raised_ms is None:
                del self._watched[key]
            elif now_ms - away_ms >= self._clear_ms:
                del self._watched[key]
                over = _report(key, known, now_ms)
                self._over.append(over)
                told.append(over)
            else:
                self._watched[key] = replace(known, away_ms=away_ms)
        return told


def _report(key: Key, watched: _Watched, cleared_ms: int | None = None) -> AlertReport:
    kind, subject = key
    return AlertReport(
        kind=kind,
        subject=subject,
        text=watched.text,
        since_ms=watched.since_ms,
        raised_ms=watched.raised_ms or 0,
        cleared_ms=cleared_ms,
    )
