"""Changes of a simulated deployment's catalog: each is a revision, or is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from headgate.model import Subscription
from headgate.model.sharing import find_inbox, next_stay
from headgate.protocol.port import FabricError
from headgate.wire.ledger import Tally
from headgate.wire.sealed import write_number
from headgate.wire.snapshot import Snapshot, SnapshotChange
from headgate_studies.testing.world.deployed import World
from headgate_studies.testing.world.scenario import AS_PLANNED, Action, another_of, make_plan, make_subscription, moved

_WHOLE: Final = 4
"""Every so many revisions are whole."""


class Changes(World):
    """Puts revisions in force; each method with one `Action` is a kind of change of the scenario."""

    def publish(self, snapshot: Snapshot) -> None:
        """Put a revision in force."""
        self.oracle.versions[snapshot.revision] = snapshot
        if self.locked:
            return
        try:
            self.fabric.publish(self.logs.table(snapshot.revision), self._publication(snapshot))
            self.fabric.publish(self.logs.head, write_number(snapshot.revision))
        except FabricError:
            return  # the disk is full: the change is refused, and what is in force stays so
        self.snapshot = snapshot
        stays = [stay for each in snapshot.deployment.subscriptions.values() for stay in each.stays]
        self._checks.shared.update(self.logs.delivery(stay.site, *stay.shared) for stay in stays if stay.shared)

    def _publication(self, snapshot: Snapshot) -> Snapshot | SnapshotChange:
        """A revision as a change of the one that is in force, and now and then whole."""
        stored = self.fabric.last_or_none(self.logs.tables, self.logs.table(self.snapshot.revision))
        if stored is None or snapshot.revision % _WHOLE == 0 or self.snapshot.revision >= snapshot.revision:
            return snapshot
        return SnapshotChange.between(self.snapshot, snapshot)

    def _revise(self, subscriptions: dict[str, Any], **changes: Any) -> None:
        deployment = replace(self.snapshot.deployment, subscriptions=subscriptions)
        self.publish(replace(self.snapshot, revision=max(self.oracle.versions) + 1, deployment=deployment, **changes))

    def _replan(self, _: Action) -> None:
        self._revise(
            dict(self.snapshot.deployment.subscriptions), plan=make_plan(self.random, self.snapshot.deployment)
        )

    def _planned(self, subscriptions: dict[str, Any], **changes: Any) -> None:
        """A change after which every subscribing site is in its tree."""
        deployment = replace(self.snapshot.deployment, subscriptions=subscriptions)
        self._revise(subscriptions, plan=make_plan(self.random, deployment), **changes)

    def _subscribe(self, action: Action) -> None:
        known = self.snapshot.deployment.subscriptions
        identity = 1 + max([0, *(each.id for each in self.subscribers.values())], default=0)
        name = f"u{identity - 1}"
        stream = self.random.choice(sorted(self.snapshot.deployment.streams))
        made = make_subscription(self.random, name, stream, action.place)
        made = replace(made, start="now") if self.scenario.forgets else made
        ids = {**self.snapshot.subscription_ids, name: identity}
        classes = {**self.snapshot.class_ids, name: self.random.randint(1, 8)}
        if self._checks.shared:
            made = replace(made, shared=self._inbox_for(made, classes[name]))
        before = self.snapshot.revision
        change = self._revise if action.other == AS_PLANNED else self._planned
        change({**known, name: made}, subscription_ids=ids, class_ids=classes)
        if self.snapshot.revision != before:
            self._start_reader(name)

    def _unsubscribe(self, _: Action) -> None:
        known = dict(self.snapshot.deployment.subscriptions)
        if len(known) < 2:
            return
        name = self.random.choice(sorted(known))
        del known[name]
        before = self.snapshot.revision
        self._planned(
            known,
            subscription_ids={each: found for each, found in self.snapshot.subscription_ids.items() if each != name},
            class_ids={each: found for each, found in self.snapshot.class_ids.items() if each != name},
        )
        if self.snapshot.revision != before and name in self.readers:
            self.readers.pop(name).kill()

    def _move(self, action: Action) -> None:
        known = dict(self.snapshot.deployment.subscriptions)
        name = self.random.choice(sorted(known))
        if known[name].site == action.other or len(known[name].left) > 6:
            return
        reading = self._reading(name).stay
        made = moved(known[name], action.other, reading)
        if self._checks.shared:  # elsewhere everybody keeps an inbox of its own
            made = replace(made, shared=self._inbox_for(made, self.snapshot.class_ids[name]))
        known[name] = made
        self._planned(known)

    def _inbox_for(self, wanted: Subscription, class_id: int) -> tuple[int, int] | None:
        """The inbox that a subscription finds where it is from now on."""
        ids, classes = self.snapshot.subscription_ids, self.snapshot.class_ids
        known = self.snapshot.deployment.subscriptions
        return find_inbox(wanted, class_id, [(ids[name], classes[name], known[name]) for name in sorted(known)])

    def _reading(self, name: str) -> Tally:
        """What a subscriber has acknowledged."""
        stored = self.fabric.server.last(self.logs.state, self.logs.ack(self.snapshot.subscription_ids[name]))
        return (Tally.read(stored.data) if stored else None) or Tally(0)

    def _share(self, _: Action) -> None:
        """One more that wants what another one wants, in the same inbox where that can be shared."""
        known = self.snapshot.deployment.subscriptions
        like = self.random.choice(sorted(known))
        identity = 1 + max([0, *(each.id for each in self.subscribers.values())], default=0)
        name, class_id = f"u{identity - 1}", self.snapshot.class_ids[like]
        made = another_of(known[like], name)
        made = replace(made, shared=self._inbox_for(made, class_id))
        before = self.snapshot.revision
        self._revise(
            {**known, name: made},
            subscription_ids={**self.snapshot.subscription_ids, name: identity},
            class_ids={**self.snapshot.class_ids, name: class_id},
        )
        if self.snapshot.revision != before:
            self._start_reader(name)

    def _inhabitants(self) -> dict[tuple[str, int, int], list[str]]:
        """The subscriptions of each inbox, by its site, its owner and the owner's stay."""
        found: dict[tuple[str, int, int], list[str]] = {}
        for name, each in sorted(self.snapshot.deployment.subscriptions.items()):
            owner, stay = each.present.inbox_of(self.snapshot.subscription_ids[name])
            found.setdefault((each.site, owner, stay), []).append(name)
        return found

    def _regroup(self, _: Action) -> None:
        """Those of a shared inbox who are ahead of the others get another one, together."""
        crowded = [names for names in self._inhabitants().values() if len(names) > 1]
        if not crowded:
            return
        names = self.random.choice(crowded)
        places = {name: self._reading(name) for name in names}
        ahead = sorted(names, key=lambda name: -places[name].inbox)[: self.random.randint(1, len(names) - 1)]
        known, shared = dict(self.snapshot.deployment.subscriptions), None
        for name in ahead:
            made = next_stay(known[name], known[name], places[name].stay)
            known[name] = replace(made, shared=shared)
            shared = shared or made.present.inbox_of(self.snapshot.subscription_ids[name])
        self._revise(known)

    def _rejoin(self, _: Action) -> None:
        """One that is alone goes to others who want the same."""
        alone = [names[0] for names in self._inhabitants().values() if len(names) == 1]
        for name in self.random.sample(alone, len(alone)):
            mine = self.snapshot.deployment.subscriptions[name]
            inbox = self._inbox_for(mine, self.snapshot.class_ids[name])
            if inbox is not None and len(mine.left) < 6:
                made = replace(next_stay(mine, mine, self._reading(name).stay), shared=inbox)
                self._revise({**self.snapshot.deployment.subscriptions, name: made})
                return

    def _change(self, _: Action) -> None:
        """Another filter: the subscription is of another class from now on."""
        known = dict(self.snapshot.deployment.subscriptions)
        name = self.random.choice(sorted(known))
        classes = {**self.snapshot.class_ids, name: self.random.randint(1, 8)}
        mine = known[name]
        inbox = (mine.site, *mine.present.inbox_of(self.snapshot.subscription_ids[name]))
        if len(self._inhabitants()[inbox]) > 1 or mine.shared is not None:
            known[name] = next_stay(mine, mine, self._reading(name).stay)
        self._revise(known, class_ids=classes)

    def _bandwidth(self, action: Action) -> None:
        deployment = self.snapshot.deployment
        rate = self.random.choice((None, 2e3, 2e4))
        sites = {**deployment.sites, action.place: replace(deployment.sites[action.place], upload_bytes_per_s=rate)}
        snapshot = replace(self.snapshot, deployment=replace(deployment, sites=sites))
        self.publish(replace(snapshot, revision=max(self.oracle.versions) + 1))
