"""The purger of old versions of the catalog in virtual time, and the check that it deletes none that somebody names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from headgate.protocol.records import Pin
from headgate.relay.machine import RelayMachine
from headgate.service.purging import PurgerMachine, TableRules
from headgate.service.tables_room import TablesRoom
from headgate.wire.block import Block
from headgate.wire.ledger import Tally
from headgate.wire.logs import Log
from headgate.wire.manifest import Manifest
from headgate.wire.snapshot import SnapshotChange
from headgate_studies.testing.world.codec import PlainCodec
from headgate_studies.testing.world.deployed import World

RULES: Final = TableRules(keep=2, every_s=2.0, start=0.0, rest=0.0, ended_s=5.0)
SQUEEZED: Final = replace(RULES, squeeze=0.0)


class OldTables(World):
    """Deletes old versions as the service does."""

    def _start_purger(self) -> None:
        rules = SQUEEZED if self.scenario.squeeze else RULES
        machine = PurgerMachine(TablesRoom(self.logs.tables_bytes), rules, self.logs, codec=PlainCodec())
        self._start_service("tables", machine, self._start_purger)

    def _purging(self, log: Log, subject: str) -> None:
        """Something is about to be deleted: of tables only what nobody names."""
        version = subject.rsplit(".", 1)[1]
        if log.name == self.logs.tables.name and version.isdigit():
            self.result.versions_deleted += 1
            for name in self._names(int(version)):
                self._checks.fail(f"version {version} of the catalog is deleted, and {name} names it")
            for stored in self.fabric.server.read(log, self.logs.any_table, 0, limit=1 << 20):
                if isinstance(stored.data, SnapshotChange) and stored.data.base == int(version):
                    self._checks.fail(f"version {version} of the catalog is deleted, and {stored.subject} changes it")

    def _names(self, version: int) -> Iterator[str]:
        """Everything that still needs a version, by looking everywhere."""
        server, logs = self.fabric.server, self.logs
        if version == self.snapshot.revision:
            yield "it is in force and"
        for stream, source in self.sources.items():
            stored = server.last(logs.state, logs.pin(stream))
            pin = None if stored is None else Pin.decode(stored.data)
            if pin is not None and pin.version == version and pin.batch >= source.ended:
                yield f"the batch {pin.batch} of {stream}"
            for message in server.read(logs.root(stream), logs.commit(stream), 0, limit=1 << 20):
                if isinstance(message.data, Manifest) and message.data.version == version:
                    yield f"commit {message.sequence} of {stream}"
        for site, relay in self.relays.items():
            assert isinstance(relay.machine, RelayMachine)
            for key, output in relay.machine.state.core.outputs.items() if relay.alive else ():
                if any(each.block.version == version for each in output.queue):
                    yield f"the queue of {key.token} at {site}"
        for name, subscription in self.snapshot.deployment.subscriptions.items():
            identity = self.snapshot.subscription_ids[name]
            stored = server.last(logs.state, logs.ack(identity))
            tally = (None if stored is None else Tally.read(stored.data)) or Tally(identity)
            for stay in subscription.stays:
                inbox = logs.inbox(stay.site)
                if server.info(inbox) is None or stay.number < tally.stay:
                    continue
                after = tally.place(stay.number)
                for message in server.read(
                    inbox, logs.delivery(stay.site, identity, stay.number), after, limit=1 << 20
                ):
                    if isinstance(message.data, Block) and message.data.version == version:
                        yield f"message {message.sequence} in the inbox of {name}"
