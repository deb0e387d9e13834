"""What a subscription that is not made yet would cost whom: who would get less, by the plan with it and without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.model import Subscription
from headgate.planning import PlanResult, Prediction, Sizes
from headgate.planning.covering import Comparisons
from headgate.service.extending import extend_plan
from headgate.service.proposing import granted, prediction_document
from headgate.wire.snapshot import Snapshot

MOST_JUDGED: Final = 20_000
"""Of more subscriptions nobody is told while they write a filter: evaluating the plan takes too long."""
_NAMED: Final = 10
_LESS: Final = 0.0005


@dataclass(frozen=True, slots=True)
class Loser:
    """A subscription that would get less: what the plan gives it before and after."""

    before: Prediction
    after: Prediction

    @property
    def loss(self) -> tuple[float, float]:
        """How much quality it loses, and how many more of its rows."""
        return self.before.quality - self.after.quality, self.after.drop - self.before.drop


@dataclass(frozen=True, slots=True)
class WishCosts:
    """What the plan would grant to the new subscription, and who would get less, the largest losses first."""

    granted: Mapping[str, Any] | None
    losers: tuple[Loser, ...]

    def to_document(self) -> dict[str, Any]:
        """JSON-ready; `losers` names the first ten, `losers_count` says how many there are."""
        named = [
            {
                "subscription": each.before.subscription,
                "quality_before": each.before.quality,
                "quality_after": each.after.quality,
                "drop_before": each.before.drop,
                "drop_after": each.after.drop,
            }
            for each in self.losers[:_NAMED]
        ]
        return {"granted": self.granted, "losers": named, "losers_count": len(self.losers)}


def costs_of(
    snapshot: Snapshot,
    wanted: Subscription,
    share: float | None,
    sizes: Sizes | None,
    before: PlanResult | None,
    known: Comparisons,
) -> WishCosts | None:
    """Who would get less if a subscription that matches a share of the rows were there; None where that is not known.

    `before` is what the plan in force gives. Nobody is moved but the site that does not get the stream yet.
    """
    subscriptions = {**snapshot.deployment.subscriptions, wanted.name: wanted}
    if snapshot.plan is None or before is None or len(subscriptions) > MOST_JUDGED:
        return None
    after: PlanResult | None = None
    with noted(SERVICE, "what a subscription would cost whom cannot be planned", HeadgateError):
        there = replace(snapshot, deployment=replace(snapshot.deployment, subscriptions=subscriptions))
        there = replace(there, plan=extend_plan(there, known, fixed=True) or there.plan)
        if share is not None:
            sizes = sizes or Sizes()
            sizes = replace(sizes, selectivity={**sizes.selectivity, wanted.name: share})
        after = granted(there, sizes, known)
    if after is None:
        return None
    losers = [
        Loser(was, after.subscriptions[name])
        for name, was in before.subscriptions.items()
        if name != wanted.name and name in after.subscriptions and was.stream not in after.unknown_rates
    ]
    losers = sorted((each for each in losers if max(each.loss) > _LESS), key=lambda each: each.loss, reverse=True)
    found = after.subscriptions.get(wanted.name)
    return WishCosts(None if found is None else prediction_document(found, after.unknown_rates), tuple(losers))
