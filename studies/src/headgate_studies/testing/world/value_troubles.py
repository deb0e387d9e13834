"""Damage to values that are read again only after a restart: the pin of a micro-batch, and the sums of the ledger."""

from __future__ import annotations

from headgate.wire.sums import Matched
from headgate_studies.testing.world.commits import Commits
from headgate_studies.testing.world.oracle import TrueCommit
from headgate_studies.testing.world.scenario import Action
from headgate_studies.testing.world.troubles import Troubles


class DamagedValues(Commits, Troubles):
    """Each method with one `Action` is a kind of fault of the scenario; its place is a stream."""

    def _flip_pin(self, action: Action) -> None:
        """A pin cannot be read any more, and its driver begins again: the batch may be pinned to a later version."""
        self._damage(f"driver-{action.place}", self.logs.pin(action.place), action.number)

    def _flip_sums(self, action: Action) -> None:
        """The sums of the ledger cannot be read any more, and their keeper begins again."""
        self._sums_damaged.add(action.place)
        self._damage(f"books-{action.place}", self.logs.ledger(action.place), action.number)

    def _damage(self, service: str, subject: str, seconds: float) -> None:
        for one in (self.services[service], *self.zombies):
            if one.process == service:
                one.kill()
        stored = self.fabric.server.last(self.logs.state, subject)
        if stored is not None:
            self.fabric.server.log(self.logs.state).flip_bit(stored.sequence)
        self._later(seconds, self._revive_service, service)

    def _check_books(self, matched: Matched) -> None:
        """Sums that were damaged are summed up again; where manifests are gone too, they say from where on they are."""
        if matched.stream not in self._sums_damaged:
            super()._check_books(matched)
            return
        self.booked[matched.stream] = min(self.booked.get(matched.stream, 0), matched.head)
        if not matched.lost:
            super()._check_books(matched)
            return
        self.result.sums_lost += 1
        counts = self._counted_behind(matched.stream, matched.lost, matched.head)
        found = {each: matched.matched(each) for each in matched.starts}
        if matched.evaluated != matched.head - matched.lost or any(
            found[each] != counts.get(each, 0) for each in found
        ):
            self._checks.fail(
                f"the books of {matched.stream} at {matched.head}, lost up to {matched.lost}, have {matched.evaluated} "
                f"rows and {found}, the oracle {counts}"
            )
        self.booked[matched.stream] = matched.head

    def _counted_behind(self, stream: str, after: int, upto: int) -> dict[int, int]:
        """By subscription, the rows that commits behind a place matched for it."""
        found: dict[int, int] = {}
        for commit in self.oracle.streams[stream].between(after, upto):
            for identity, count in self._matched_by(commit, stream):
                found[identity] = found.get(identity, 0) + count
        return found

    def _matched_by(self, commit: TrueCommit, stream: str) -> list[tuple[int, int]]:
        snapshot = self.oracle.versions[commit.version]
        return [
            (snapshot.subscription_ids[name], commit.count(snapshot.class_ids[name]))
            for name, each in snapshot.deployment.subscriptions.items()
            if each.stream == stream
        ]
