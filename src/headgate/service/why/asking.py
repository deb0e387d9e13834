"""Asking by the name of a subscription, which may have a part at each root of its stream."""

from __future__ import annotations

from typing import Final

from headgate.client import Client
from headgate.client.names import known_names
from headgate.service.why.answer import Fate, Question, ask_why

NOTHING: Final = ("unfound", "unread", "forgotten", "unwanted")


async def why_named(client: Client, name: str, question: Question) -> Fate:
    """What became of a row for a subscription; of several roots, the one that knows the row answers."""
    snapshot = await client.snapshot()
    found = [
        await ask_why(client.fabric, client.tables, snapshot, each, question) for each in known_names(name, snapshot)
    ]
    return next((fate for fate in found if fate.fate not in NOTHING), found[0])
