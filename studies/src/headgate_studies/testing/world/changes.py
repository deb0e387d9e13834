"""Changes of a simulated deployment's catalog: each is a revision, or is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headgate.protocol.port import FabricError
from headgate.wire.ledger import Tally
from headgate.wire.sealed import write_number
from headgate.wire.snapshot import Snapshot
from headgate_studies.testing.world.deployed import World
from headgate_studies.testing.world.scenario import AS_PLANNED, Action, make_plan, make_subscription, moved


class Changes(World):
    """Puts revisions in force; each method with one `Action` is a kind of change of the scenario."""

    def publish(self, snapshot: Snapshot) -> None:
        """Put a revision in force."""
        self.oracle.versions[snapshot.revision] = snapshot
        if self.locked:
            return
        try:
            self.fabric.publish(self.logs.table(snapshot.revision), snapshot)
            self.fabric.publish(self.logs.head, write_number(snapshot.revision))
        except FabricError:
            return  # the disk is full: the change is refused, and what is in force stays so
        self.snapshot = snapshot

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
        made = replace(made, start="now") if self.scenario.squeeze else made
        ids = {**self.snapshot.subscription_ids, name: identity}
        classes = {**self.snapshot.class_ids, name: self.random.randint(1, 8)}
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
        stored = self.fabric.server.last(self.logs.state, self.logs.ack(self.snapshot.subscription_ids[name]))
        reading = ((Tally.read(stored.data) if stored else None) or Tally(0)).stay
        known[name] = moved(known[name], action.other, reading)
        self._planned(known)

    def _change(self, _: Action) -> None:
        """Another filter: the subscription is of another class from now on."""
        name = self.random.choice(sorted(self.snapshot.deployment.subscriptions))
        classes = {**self.snapshot.class_ids, name: self.random.randint(1, 8)}
        self._revise(dict(self.snapshot.deployment.subscriptions), class_ids=classes)

    def _bandwidth(self, action: Action) -> None:
        deployment = self.snapshot.deployment
        rate = self.random.choice((None, 2e3, 2e4))
        sites = {**deployment.sites, action.place: replace(deployment.sites[action.place], upload_bytes_per_s=rate)}
        snapshot = replace(self.snapshot, deployment=replace(deployment, sites=sites))
        self.publish(replace(snapshot, revision=max(self.oracle.versions) + 1))
