"""Asking by the name of a subscription, which may have a part at each root of its stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.client import Client
from headgate.client.names import known_names
from headgate.service.why.answer import Fate, Question, ask_why

_LITTLE: Final = ("going-up", "unwanted", "forgotten", "unread", "lost", "unfound")
"""What a part of a subscription answers that does not have the row, from what says most to what says least."""


async def why_named(client: Client, name: str, question: Question) -> Fate:
    """What became of a row for a subscription; of several roots, the one that knows most of the row answers."""
    snapshot = await client.snapshot()
    return telling(
        [await ask_why(client.fabric, client.tables, snapshot, each, question) for each in known_names(name, snapshot)]
    )


def telling(fates: Sequence[Fate]) -> Fate:
    """Of the answers of the parts of a subscription, the one that says most."""
    return min(fates, key=lambda each: _LITTLE.index(each.fate) if each.fate in _LITTLE else -1)
