"""The languages of `where`, by the `profile` of a subscription, and the canonical form that delivery classes share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.filters import FilterCost, bind, context_types, filter_cost, parse_placed
from headgate.filters.cost import ROW_US, check_row_cost, evaluation
from headgate.filters.filter import Places
from headgate.filters.profiles import Profile, compile_profile, profile_names, relational
from headgate.model import Schema, Subscription, parse_duration

PROFILES: tuple[str, ...] = profile_names()
_MOST_COSTS = 100_000
_SHORT = 500  # characters of a filter of which many are kept as they were read
_costs: dict[tuple[str, str, Schema, str], float] = {}
ROW_COST = "filter_row_cost"
"""The option of a deployment that says what evaluating a filter may cost for each row, as a duration."""


@dataclass(frozen=True, slots=True)
class BoundFilter:
    """A filter in canonical text, and the values of the context that it refers to."""

    text: str
    context: Mapping[str, Any]


def read_filter(subscription: Subscription, schema: Schema, limit_us: float = math.inf) -> BoundFilter:
    """The filter of a subscription; a wrong one, or one that costs more than the limit, is refused with its position.

    Context values that the filter does not mention are left out: they cannot change what it matches.
    """
    parsed, _ = _profile(subscription, schema, limit_us)
    context = {name: subscription.context[name] for name in sorted(parsed.parameters)}
    return BoundFilter(parsed.text, context)


def cost_of(subscription: Subscription, schema: Schema) -> FilterCost | None:
    """What the filter of a subscription costs with the values of its context; None for a type without an estimate."""
    where = relational(_profile(subscription, schema, math.inf)[0])
    return None if where is None else filter_cost(bind(where, subscription.context).expr, subscription.context)


def row_cost_us(subscription: Subscription, schema: Schema) -> float:
    """What evaluating a filter takes for a row by estimate; for a type without one, what any filter may take."""
    key = (subscription.profile, subscription.where, schema, repr(sorted(subscription.context.items())))
    if key not in _costs:
        found = cost_of(subscription, schema)
        if len(_costs) >= _MOST_COSTS:
            _costs.clear()
        _costs[key] = ROW_US if found is None else found.row_us
    return _costs[key]


def check_cost(subscription: Subscription, schema: Schema, limit_us: float = ROW_US) -> None:
    """Refuse a filter that cannot be read, or costs more than the limit for each row, with the place in its text."""
    if subscription.context or len(subscription.where) > _SHORT:
        _check_cost(subscription, schema, limit_us)
    else:
        _check_constant(subscription.profile, subscription.where, schema, limit_us)


def _check_cost(subscription: Subscription, schema: Schema, limit_us: float) -> None:
    profile, places = _profile(subscription, schema, limit_us)
    where, context = relational(profile), subscription.context
    if where is not None:
        bound = bind(where, context) if where.parameters else where
        check_row_cost(evaluation(bound.expr, context), limit_us, subscription.where, places, context)


def row_limit_us(options: Mapping[str, Any]) -> float:
    """What a deployment's options allow a filter to cost for each row; an option that is no duration is left out."""
    try:
        return parse_duration(str(options[ROW_COST])) * 1e6 if ROW_COST in options else ROW_US
    except HeadgateError:
        return ROW_US


def _profile(subscription: Subscription, schema: Schema, limit_us: float) -> tuple[Profile, Places]:
    types = tuple(sorted(context_types(subscription.context).items()))
    cached = _compiled_short if len(subscription.where) <= _SHORT else _compiled
    return cached(subscription.profile, subscription.where, schema, types, limit_us)


def _compile(
    profile: str, where: str, schema: Schema, types: tuple[tuple[str, pa.DataType], ...], limit_us: float
) -> tuple[Profile, Places]:
    """A subscription is checked, classed and put in force one after the other, each of which reads its filter."""
    if profile == "relational":
        return parse_placed(where, schema, dict(types), limit_us)
    return compile_profile(profile, where, schema, dict(types)), {}


_compiled = lru_cache(maxsize=4)(_compile)
# Thousands of subscriptions that are made together mostly share their filters, and these are short.
_compiled_short = lru_cache(maxsize=4096)(_compile)


@lru_cache(maxsize=4096)
def _check_constant(profile: str, where: str, schema: Schema, limit_us: float) -> None:
    """The same for a short filter without a context; what is refused is looked at again each time."""
    _check_cost(Subscription("", "", "", where, profile=profile), schema, limit_us)


def forget_filters() -> None:
    """Forget the filters that were read last: those who measure how long reading takes need that."""
    for cached in (_compiled, _compiled_short, _check_constant):
        cached.cache_clear()
