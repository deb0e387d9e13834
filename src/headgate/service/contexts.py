"""Contexts of running subscriptions: updated through the streams' root logs, folded into the catalog now and then.

An update is one message in the root log of the stream: it has a place in the order of what is committed there, costs no
revision of the catalog and changes no table of a relay. The catalog takes the values over before it changes for another
reason, after `FOLD_AFTER` updates but not twice in `FOLD_EVERY_S`, and when the service stops.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from headgate.catalog.engines import read_grid
from headgate.catalog.profiles import check_cost, row_limit_us
from headgate.errors import HeadgateError, nearest
from headgate.fabric import Fabric
from headgate.filters.limits import check_context, is_number
from headgate.model import Deployment
from headgate.pipeline.classes import template_of
from headgate.service.clerk import Clerk
from headgate.wire.context import decode_context, encode_context
from headgate.wire.snapshot import Snapshot

FOLD_AFTER: Final = 10_000
FOLD_EVERY_S: Final = 10.0
_CLASSES: Final = 2_000
_SHORT: Final = 64
"""Values of a list that no filter costs much with."""

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pending:
    """What the catalog has not taken over yet: values by subscription, and how far each stream's log was read."""

    contexts: Mapping[str, Values]
    places: Mapping[str, int]
    updates: int


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | tuple) else 0


class Contexts:
    """The values that hold now. `snapshot` is the catalog as it was last read."""

    def __init__(self, fabric: Fabric, clerk: Clerk) -> None:
        self._fabric = fabric
        self._clerk = clerk
        self.snapshot = Snapshot(0, Deployment({}, {}))
        self._changed: dict[str, Values] = {}
        self._places: dict[str, int] = {}
        self._updates = 0
        self._folded_s = -FOLD_EVERY_S
        self._anew = False
        self._owners: Counter[int] = Counter()
        self._owners_of: Snapshot | None = None

    async def recover(self) -> None:
        """Read what was updated since the catalog last took the values over, and let it take them over."""
        self.snapshot = await self._clerk.run(lambda catalog: catalog.snapshot())
        logs = self._fabric.logs
        for stream in self.snapshot.deployment.streams:
            place = self.snapshot.contexts.get(stream, 0)
            info = await self._fabric.info(logs.root(stream))
            last = 0 if info is None else info.state.last_seq
            if last < place:  # the root log was made anew: its places start again
                place = self._places[stream] = 0
                self._anew = True
            names = {
                self.snapshot.class_ids[name]: name
                for name, each in self.snapshot.deployment.subscriptions.items()
                if each.stream == stream
            }
            while place < last and (batch := await self._fabric.read(logs.root(stream), logs.context(stream), place)):
                for stored in batch:
                    changes = self._fabric.quarantine.take(logs.root(stream), stored, decode_context)
                    for identity, (_, now) in (changes or {}).items():
                        if identity in names:
                            self._changed[names[identity]] = now
                place = self._places[stream] = batch[-1].sequence
        await self.fold()

    async def fold(self) -> None:
        """Let the catalog take over every value that holds."""
        pending = self.pending()
        if pending.places:
            await self._clerk.run(lambda catalog: catalog.fold_contexts(pending.contexts, pending.places))
            self.folded(pending)

    def pending(self) -> Pending:
        """What the catalog should take over with its next change."""
        if not self._changed and not self._anew:
            return Pending({}, {}, 0)
        return Pending(dict(self._changed), dict(self._places), self._updates)

    def folded(self, done: Pending) -> None:
        """The catalog has taken these over: what came since is still to come."""
        if not done.places:
            return
        self._anew = False
        self._changed = {name: each for name, each in self._changed.items() if done.contexts.get(name) is not each}
        self._places = {stream: place for stream, place in self._places.items() if done.places.get(stream) != place}
        self._updates -= done.updates
        self._folded_s = time.monotonic()
        deployment = self.snapshot.deployment
        taken = {
            name: replace(each, context=done.contexts[name]) if name in done.contexts else each
            for name, each in deployment.subscriptions.items()
        }
        self.snapshot = replace(self.snapshot, deployment=replace(deployment, subscriptions=taken))

    def current(self, name: str) -> Values:
        """All values of a subscription."""
        return self._changed.get(name, self.snapshot.deployment.subscriptions[name].context)

    async def follow(self, after: Snapshot) -> None:
        """The catalog has changed to this: the log says the values of every class that is new or got others.

        Call it before the snapshot is published. A class that comes back under its old id may have updates in the log
        from its life before; what is appended here comes after them, and before any batch that has the class again.
        """
        before, self.snapshot = self.snapshot, after
        changes: dict[str, dict[int, tuple[Values, Values]]] = {}
        for name, subscription in after.deployment.subscriptions.items():
            old, identity = before.deployment.subscriptions.get(name), after.class_ids[name]
            known = old is not None and before.class_ids[name] == identity
            if not subscription.context or (known and old is not None and old.context == subscription.context):
                continue
            was = old.context if known and old is not None else subscription.context
            changes.setdefault(subscription.stream, {})[identity] = (was, subscription.context)
        for stream, found in changes.items():
            await self._append(stream, found)

    async def set(self, requests: Mapping[str, Values]) -> int | None:
        """Set values of subscriptions; the place in the order from which all hold, None when the catalog has to change.

        It has to where values of another type change how a filter is read, and where the class is not its own.
        """
        changes: dict[str, dict[int, tuple[Values, Values]]] = {}
        news: dict[str, Values] = {}
        for name, values in requests.items():
            numbers = self._other_numbers(name, values)
            if not numbers:
                self._check(name, values)
            old = self.current(name)
            news[name] = {**old, **values}
            if not numbers:
                self._check_growth(name, old, news[name])
            if not self._own_class(name) or not (numbers or self._same_template(name, old, news[name])):
                return None
            subscription = self.snapshot.deployment.subscriptions[name]
            if news[name] != old:
                changes.setdefault(subscription.stream, {})[self.snapshot.class_ids[name]] = (old, news[name])
        place = self.place(requests)
        for stream, found in changes.items():
            place = await self._append(stream, found)
        self._changed.update({name: values for name, values in news.items() if changes})
        return place

    async def _append(self, stream: str, changes: Mapping[int, tuple[Values, Values]]) -> int:
        place = 0
        items = list(changes.items())
        for start in range(0, len(items), _CLASSES):
            update = encode_context(dict(items[start : start + _CLASSES]))
            place = await self._fabric.publish(self._fabric.logs.context(stream), update)
        self._places[stream] = place
        self._updates += len(items)
        return place

    def place(self, names: Iterable[str]) -> int:
        """The last place that an update has in the logs of the streams of some subscriptions."""
        known = self.snapshot.deployment.subscriptions
        streams = {known[name].stream for name in names if name in known}
        return max((max(self.snapshot.contexts.get(each, 0), self._places.get(each, 0)) for each in streams), default=0)

    @property
    def due(self) -> bool:
        """Whether the catalog should take the values over."""
        return self._updates >= FOLD_AFTER and time.monotonic() >= self._folded_s + FOLD_EVERY_S

    def _other_numbers(self, name: str, values: Values) -> bool:
        """Whether all that changes are numbers and truth values that stay of their type: there is no more to check."""
        if name not in self.snapshot.deployment.subscriptions:
            return False
        old = self.current(name)
        return all(key in old and type(value) is type(old[key]) and is_number(value) for key, value in values.items())

    def _check(self, name: str, values: Values) -> None:
        known = self.snapshot.deployment.subscriptions
        if name not in known:
            close = nearest(name, known)
            hint = f"did you mean {close!r}?" if close else "there are " + (", ".join(sorted(known)) or "none")
            raise HeadgateError(f"unknown subscription {name!r}", hint=hint, kind="unknown")
        subscription = known[name]
        grid = read_grid(subscription, self.snapshot.deployment.streams[subscription.stream])
        names = sorted({*subscription.context, *(grid.context if grid else ())})
        for strange in sorted(values.keys() - set(names)):
            close = nearest(strange, names)
            hint = f"did you mean {close!r}?" if close else "its values are " + (", ".join(names) or "none")
            raise HeadgateError(f"nothing of {name!r} refers to a context value {strange!r}", hint=hint)
        check_context({**self.current(name), **values})
        try:
            json.dumps(values, allow_nan=False)
            encode_context({0: ({}, values)})
        except (TypeError, ValueError, OverflowError):
            raise HeadgateError(
                f"the context of {name!r} has a value that cannot be stored",
                hint="use finite numbers, text, truth values and lists of them",
            ) from None

    def _check_growth(self, name: str, old: Values, new: Values) -> None:
        """Refuse lists that have become so long that evaluating the filter with them costs too much."""
        if any(_length(value) > max(_SHORT, _length(old.get(key))) for key, value in new.items()):
            deployment = self.snapshot.deployment
            changed = replace(deployment.subscriptions[name], context=dict(new))
            check_cost(changed, deployment.streams[changed.stream].schema, row_limit_us(deployment.options))

    def _own_class(self, name: str) -> bool:
        """Whether nobody else has the class of a subscription."""
        identity = self.snapshot.class_ids[name]
        if self._owners_of is not self.snapshot:
            self._owners, self._owners_of = Counter(self.snapshot.class_ids.values()), self.snapshot
        return self._owners[identity] == 1

    def _same_template(self, name: str, old: Values, new: Values) -> bool:
        """Whether a subscription's filter is read in the same way with other values."""
        subscription = self.snapshot.deployment.subscriptions[name]
        return template_of(replace(subscription, context=old)) == template_of(replace(subscription, context=new))
