"""Subscriptions from their texts in bulk: equal texts are read once.

The stored form of a subscription has no name in it. Thousands of subscriptions mostly have few different ones.
"""

from __future__ import annotations

import json
from typing import Any

from headgate.model import Subscription
from headgate.wire.codec import subscription_fields


class SubscriptionTexts:
    """Reads subscriptions one after the other; what equal texts say is read once.

    >>> texts = SubscriptionTexts()
    >>> texts.read("a", '{"stream":"wind","site":"oslo"}').name, texts.read("b", '{"stream":"wind","site":"oslo"}').name
    ('a', 'b')
    """

    def __init__(self) -> None:
        self._fields: dict[str, dict[str, Any]] = {}

    def read(self, name: str, text: str) -> Subscription:
        """The subscription of a name whose stored form is this text."""
        found = self._fields.get(text)
        if found is None:
            found = self._fields[text] = subscription_fields(json.loads(text))
        return Subscription(name=name, **found)
