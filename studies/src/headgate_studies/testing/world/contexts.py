"""Contexts of a simulated deployment that change while it runs, and the pins that say which of them a batch has."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from headgate.protocol.port import FabricError
from headgate.protocol.records import Pin
from headgate.wire.context import encode_context
from headgate.wire.manifest import Manifest
from headgate_studies.testing.world.changes import Changes
from headgate_studies.testing.world.deployed import Tracer
from headgate_studies.testing.world.matched_contexts import (
    FIRST_CLASS,
    TrueUpdate,
    Window,
    watching,
    windows_at,
)
from headgate_studies.testing.world.scenario import Action, Scenario, make_subscription


class ContextChanges(Changes):
    """Changes contexts as the service does; each method with one `Action` is a kind of change of the scenario."""

    def __init__(self, scenario: Scenario, tracer: Tracer | None = None) -> None:
        super().__init__(scenario, tracer)
        self._first: dict[str, dict[int, Window]] = {}
        self._looked_at = 0  # the last version of which the windows are in it

    def _windows(self, stream: str) -> dict[int, Window]:
        """The first window of each class of a stream, by the first version that has it."""
        for version in range(self._looked_at + 1, max(self.oracle.versions) + 1):
            self._looked_at, snapshot = version, self.oracle.versions[version]
            for name, identity in snapshot.class_ids.items():
                if identity >= FIRST_CLASS:
                    each = snapshot.deployment.subscriptions[name]
                    found = self._first.setdefault(each.stream, {})
                    found.setdefault(identity, Window(each.context["low"], each.context["high"]))
        return dict(self._first.get(stream, {}))

    def _now(self, stream: str) -> dict[int, Window]:
        """The window of each class of a stream as the service has it now."""
        found = self._windows(stream)
        for update in self.oracle.updates.get(stream, ()):
            found.update(update.windows)
        return found

    def _mine(self) -> dict[str, int]:
        """The subscriptions that have a context, with their classes."""
        return {name: each for name, each in self.snapshot.class_ids.items() if each >= FIRST_CLASS}

    def _context(self, _: Action) -> None:
        """Some subscribers tell what they want from now on, in one update."""
        known = self._mine()
        streams = {self.snapshot.deployment.subscriptions[name].stream for name in known}
        for stream in sorted(streams):
            classes = sorted({known[name] for name in known if self._reads(name, stream)})
            chosen = self.random.sample(classes, self.random.randint(1, len(classes)))
            self._update(stream, {identity: Window.any(self.random) for identity in chosen})

    def _reads(self, name: str, stream: str) -> bool:
        return self.snapshot.deployment.subscriptions[name].stream == stream

    def _update(self, stream: str, windows: dict[int, Window]) -> bool:
        """Put new windows into the one order of the stream; False where its log takes nothing, and what holds stays."""
        now = self._now(stream)
        changes = {each: (now.get(each, window).context(), window.context()) for each, window in windows.items()}
        try:
            place = self.fabric.publish(self.logs.context(stream), encode_context(changes))
        except FabricError:
            return False
        self.oracle.updates.setdefault(stream, []).append(TrueUpdate(place, tuple(windows.items())))
        return True

    def _fold(self, _: Action) -> None:
        """The catalog takes over what holds now."""
        known, places = dict(self.snapshot.deployment.subscriptions), dict(self.snapshot.contexts)
        for stream, updates in self.oracle.updates.items():
            now = self._now(stream)
            for name, identity in self._mine().items():
                if self._reads(name, stream):
                    known[name] = replace(known[name], context=now[identity].context())
            places[stream] = updates[-1].place
        self._revise(known, contexts=places)

    def _update_and_fold(self, action: Action) -> None:
        """Values change, and the catalog takes them over at once."""
        self._context(action)
        self._fold(action)

    def _watch(self, action: Action) -> None:
        """One more whose filter depends on a context; the log says its values before any version has its class."""
        identity = 1 + max([0, *(each.id for each in self.subscribers.values())], default=0)
        name, window = f"u{identity - 1}", Window.any(self.random)
        made = make_subscription(self.random, name, self.random.choice(sorted(self.sources)), action.place)
        class_id = FIRST_CLASS + identity
        if not self._update(made.stream, {class_id: window}):
            return
        before = self.snapshot.revision
        self._planned(
            {**self.snapshot.deployment.subscriptions, name: watching(replace(made, start="now"), window)},
            subscription_ids={**self.snapshot.subscription_ids, name: identity},
            class_ids={**self.snapshot.class_ids, name: class_id},
        )
        if self.snapshot.revision != before:
            self._start_reader(name)

    def _kill_pinned(self, action: Action) -> None:
        """A driver dies when it has stored its next pin, with its parts staged in part or not at all."""
        self._doomed[action.place] = action.number

    def _appended(self, subject: str, data: Any, sequence: int) -> None:
        """A batch keeps the pin that was stored for it, and is committed under that."""
        if subject.startswith("hg.pin."):
            self._pinned(subject.rsplit(".", 1)[1], Pin.decode(data))
        elif isinstance(data, Manifest) and data.context:
            self._check_pin(data)
        super()._appended(subject, data, sequence)

    def _pinned(self, stream: str, pin: Pin) -> None:
        before = self.oracle.pins.get(stream)
        kept = before is not None and before.batch == pin.batch
        if kept and before is not None and before.version == pin.version and before != pin:
            self._checks.fail(f"batch {pin.batch} of {stream} was pinned as {before} and is pinned again as {pin}")
        self.oracle.pins[stream] = pin
        if stream in self._doomed and not self._quiet:
            within_s = 8 * self.scenario.delay_s * Random(f"doomed {self.scenario.seed} {pin.batch}").random()
            self._later(within_s, self._die, f"driver-{stream}", self._doomed.pop(stream))

    def _die(self, name: str, seconds: float) -> None:
        self.services[name].kill()
        self._later(seconds, self._revive_service, name)

    def _check_pin(self, manifest: Manifest) -> None:
        """What was matched is what the pin says, whoever committed it."""
        pin = self.oracle.pins[manifest.stream]
        mine = (manifest.batch, manifest.context, tuple(manifest.skipped.tolist()), dict(manifest.partly))
        wanted = (pin.batch, pin.context, pin.skipped, dict(pin.left_out.partly))
        if manifest.version == pin.version and mine != wanted:
            self._checks.fail(f"batch {manifest.batch} of {manifest.stream} is committed as {mine}, pinned as {wanted}")

    def _windows_of(self, manifest: Manifest) -> dict[int, Window]:
        """The window of each class that a batch should have been matched with."""
        updates = self.oracle.updates.get(manifest.stream, ())
        return windows_at(self._windows(manifest.stream), updates, manifest)
