"""Where items go: JSON files in a directory that a Spark source reads, each written once and never changed.

What could not be read stands in the same files as a line that is no row: the stream's job makes it a dead letter of the
stream, with its reason, and the ledger counts it.

A restart repeats nothing: the state names the file that is about to be written, the file appears whole under that name
or not at all, and after that the state says that it is done. Whatever moment a crash picks, the state and the directory
together tell which items are out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from headgate.fabric.place import write_whole
from headgate.feeds.items import DeadLetter, Item
from headgate.feeds.listing import FeedsError
from headgate.feeds.poller import FeedState, Polled, Poller
from headgate.protocol.records import Record
from headgate.wire.frame import WireError
from headgate.wire.record import Count


class SpoolState(Record, frozen=True, kw_only=True):
    """What a restart needs: the number of the last file, the state of each feed, and what the next file holds.

    `pending` has the new keys of each feed in a file that is being written; none where no file is.
    """

    kind_name = "feed-spool"
    number: Count
    feeds: dict[str, FeedState]
    pending: dict[str, list[str]]


class Spool:
    """A directory with `items/` (one row or dead letter a line), `dead/` (dead letters as JSON) and `state.json`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.items, self.dead = directory / "items", directory / "dead"
        for path in (self.items, self.dead):
            path.mkdir(parents=True, exist_ok=True)
        self.number = 0

    @property
    def _state(self) -> Path:
        return self.directory / "state.json"

    def restore(self, poller: Poller) -> None:
        """Continue where a poller stopped, at whatever moment that was."""
        if not self._state.exists():
            return
        try:
            state = SpoolState.decode(self._state.read_bytes())
        except WireError as error:
            raise FeedsError(
                f"the state {self._state} is broken: {error}", hint="remove it to publish everything again"
            ) from None
        poller.restore(state.feeds)
        self.number = state.number
        if state.pending and (self.items / _name(self.number + 1)).exists():
            self.number += 1
            for feed, keys in state.pending.items():
                if feed in poller.states:
                    poller.states[feed].keys.update(dict.fromkeys(keys))

    def publish(self, poller: Poller, polled: Sequence[Polled], now_s: float) -> int:
        """Write what some answers brought, and the state; returns how many items went out."""
        items = [item for part in polled for item in part.items]
        letters = [letter for part in polled for letter in part.dead]
        if letters:
            self._append(letters, now_s)
        if items or letters:
            pending = {part.feed: part.keys for part in polled if part.keys}
            self._save(poller, pending)
            self._write(items, letters, now_s)
            self.number += 1
            for part in polled:
                poller.accept(part)
        self._save(poller, {})
        return len(items)

    def _write(self, items: Sequence[Item], letters: Sequence[DeadLetter], now_s: float) -> None:
        """One file: rows as JSON objects, and dead letters as lines that are none, so that the stream counts them."""
        target = self.items / _name(self.number + 1)
        hidden = self.items / f".{target.name}.part"
        with hidden.open("w", encoding="utf-8") as file:
            for item in items:
                file.write(json.dumps(item.row(now_s), ensure_ascii=False) + "\n")
            for letter in letters:
                file.write(f"dead letter {json.dumps(letter.row(now_s))}\n")
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(target)

    def _append(self, letters: Sequence[DeadLetter], now_s: float) -> None:
        with (self.dead / "dead.jsonl").open("a", encoding="utf-8") as file:
            for letter in letters:
                file.write(json.dumps(letter.row(now_s), ensure_ascii=False) + "\n")

    def _save(self, poller: Poller, pending: dict[str, list[str]]) -> None:
        write_whole(self._state, SpoolState(number=self.number, feeds=poller.states, pending=pending).encode())


def _name(number: int) -> str:
    return f"items-{number:09d}.json"
