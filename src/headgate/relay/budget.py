"""Bandwidth as token buckets: what a site may upload and download, and what a link carries, declared and measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.model import Deployment, parse_bandwidth
from headgate.relay.link_bound import LinkBound, LinkPace

# A bucket holds at most so much of its rate, and a message takes at most so much of a link's.
BURST_S: Final = 0.1
MESSAGE_S: Final = 0.05
# Who has not asked for so long wants nothing now.
ASKED_S: Final = 0.06


@dataclass(slots=True)
class Bucket:
    """A rate with a small burst. A message may be sent while the level is above 0 and is then paid for in full.

    >>> bucket = Bucket(1000.0); bucket.spend(150, now=0.0); bucket.ready(0.04), bucket.ready(0.06)
    (False, True)
    """

    rate_bytes_per_s: float
    level: float = field(init=False)
    updated_s: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.level = self.rate_bytes_per_s * BURST_S

    def _refill(self, now: float) -> None:
        if self.updated_s is not None:
            gained = max(now - self.updated_s, 0.0) * self.rate_bytes_per_s
            self.level = min(self.level + gained, self.rate_bytes_per_s * BURST_S)
        self.updated_s = now

    def ready(self, now: float) -> bool:
        """Whether a message may be sent now."""
        self._refill(now)
        return self.level > 0

    def change(self, rate_bytes_per_s: float) -> None:
        """Have another rate from now on; what was saved or is owed stays, as time."""
        if rate_bytes_per_s != self.rate_bytes_per_s:
            self.level *= rate_bytes_per_s / self.rate_bytes_per_s
            self.rate_bytes_per_s = rate_bytes_per_s

    def spend(self, size: float, now: float) -> None:
        """Pay for a message; less than 0 gives back."""
        self._refill(now)
        self.level -= size


@dataclass(slots=True)
class Turns:
    """Whose turn it is on a download that several parents share: of those who want it now, who had the fewest bytes.

    Who asks again after a pause starts where the others are, so nobody saves up. A parent that stopped asking is waited
    for no longer than `ASKED_S`, which is less than the bucket's burst: the budget is not lost meanwhile.
    """

    had: dict[str, float] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)

    def mine(self, sender: str, slack: float, now: float) -> bool:
        """Ask for the sender; whether it is at most `slack` bytes ahead of the others that ask."""
        others = [self.had[each] for each, when in self.asked.items() if now - when < ASKED_S and each != sender]
        if now - self.asked.get(sender, -ASKED_S) >= ASKED_S:
            self.had[sender] = max(self.had.get(sender, 0.0), min(others, default=0.0))
        self.asked[sender] = now
        return self.had[sender] <= min(others, default=self.had[sender]) + slack


class Budgets:
    """The buckets that a message on a link has to pass: the sender's upload, the link, the receiver's download.

    Relays in one process share one object, so that a site's download is one budget however many parents it has, and
    these take turns by bytes.
    Relays in processes of their own each hold a receiver's whole download against their own traffic only.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._hidden = _hidden(deployment)
        self._buckets: dict[tuple[str, str, str], Bucket | None] = {}
        self._turns: dict[str, Turns] = {}
        self._bounds: dict[tuple[str, str], LinkBound] = {}

    def _bucket(self, kind: str, one: str, other: str, rate: float | None) -> Bucket | None:
        key = (kind, one, other)
        known = self._buckets.get(key)
        if rate is None:
            self._buckets[key] = None
        elif known is None:
            self._buckets[key] = Bucket(rate)
        else:
            known.change(rate)
        return self._buckets[key]

    def update(self, deployment: Deployment) -> None:
        """Take over changed bandwidths; a site that is gone keeps its old ones while rows are owed to it."""
        self._deployment = replace(deployment, sites={**self._deployment.sites, **deployment.sites})
        self._hidden = _hidden(deployment)

    def rate(self, sender: str, receiver: str) -> float | None:
        """The least of the three rates, None when all are unknown."""
        rates = [bucket.rate_bytes_per_s for bucket in self._on_path(sender, receiver)]
        return min(rates) if rates else None

    def _on_path(self, sender: str, receiver: str) -> list[Bucket]:
        sites, links = self._deployment.sites, self._deployment.links
        upload = sites[sender].upload_bytes_per_s
        one, other = sorted((sender, receiver))
        link, bound = links.between(sender, receiver), self._bounds.get((sender, receiver))
        capacity = link.capacity_bytes_per_s
        measured = None if bound is None or bound.rate_bytes_per_s == math.inf else bound.rate_bytes_per_s
        if link.follow and measured is not None:
            capacity = None
        found = (
            self._bucket("upload", sender, "", self._hidden.get(sender) if upload is None else upload),
            self._bucket("download", receiver, "", sites[receiver].download_bytes_per_s),
            self._bucket("link", one, other, capacity),
            self._bucket("bound", sender, receiver, measured),
        )
        return [bucket for bucket in found if bucket is not None]

    def heard(self, sender: str, receiver: str, pace: LinkPace, now: float) -> None:
        """Take in what the receiver of a link has measured: from now on no more is sent than it says can come."""
        link = self._deployment.links.between(sender, receiver)
        bound = self._bounds.setdefault((sender, receiver), LinkBound())
        bound.heard(pace, self._declared(sender, receiver), now, follow=link.follow)

    def _declared(self, sender: str, receiver: str) -> float:
        """The least of what is declared of a path, but for what is only measured; infinite where nothing is."""
        sites = self._deployment.sites
        declared = [self._deployment.links.between(sender, receiver).capacity_bytes_per_s]
        declared += [sites[sender].upload_bytes_per_s, sites[receiver].download_bytes_per_s]
        return min((each for each in declared if each is not None), default=math.inf)

    def bounds(self, sender: str) -> dict[str, float]:
        """By receiver, the bytes a second that a site may send there by what was measured, where that is a limit."""
        return {
            receiver: round(bound.rate_bytes_per_s, 1)
            for (one, receiver), bound in self._bounds.items()
            if one == sender and bound.rate_bytes_per_s < math.inf
        }

    def narrow(self, sender: str, receiver: str, now: float) -> bool:
        """Whether the link or the receiver's download, and not only the sender's upload, holds a message up now."""
        path = self._on_path(sender, receiver)
        upload = self._buckets[("upload", sender, "")]
        return not all(bucket.ready(now) for bucket in path if bucket is not upload)

    def ready(self, sender: str, receiver: str, now: float) -> bool:
        """Whether a message may go now; asking counts as having one."""
        path = self._on_path(sender, receiver)
        download = self._buckets[("download", receiver, "")]
        if not all(bucket.ready(now) for bucket in path if bucket is not download):
            return False
        if download is None:
            return True
        turns = self._turns.setdefault(receiver, Turns())
        mine = turns.mine(sender, download.rate_bytes_per_s * MESSAGE_S, now)
        return mine and download.ready(now)

    def spend(self, sender: str, receiver: str, size: float, now: float) -> None:
        """Pay for a message."""
        for bucket in self._on_path(sender, receiver):
            bucket.spend(size, now)
        self._bounds.setdefault((sender, receiver), LinkBound()).sent(size, now)
        if receiver in self._turns:
            had = self._turns[receiver].had
            had[sender] = had.get(sender, 0.0) + size


def _hidden(deployment: Deployment) -> dict[str, float]:
    """The option `emulate_upload`: what sites of unknown upload really have, which the planner is not told."""
    given = deployment.options.get("emulate_upload", {})
    found = {site: parse_bandwidth(str(rate)) for site, rate in given.items()}
    return {site: rate for site, rate in found.items() if rate is not None}
