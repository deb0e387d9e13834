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
from typing import Any

from headgate.feeds.items import DeadLetter, Item
from headgate.feeds.listing import FeedsError
from headgate.feeds.poller import Polled, Poller


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
            document = json.loads(self._state.read_text())
            poller.restore(document["feeds"])
            self.number = int(document["number"])
        except (KeyError, TypeError, ValueError) as error:
            raise FeedsError(
                f"the state {self._state} is broken: {error}", hint="remove it to publish everything again"
            ) from None
        pending = document.get("pending")
        if pending and (self.items / _name(self.number + 1)).exists():
            self.number += 1
            for feed, keys in pending.items():
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
        self._save(poller, None)
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

    def _save(self, poller: Poller, pending: dict[str, list[str]] | None) -> None:
        document: dict[str, Any] = {"number": self.number, "feeds": poller.saved(), "pending": pending}
        hidden = self.directory / ".state.json.part"
        with hidden.open("w", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(self._state)


def _name(number: int) -> str:
    return f"items-{number:09d}.json"
