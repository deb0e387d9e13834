"""When somebody is to be told that something is wrong, and how."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AlertRules:
    """How long each thing may last before it is an alert, and who is told.

    `contract_s`: a subscription below its contract. `silent_s`: a site that does not report. `ledger_s`: rows that are
    not accounted for, or do not arrive. `log_share`: how full a log may be. An alert is over when it has been good for
    `clear_s`. `webhooks` are addresses that get a JSON document by POST, `commands` programs with their arguments that
    get it on standard input.
    """

    contract_s: float = 120.0
    silent_s: float = 30.0
    ledger_s: float = 15.0
    log_share: float = 0.9
    clear_s: float = 30.0
    webhooks: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
