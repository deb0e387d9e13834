"""Requests that change what a running deployment is: its streams, sites, links and settings; subscriptions that pause.

The changes are those that a plan can be asked about (`headgate plan --what-if`), or parts of a deployment file as a
merge patch. They are checked as the file is, and made as one revision. Who runs sites and streams follows what was
published (`headgate.service.runtime`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from headgate.catalog import CatalogBusyError, Edit
from headgate.catalog.reshape import reshaped
from headgate.fabric import Fabric
from headgate.fabric.registry import UserError
from headgate.model import Deployment, Subscription
from headgate.pipeline.sources import GENERATOR_SCHEMAS, check_source
from headgate.planning.what_if import change as changed_in_words
from headgate.service.extending import missed_constraints
from headgate.service.incarnations import new_incarnations
from headgate.service.requests import Handler, Request, mapping_of, text_of, texts_of
from headgate.service.rights import BY
from headgate.service.roots import refuse_moved_roots
from headgate.tuning.terms import ConstraintError
from headgate.wire.snapshot import Snapshot

Change = Callable[[Edit, Snapshot], dict[str, Any]]
"""A change of the catalog, which was as the snapshot says; returns what its request is answered."""
MakeChange = Callable[[str, Request, Change], Awaitable[dict[str, Any]]]
"""Makes a change, named by a text, for a request, and puts it in force."""


class Reshaper:
    """Answers these requests."""

    def __init__(
        self,
        fabric: Fabric,
        current: Callable[[], Snapshot],
        make: MakeChange,
        extend: Callable[[Edit], None],
        named: Callable[[Snapshot, str], Sequence[str]],
    ) -> None:
        """`current` is what is in force, `extend` plans what a change left without a plan.

        `named` gives the subscriptions that a name stands for.
        """
        self._fabric = fabric
        self._current = current
        self._make = make
        self._extend = extend
        self._named = named

    @property
    def verbs(self) -> dict[str, Handler]:
        """The requests."""
        return {"change": self._change, "pause": self._pause, "resume": self._resume}

    async def _change(self, request: Request) -> dict[str, Any]:
        """Change the deployment by a merge patch of its file (`deployment`), in words (`changes`), or both.

        With `whole`, a stream, a site or a pair that is named is replaced.
        """
        patch = mapping_of(request, "deployment") if "deployment" in request else {}
        words = texts_of(request, "changes") if "changes" in request else []
        whole = request.get("whole") is True
        before = self._current()
        after = await asyncio.to_thread(_after, before.deployment, patch, words, whole=whole)
        await refuse_moved_roots(self._fabric, before.deployment, after)
        new = await new_incarnations(self._fabric, before.identity.incarnations, after.streams)
        for name, stream in after.streams.items():
            if name in new and stream.source.has_input:
                await self._fabric.ensure(self._fabric.logs.input(name))

        def change(edit: Edit, before: Snapshot) -> dict[str, Any]:
            after = _after(before.deployment, patch, words, whole=whole)
            if set(after.streams) - {*before.identity.incarnations, *new}:
                raise CatalogBusyError("streams were changed meanwhile", hint="try again in a moment")
            edit.declare(after, {name: new[name] for name in new if name in after.streams})
            self._extend(edit)
            if "constraints" in patch:
                missed = missed_constraints(edit.snapshot())
                if missed:
                    said = "; ".join(map(str, missed))
                    raise ConstraintError(said, hint="loosen the constraint, or declare more bandwidth")
            return {"changed": [f"{each.kind} {each.name}".strip() for each in edit.difference()]}

        return await self._make(f"change {_title(patch, words)}", request, change)

    async def _pause(self, request: Request) -> dict[str, Any]:
        """Let one subscription (`name`), or several (`names`), take no rows for now."""
        return await self._switched("pause", request, Subscription.pause)

    async def _resume(self, request: Request) -> dict[str, Any]:
        """Let one subscription (`name`), or several (`names`), take rows again."""
        return await self._switched("resume", request, Subscription.resume)

    async def _switched(
        self, what: str, request: Request, switch: Callable[[Subscription], Subscription]
    ) -> dict[str, Any]:
        several = "names" in request
        names = texts_of(request, "names") if several else [text_of(request, "name")]

        def change(edit: Edit, before: Snapshot) -> dict[str, Any]:
            for name in names:
                for each in self._named(before, name):
                    found = edit.subscription(each)
                    if found.suspended and BY in request:
                        raise UserError(f"{each!r} is suspended: {found.suspended}")
                    edit.change(switch(found))
            return {}

        return await self._make(f"{what} {f'{len(names)} subscriptions' if several else names[0]}", request, change)


def _after(deployment: Deployment, patch: Mapping[str, Any], words: Sequence[str], *, whole: bool) -> Deployment:
    found = reshaped(deployment, patch, whole=whole, schemas=GENERATOR_SCHEMAS, check_source=check_source)
    for text in words:
        found = changed_in_words(found, text)
    return found


def _title(patch: Mapping[str, Any], words: Sequence[str]) -> str:
    named = [f"{part} {name}" for part, entries in patch.items() if isinstance(entries, Mapping) for name in entries]
    return "; ".join([*words, *named, *(part for part, each in patch.items() if not isinstance(each, Mapping))])[:200]
