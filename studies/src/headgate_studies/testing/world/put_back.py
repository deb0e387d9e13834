"""Logs that are put back to older copies or exchanged while a deployment stands still, and the start that follows.

What decides whether a start goes on is the product's: `headgate.service.identity.misfits`, with what the service has
noted in the catalog of how far each log was. A start that is refused changes nothing, and the newest logs are put back;
one that is not refused goes on with what it found, and every promise has to hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headgate.fabric import LogState
from headgate.service.identity import IdentitySurvey, misfits
from headgate.virtual.server import ServerBackup
from headgate.wire.identity import DEPLOYMENT_KEY, INCARNATION_KEY, Identity, Incarnation
from headgate.wire.logs import Log
from headgate_studies.testing.world.scenario import Action
from headgate_studies.testing.world.troubles import Troubles

_LATE_S: Final = 1.5  # what was on its way to the server when everything was stopped has come or is lost by then
_PAUSE_S: Final = 0.3
_MARK: Final = "one"


class PutBack(Troubles):
    """Each method with one `Action` is a kind of fault of the scenario; its number says how old the copy is."""

    def _old_inbox(self, action: Action) -> None:
        """The inboxes of a site are put back."""
        self._copy_of([self.logs.inbox(action.place)], action.number)

    def _old_root(self, action: Action) -> None:
        """The root log of a stream is put back."""
        self._copy_of([self.logs.root(action.place)], action.number)

    def _old_state(self, action: Action) -> None:
        """Acknowledgements, pins, sums and reports are put back."""
        self._copy_of([self.logs.state], action.number)

    def _old_server(self, action: Action) -> None:
        """Everything that the server holds is put back, while the catalog is not."""
        self._copy_of([log.log for log in self.fabric.server.logs], action.number)

    def _exchange_logs(self, action: Action) -> None:
        """What the logs of two sites hold is exchanged, as if two disks had been."""
        kind = self.random.choice((self.logs.site, self.logs.inbox))
        one, other = kind(action.place), kind(action.other)
        if None not in (self.fabric.server.info(one), self.fabric.server.info(other)):
            self._later(action.number, self._stand_still, self._exchanged, (one, other))

    def _copy_of(self, logs: Iterable[Log], seconds: float) -> None:
        """Take copies now, and put them back later."""
        server = self.fabric.server
        copies = [(log, server.backup(log)) for log in logs if server.info(log) is not None]
        self._later(seconds, self._stand_still, self._restored, copies)

    def _restored(self, copies: list[tuple[Log, ServerBackup]]) -> None:
        for log, copy in copies:
            self.fabric.server.restore(copy, log)

    def _exchanged(self, logs: tuple[Log, Log]) -> None:
        self.fabric.server.log(logs[0]).exchange(self.fabric.server.log(logs[1]))

    def _stand_still(self, change: object, what: object) -> None:
        """Stop everything, change what is stored once nothing is on its way, and start again."""
        if self._quiet or self._standing:
            return
        self._standing = True
        gateways = [gateway.instance for gateway in self.gateways.values()]
        for each in (*self.relays.values(), *self.services.values(), *self.readers.values(), *self.zombies, *gateways):
            each.kill()
        self._later(_LATE_S, self._start_on, change, what)

    def _start_on(self, change: object, what: object) -> None:
        """Start on what is stored after a change of it, unless that is refused: then on what was there before."""
        if self._quiet:
            self._standing = False
            return
        server = self.fabric.server
        newest, noted = server.backup(), self._noted()
        known = {subject for log in server.logs for subject in log.subjects(">")}
        assert callable(change)
        change(what)
        ends = self._noted()
        if self._refused(noted):
            self.result.told += 1
            server.restore(newest)
        elif any(ends[name] < noted[name] for name in noted):
            self._checks.fail(f"a start goes on with logs that end at {ends}, and were seen at {noted}")
        else:  # outputs may go on from another place
            self._checks.spoilt |= known
        self._later(_PAUSE_S, self._go_on)

    def _noted(self) -> dict[str, int]:
        """What a service notes in the catalog when it stops: how far each log is."""
        return {log.log.name: log.info().last for log in self.fabric.server.logs}

    def _refused(self, noted: dict[str, int]) -> bool:
        """Whether a start is refused by what the catalog knows."""
        streams = self.snapshot.deployment.streams
        marks = {DEPLOYMENT_KEY: _MARK, INCARNATION_KEY: _MARK}
        infos = {log.log.name: log.info() for log in self.fabric.server.logs}
        found = IdentitySurvey(
            self.logs,
            "the catalog",
            max(self.oracle.versions),
            Identity(_MARK, incarnations={stream: Incarnation(_MARK) for stream in streams}),
            noted,
            {name: LogState(name, marks, each.last, each.messages) for name, each in infos.items()},
        )
        return bool(misfits(found))

    def _go_on(self) -> None:
        """Start everything that was there."""
        self._standing = False
        for name in self.services:
            self._revive_service(name)
        for site in self.relays:
            self._revive(site)
        for name in self.snapshot.deployment.subscriptions:
            self._revive_reader(name)
