"""What became of a row, as a user may know it: of rows and columns of its grant, and nothing of what is others'.

A row that the user may not have is answered as one that does not exist. What is told from queues and logs that others
share, such as how many rows wait on a link, is left out.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from headgate.catalog.granting import stream_for
from headgate.client import Client
from headgate.client.names import known_names
from headgate.errors import HeadgateError
from headgate.fabric.registry import User
from headgate.filters import parse_filter
from headgate.model import Grant, Stream
from headgate.service.grants import grant_of
from headgate.service.rights import owned_by
from headgate.service.why.answer import Fate, Question, ask_why
from headgate.service.why.asking import telling

_TEXTS: Final = {
    "going-up": "It was published at a site, and is on its way to the root of the stream.",
    "unread": "It was published, and is not read yet.",
    "unmatched": "It does not match the filter",
    "thinned": "It fits, and the resolution leaves it out.",
    "withheld": "It fits, and was not looked at, as the stream's job could not keep up or the filter takes too long.",
    "in-flight": "It matched, and is on its way.",
    "reduced": "It matched, and was given up on the way.",
    "expired": "It matched, and has expired on the way.",
    "waiting": "It matched, and waits in the inbox for its reader.",
    "delivered": "It matched, and its reader has acknowledged it.",
    "settled": "It matched; its reader has acknowledged what came up to it, and some rows of that were given up.",
}
_UNKNOWN: Final = "No such row is known among those that you may see."


async def why_for(client: Client, user: User, name: str, question: Question) -> Fate:
    """What became of a row for a subscription of a user's; `client` is an operator's, and reads what is asked about."""
    snapshot = await client.snapshot()
    mine = owned_by(snapshot, user.name)
    names = [each for each in known_names(name, snapshot) if each in mine]
    found: list[Fate] = []
    for each in names:
        stream = snapshot.deployment.streams[mine[each].stream]
        grant = grant_of(user, stream)
        asked = _within(question, stream, grant)
        found.append(_shown(await ask_why(client.fabric, client.tables, snapshot, each, asked), stream, grant))
    if not found:
        raise HeadgateError(f"no subscription {name!r} of yours", kind="unknown")
    return telling(found)


def _within(question: Question, stream: Stream, grant: Grant) -> Question:
    """The question, of rows of the grant only. A column that is not shown is refused as one that does not exist."""
    seen = stream_for(stream, grant)
    if question.where is not None:
        where = parse_filter(question.where, seen.schema)
        return Question(where=f"({where.text}) AND ({grant.where})")
    if question.key is not None and grant.where != "true":
        raise HeadgateError("you may not see all rows of the stream", hint="ask by `where`, or by `seq`")
    if question.key is not None and not seen.key:
        raise HeadgateError(f"the stream {stream.name!r} has no key", hint="ask by `where`, or by `seq`")
    return question


def _shown(fate: Fate, stream: Stream, grant: Grant) -> Fate:
    if fate.fate not in _TEXTS or fate.row is None or not _granted(fate.row, stream, grant):
        return Fate("unfound", _UNKNOWN, fate.subscription, fate.stream)
    row = {column: value for column, value in fate.row.items() if grant.shows(column)}
    text, facts = _TEXTS[fate.fate], {}
    if fate.fate == "unmatched":
        parts = [each for each in fate.facts.get("false", []) if all(map(grant.shows, each["values"]))]
        facts = {"false": parts}
        text += ": " + "; ".join(f"{each['part']} is not true" for each in parts) if parts else "."
    named = "" if fate.seq is None else f"Row {fate.seq:,}: "
    return Fate(fate.fate, named + text, fate.subscription, fate.stream, fate.seq, row, facts=facts)


def _granted(row: Any, stream: Stream, grant: Grant) -> bool:
    """Whether the user may have a row."""
    batch = pa.RecordBatch.from_pylist([dict(row)], schema=stream.schema.arrow)
    return bool(parse_filter(grant.where, stream.schema).evaluate(batch)[0])
