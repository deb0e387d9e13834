"""What of a status somebody may have to be told: contracts, silent sites, the ledger, logs that are nearly full.

What is an alert already stays one a little longer than it takes to become one: a quality has to pass its contract by a
fiftieth, a log to have a twentieth more room.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from headgate.model import Deployment, Subscription
from headgate.model.alerts import AlertRules
from headgate.service.alerts.book import CONTRACT, LEDGER, LOG, SILENT, Key
from headgate.service.findings import age

_QUALITY: Final = 0.02
_SHARE: Final = 0.05
_LONG: Final = 200


def conditions(
    rules: AlertRules,
    deployment: Deployment,
    status: Mapping[str, Any],
    logs: Mapping[str, float],
    raised: Collection[Key],
    started_ms: int,
) -> dict[Key, str]:
    """Everything that holds now, each with a sentence. `logs` says how full each log is, as a share."""
    found: dict[Key, str] = {}
    found.update(_contracts(deployment, status, raised))
    found.update(_silent(rules, deployment, status, started_ms))
    for each in status["findings"]:
        if each["wrong"]:
            hint = f" ({each['hint']})" if each["hint"] else ""
            found[LEDGER, f"{each['subject']}: {each['kind']}"] = f"{each['subject']}: {each['message']}{hint}"
    for name, share in logs.items():
        limit = rules.log_share - (_SHARE if (LOG, name) in raised else 0.0)
        if share >= limit:
            found[LOG, name] = f"log {name} is {share:.0%} full: what it takes no more waits upstream"
    return found


def _contracts(deployment: Deployment, status: Mapping[str, Any], raised: Collection[Key]) -> Iterator[tuple[Key, str]]:
    measured = status["planner"].get("subscriptions", {})
    for name, each in deployment.subscriptions.items():
        at_least, quality = each.quality.at_least, measured.get(name, {}).get("quality")
        if at_least is None or quality is None or each.paused is not None:
            continue
        limit = min(at_least + _QUALITY, 1.0) if (CONTRACT, name) in raised else at_least
        if quality < limit:
            text = f"subscription {name} attains {quality:.3f} of its contracted quality {at_least:g}"
            yield (CONTRACT, name), f"{text} (`{_question(name, each)}`, `headgate plan --live`)"


def _question(name: str, subscription: Subscription) -> str:
    """The command that asks for the newest row that a subscription should have; of all rows, if its filter is long.

    A filter in another language than that of streams, or one that needs the values of a context, cannot be asked for.
    """
    plain = subscription.profile == "relational" and not subscription.context
    where = subscription.where if plain and len(subscription.where) <= _LONG else "true"
    return shlex.join(["headgate", "why", name, "--where", where])


def _silent(
    rules: AlertRules, deployment: Deployment, status: Mapping[str, Any], started_ms: int
) -> Iterator[tuple[Key, str]]:
    now_ms = status["time_ms"]
    for site in deployment.sites:
        reported = status["sites"].get(site, {}).get("time_ms")
        silent_ms = now_ms - max(reported or 0, started_ms)
        if silent_ms > rules.silent_s * 1000:
            said = "has never reported" if reported is None else f"has not reported for {age(now_ms - reported)}"
            yield (SILENT, site), f"site {site} {said}"
