"""Taking up outputs where their logs end: one by one, or where there are many, with a few questions for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from headgate.protocol.port import Stored
from headgate.relay.core import Key, key_of
from headgate.relay.routes import Routes, Target
from headgate.relay.state import SiteState
from headgate.wire.frame import WireError
from headgate.wire.logs import Log

_EVERYTHING: Final = 1 << 62
_FEW: Final = 1
_AT_A_TIME: Final = 512


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read of many outputs at once: last messages of inboxes and of decisions, and where readers may be."""

    tails: dict[str, Stored]
    held: dict[str, Stored]
    stays: dict[int, int]


async def restore_outputs(state: SiteState, routes: Routes) -> None:
    """Take up each output where its log ends, before its first block."""
    state.routed.pop(routes.stream, None)
    fresh: dict[Key, Target] = {}
    for target in routes.targets:
        key = key_of(routes.stream, target)
        state.meet(key, target, routes.version)
        if key not in state.core.outputs:
            fresh[key] = target
    inboxes = [key for key in fresh if key.child is None]
    known = await _read_many(state, inboxes) if len(inboxes) > _FEW else None
    for key, target in fresh.items():
        await _restore(state, key, target, known if key.child is None else None)


async def _read_many(state: SiteState, keys: Sequence[Key]) -> _Known:
    """The tails of inboxes and the decisions about them. Only what is there is asked for."""
    logs = state.port.logs
    inbox, site = logs.inbox(state.site), logs.site(state.site)
    tails = await _lasts(state, inbox, logs.inboxes_at(state.site), [state.subject(key) for key in keys])
    held = await _lasts(state, site, logs.held_at(state.site), [logs.held(state.site, key.token) for key in keys])
    newest = await state.tables.newest()
    stays = {newest.subscription_ids[name]: each.stay for name, each in newest.deployment.subscriptions.items()}
    return _Known(tails, held, stays)


async def _lasts(state: SiteState, log: Log, pattern: str, subjects: Sequence[str]) -> dict[str, Stored]:
    await state.insist(partial(state.port.ensure, log))
    there = await state.insist(partial(state.port.subjects, log, pattern))
    wanted = [subject for subject in subjects if subject in there]
    found: dict[str, Stored] = {}
    for start in range(0, len(wanted), _AT_A_TIME):
        found |= await state.insist(partial(state.port.lasts, log, wanted[start : start + _AT_A_TIME]))
    return found


async def _restore(state: SiteState, key: Key, target: Target, known: _Known | None) -> None:
    coverage, sequence = await _tail(state, key, known)
    if coverage is None and key.subscription is not None and await _read_out(state, key, known):
        coverage = _EVERYTHING
    log, subject = state.port.logs.site(state.site), state.port.logs.held(state.site, key.token)
    held = await state.last(log, subject) if known is None else known.held.get(subject)
    output = state.core.restore(key, coverage, sequence)
    stored = None if known is None else known.tails.get(state.subject(key))
    output.tail_bytes = 0 if stored is None else stored.size
    if held is None:
        return
    state.recorded.add(key)
    try:
        block = state.port.codec.block(held.data, target.schema)
    except WireError as error:
        state.put_aside(log, held, error)
        return
    classes = block.classes if key.child is not None else None
    output.restore_held(replace(block, classes=classes), target, state.port.now)


async def _tail(state: SiteState, key: Key, known: _Known | None) -> tuple[int | None, int]:
    """The coverage and the sequence of an output's last message."""
    if known is None:
        return await state.tail(key)
    stored = known.tails.get(state.subject(key))
    if stored is None:
        return None, 0
    try:
        return state.port.codec.coverage(stored.data)[1], stored.sequence
    except WireError:
        return await state.tail(key)


async def _read_out(state: SiteState, key: Key, known: _Known | None) -> bool:
    """Whether a reader has come to the end of an inbox and gone on at another site: nobody will read it again."""
    assert key.subscription is not None
    if known is not None and any(known.stays.get(each, stay + 1) <= stay for each, stay in state.readers(key)):
        return False  # somebody was never moved away from here
    return await state.insist(partial(state.read_out, key))
