"""Lines of the ledger of some subscriptions, from the sums that the service has in memory: whatever their number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headgate.fabric import Fabric
from headgate.fabric.client import LASTS
from headgate.service.books import read_tally
from headgate.service.pages import terms_of
from headgate.service.requests import Request, RequestError, texts_of
from headgate.wire.ledger import Tally
from headgate.wire.snapshot import Snapshot
from headgate.wire.sums import Matched


class Lines:
    """Answers requests for lines; `sums` are the root's side of each stream's books."""

    def __init__(
        self, fabric: Fabric, snapshot: Callable[[], Snapshot], sums: Callable[[], Mapping[str, Matched]]
    ) -> None:
        self._fabric = fabric
        self._snapshot = snapshot
        self._sums = sums

    async def answer(self, request: Request) -> dict[str, Any]:
        """The lines of at most 512 subscriptions by name (`names`); `starts` is null where no batch counts yet."""
        names, snapshot = texts_of(request, "names"), self._snapshot()
        if len(names) > LASTS:
            raise RequestError(f"{len(names)} names are asked for", hint=f"ask for at most {LASTS} at a time")
        ids = {name: snapshot.subscription_ids[name] for name in names if name in snapshot.subscription_ids}
        tallies = await self._tallies(list(ids.values()))
        entries = {
            entry.subscription: entry for sums in self._sums().values() for entry in sums.entries(tallies, ids.values())
        }
        return {
            "subscriptions": {
                name: {
                    "id": identity,
                    "class": snapshot.class_ids[name],
                    "site": snapshot.deployment.subscriptions[name].site,
                    "starts": entries[identity].starts if identity in entries else None,
                    **(terms_of(entries[identity]) if identity in entries else {}),
                }
                for name, identity in ids.items()
            }
        }

    async def _tallies(self, ids: list[int]) -> list[Tally]:
        fabric, log = self._fabric, self._fabric.logs.state
        found = await fabric.lasts(log, [fabric.logs.ack(each) for each in ids])
        read = [
            fabric.quarantine.take(log, stored, partial(read_tally, subject=subject))
            for subject, stored in found.items()
        ]
        return [tally for tally in read if tally is not None]
