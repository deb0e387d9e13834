"""The languages of `where`, by the `profile` of a subscription, and the canonical form that delivery classes share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate.filters import context_types
from headgate.filters.profiles import compile_profile, profile_names
from headgate.model import Schema, Subscription

PROFILES: tuple[str, ...] = profile_names()


@dataclass(frozen=True, slots=True)
class BoundFilter:
    """A filter in canonical text, and the values of the context that it refers to."""

    text: str
    context: Mapping[str, Any]


def read_filter(subscription: Subscription, schema: Schema) -> BoundFilter:
    """The filter of a subscription; a wrong one is refused with its position.

    Context values that the filter does not mention are left out: they cannot change what it matches.
    """
    types = context_types(subscription.context)
    parsed = compile_profile(subscription.profile, subscription.where, schema, types)
    context = {name: subscription.context[name] for name in sorted(parsed.parameters)}
    return BoundFilter(parsed.text, context)
