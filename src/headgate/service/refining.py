"""Changing the resolution of a subscription, and what a request for one stands for at the roots of its stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headgate.catalog import Edit
from headgate.catalog.granting import as_asked
from headgate.errors import HeadgateError
from headgate.model import Subscription
from headgate.model.roots import member_name, members_named, root_region
from headgate.service.grants import Granting
from headgate.service.requests import Request, mapping_of, text_of
from headgate.wire.snapshot import Snapshot


def refinement(request: Request, granting: Granting) -> Callable[[Edit, Snapshot], dict[str, Any]]:
    """The change that a request to refine stands for; its answer says what the subscription now lacks of the past.

    With `add` the subscription stays as it is, and what it lacks becomes one more of that name, from the earliest row
    on that the log holds.
    """
    from headgate.grid.resolution import Resolution, parse_resolution

    name, wanted = text_of(request, "name"), mapping_of(request, "resolution")
    add = None if request.get("add") is None else text_of(request, "add")

    def change(edit: Edit, before: Snapshot) -> dict[str, Any]:
        missing: list[dict[str, Any]] = []
        added: list[str] = []
        for each in named(before, name):
            old = as_asked(edit.subscription(each))
            given = parse_resolution({**(old.resolution or {}), **wanted})
            held = Resolution() if old.resolution is None else parse_resolution(old.resolution)
            missing = [part.document for part in given.missing_from(held)]
            if add is None:
                edit.change(granting.narrowed(replace(old, resolution=given.document or None), before, request))
                continue
            for part in _parts(before, old, add, missing):
                edit.subscribe(granting.narrowed(part, before, request))
                added.append(part.name)
        return {"missing": missing, "added": added}

    return change


def _parts(before: Snapshot, old: Subscription, name: str, missing: list[dict[str, Any]]) -> list[Subscription]:
    """What a subscription lacks of a resolution: one subscription, or two for space and time."""
    if not missing:
        raise HeadgateError(f"{old.name!r} lacks nothing of that resolution", hint="name a finer one")
    root = root_region(before.deployment.streams[old.stream])
    names = [name if number == 1 else f"{name}-{number}" for number in range(1, len(missing) + 1)]
    found = [each if root is None else member_name(each, root.root) for each in names]
    return [
        replace(old, name=each, resolution=part or None, start="earliest", stay=0, left=())
        for each, part in zip(found, missing, strict=True)
    ]


def members(snapshot: Snapshot, name: str) -> list[str]:
    """The subscriptions at the roots of a stream that a name stands for."""
    return members_named(snapshot.deployment.streams, snapshot.subscription_ids, name)


def named(snapshot: Snapshot, name: str) -> list[str]:
    """The subscriptions that a name stands for: its own, or those at the roots of its stream."""
    return [name] if name in snapshot.subscription_ids else members(snapshot, name) or [name]
