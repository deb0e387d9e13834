"""Which inbox a subscription reads: its own, or that of another one which wants the same rows (decision 101)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

import sqlalchemy as sa

from headgate.catalog import tables
from headgate.model import Subscription
from headgate.model.sharing import Inhabitant, find_inbox
from headgate.wire.subscription_texts import SubscriptionTexts

_LOOKED_AT: Final = 16
_SAME: Final = 2  # of one text, which all read one inbox: who asks may be one of them
_AT_A_TIME: Final = 500  # databases limit how many values a question may have


class SharedInboxes:
    """SharedInboxes that subscriptions of some delivery classes may share: of each class those of the newest few."""

    def __init__(self, connection: sa.Connection, classes: Collection[int]) -> None:
        self._found: dict[int, list[Inhabitant]] = {}
        self._seen: Counter[tuple[int, str]] = Counter()
        self._texts = SubscriptionTexts()
        wanted = sorted(set(classes))
        for start in range(0, len(wanted), _AT_A_TIME):
            self._look(connection, wanted[start : start + _AT_A_TIME])

    def _look(self, connection: sa.Connection, classes: list[int]) -> None:
        life, content = tables.subscription, tables.subscription_version
        newest = sa.func.row_number().over(partition_by=content.c.class_id, order_by=content.c.subscription_id.desc())
        ranked = (
            sa.select(content.c.subscription_id, content.c.class_id, content.c.body, newest.label("place"))
            .where(content.c.until.is_(None), content.c.class_id.in_(classes))
            .subquery()
        )
        query = (
            sa.select(ranked.c.subscription_id, life.c.name, ranked.c.class_id, ranked.c.body)
            .join(life, life.c.id == ranked.c.subscription_id)
            .where(ranked.c.place <= _LOOKED_AT)
            .order_by(ranked.c.place)
        )
        for identity, name, class_id, body in connection.execute(query):
            self._seen[class_id, body] += 1
            if self._seen[class_id, body] <= _SAME or '"shared":' not in body:
                self._found.setdefault(class_id, []).append((identity, class_id, self._texts.read(name, body)))

    def find(self, subscription: Subscription, class_id: int) -> tuple[int, int] | None:
        """The inbox that a subscription can share, None where it needs its own."""
        return find_inbox(subscription, class_id, self._found.get(class_id, ()))

    def add(self, identity: int, class_id: int, subscription: Subscription) -> None:
        """A subscription with an inbox of its own came."""
        self._found.setdefault(class_id, []).insert(0, (identity, class_id, subscription))


def is_shared(connection: sa.Connection, identity: int, stay: int, class_id: int) -> bool:
    """Whether others read the inbox that a subscription of a class has in a stay."""
    content = tables.subscription_version
    named = f'%"shared":[{identity},{stay}]%'
    query = sa.select(content.c.id).where(
        content.c.until.is_(None), content.c.class_id == class_id, content.c.body.like(named)
    )
    return connection.execute(query.limit(1)).first() is not None
