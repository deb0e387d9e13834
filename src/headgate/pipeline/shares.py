"""Fair shares of matching in the driver of a stream: who subscribes to which class, and what is reported of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.catalog.checks import SHARES
from headgate.matching.fair_shares import EVERYTHING, BatchLoad, FairShares, Portion, Serving
from headgate.matching.indexed_shares import NOBODY, IndexedLoad, IndexedShares, OwnerTable
from headgate.pipeline.staged import Staged
from headgate.protocol.port import LogPort
from headgate.protocol.published import require_snapshot
from headgate.protocol.reports import IdentityShare
from headgate.wire.manifest import classes_withheld
from headgate.wire.snapshot import Snapshot

_MOST_REPORTED: Final = 1_000


class MatchingShares:
    """The fair shares of one stream, with what is known of its subscribers. One per stream, in the driver."""

    def __init__(self, stream: str, period_s: float) -> None:
        self._stream = stream
        self._evaluated = FairShares(period_s)
        self._indexed = IndexedShares(period_s)
        self._owners: tuple[int, dict[int, set[str]], OwnerTable, Mapping[str, float]] | None = None
        self.serving = EVERYTHING

    async def serve(self, port: LogPort, version: int) -> Serving:
        """What a micro-batch of a version does. The catalog is read only while the stream is behind."""
        if self._evaluated.budget_us is None and self._indexed.budget_us is None:
            self.serving = EVERYTHING
            return EVERYTHING
        if self._owners is None or self._owners[0] != version:
            snapshot = await require_snapshot(port, version)
            owners = owners_of(snapshot, self._stream)
            self._owners = version, owners, OwnerTable.of(owners), weights_of(snapshot)
        _, owners, table, weights = self._owners
        self.serving = joined(self._evaluated.serve(owners, weights), self._indexed.serve(table, weights))
        return self.serving

    def learn(self, staged: Staged, seconds: float) -> None:
        """Take in what a micro-batch took."""
        rows, tasks = staged.total("evaluated"), staged.count("partition")
        load = BatchLoad(rows, seconds, tasks, staged.total("shed"), staged.spent())
        self._evaluated.learn(load)
        evaluated_s = sum(spent_s for _, spent_s in load.spent.values())
        index_s = max(0.0, staged.total("match_s") - evaluated_s) + staged.total("class_s")
        if self._indexed.concerned(load, index_s):  # with many classes their counts take long to read
            left_out = classes_withheld(staged.withheld())
            self._indexed.learn(load, IndexedLoad(index_s, *staged.class_counts(), left_out))

    def report(self) -> dict[str, Any]:
        """What the last micro-batch was served by, as a report of the job has it; nothing while all is well."""
        if not self.serving.portions:
            return {}
        portions = self.serving.portions[:_MOST_REPORTED]
        served = sorted(self.serving.parts.items(), key=lambda each: each[1])[:_MOST_REPORTED]
        return {
            "shares": tuple(
                IdentityShare(identity=each.identity, needs_us=round(each.needs_us, 1), gets_us=round(each.gets_us, 1))
                for each in portions
            ),
            "served": {str(identity): round(part, 4) for identity, part in served},
        }


def joined(one: Serving, other: Serving) -> Serving:
    """What is served by two rules, each for classes of its own; what identities need and get is added up."""
    needs: dict[str, tuple[float, float]] = {}
    for each in (*one.portions, *other.portions):
        before = needs.get(each.identity, (0.0, 0.0))
        needs[each.identity] = before[0] + each.needs_us, before[1] + each.gets_us
    portions = sorted((Portion(name, *both) for name, both in needs.items()), key=lambda each: -each.needs_us)
    return Serving({**one.parts, **other.parts}, tuple(portions))


def owners_of(snapshot: Snapshot, stream: str) -> dict[int, set[str]]:
    """By class of a stream, who subscribes to it; subscriptions without an owner are those of nobody in particular."""
    found: dict[int, set[str]] = {}
    for name, each in snapshot.deployment.subscriptions.items():
        if each.stream == stream:
            found.setdefault(snapshot.class_ids[name], set()).add(each.owner or NOBODY)
    return found


def weights_of(snapshot: Snapshot) -> dict[str, float]:
    """The shares that the deployment gives its users; everybody else has 1."""
    given = snapshot.deployment.options.get(SHARES) or {}
    return {str(name): float(share) for name, share in given.items()}
