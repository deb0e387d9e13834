"""Who gets what they asked for, who does not, and which link is the reason: from the status and the planner's report.

Everything here is arithmetic on documents that were read already. A subscription has one state:

- ``difference``: rows of it cannot be accounted for;
- ``below``: its attained quality is below its contract;
- ``less``: it has no contract, and its attained quality is below 1, so that drop or delay pass what it tolerates;
- ``waiting``: rows have waited for its reader for longer than `PATIENCE_MS`;
- ``unmeasured``: nothing was measured of it yet;
- ``well``: it gets what it asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final

from headgate.model import Subscription
from headgate.service.findings import PATIENCE_MS
from headgate.wire.snapshot import Snapshot

STATES: Final = ("difference", "below", "less", "waiting", "unmeasured", "well")
"""Every state, the worst first."""
UNWELL: Final = frozenset({"difference", "below", "less"})
"""States of subscriptions that do not get what they asked for."""
_FULL: Final = 0.9995
_RANK: Final = {state: place for place, state in enumerate(STATES)}

Losses = Callable[[str], float | None]
"""Rows a second that a link, written ``paris->lyon``, gives up now; None where it is not known."""


@dataclass(frozen=True, slots=True)
class Reason:
    """What keeps rows from a subscription: a link of its path, its own inbox, or admission control."""

    kind: str
    text: str
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Attained:
    """What one subscription attains, beside what it contracted."""

    name: str
    stream: str
    site: str
    state: str
    quality: float | None
    at_least: float | None
    drop: float | None
    delay_s: float | None
    matched: int
    delivered: int
    reduced: int
    expired: int
    in_flight: int
    difference: int
    level: int
    reason: Reason | None

    @property
    def ratio(self) -> float | None:
        """The attained part of what was contracted, at most 1; of quality 1 where there is no contract."""
        return None if self.quality is None else min(self.quality / (self.at_least or 1.0), 1.0)

    def to_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "ratio": self.ratio}


def attainment(
    snapshot: Snapshot, status: Mapping[str, Any], planner: Mapping[str, Any], losses: Losses
) -> list[Attained]:
    """Every subscription that is in force, the worst first."""
    measured: Mapping[str, Any] = planner.get("subscriptions", {})
    entries = status["subscriptions"]
    paths: dict[tuple[str, str], list[str]] = {}
    found = []
    for name, subscription in sorted(snapshot.deployment.subscriptions.items()):
        entry = entries.get(name)
        if entry is None:
            continue  # made since the status was read
        key = (subscription.stream, subscription.site)
        if key not in paths:
            paths[key] = path_of(snapshot, *key)
        found.append(_attained(subscription, entry, measured.get(name, {}), status, losses, paths[key]))
    found.sort(key=severity)
    return found


def severity(each: Attained) -> tuple[int, float, str]:
    """What sorts the worst first."""
    ratio = each.ratio
    return _RANK[each.state], 2.0 if ratio is None else ratio, each.name


def path_of(snapshot: Snapshot, stream: str, site: str) -> list[str]:
    """The sites that rows of a stream pass on their way to a site, from the root on."""
    tree = snapshot.plan.trees.get(stream) if snapshot.plan else None
    path = [site]
    while tree is not None and path[0] in tree.parents:
        path.insert(0, tree.parents[path[0]])
    return path


def _attained(
    subscription: Subscription,
    entry: Mapping[str, Any],
    measured: Mapping[str, Any],
    status: Mapping[str, Any],
    losses: Losses,
    path: list[str],
) -> Attained:
    quality, at_least = measured.get("quality"), subscription.quality.at_least
    state = _state(entry, quality, at_least, status["time_ms"])
    unwell = state in UNWELL or state == "waiting"
    return Attained(
        name=subscription.name,
        stream=subscription.stream,
        site=subscription.site,
        state=state,
        quality=quality,
        at_least=at_least,
        drop=measured.get("drop"),
        delay_s=measured.get("delay_s"),
        matched=entry["matched"],
        delivered=entry["delivered"],
        reduced=entry["reduced"],
        expired=entry["expired"],
        in_flight=entry["in_flight"],
        difference=entry["difference"],
        level=entry.get("level", 0),
        reason=_reason(entry, status, losses, path, state) if unwell else None,
    )


def _state(entry: Mapping[str, Any], quality: float | None, at_least: float | None, now_ms: int) -> str:
    if entry["difference"]:
        return "difference"
    if quality is not None and quality < (_FULL if at_least is None else at_least):
        return "less" if at_least is None else "below"
    if entry.get("oldest_ms") is not None and now_ms - entry["oldest_ms"] > PATIENCE_MS:
        return "waiting"
    return "unmeasured" if quality is None else "well"


def _reason(
    entry: Mapping[str, Any], status: Mapping[str, Any], losses: Losses, path: list[str], state: str
) -> Reason | None:
    """What most likely keeps rows back: first who gives up rows now, then where they wait, then who gave some up."""
    links = [f"{a}->{b}" for a, b in pairwise(path)]
    giving = {link: lost for link in links if (lost := losses(link))}
    if giving:
        link = max(giving, key=lambda each: giving[each])
        return Reason("link", f"{_arrow(link)} gives up {giving[link]:,.3g} rows/s for want of bandwidth", link)
    queues = {link: each for link, each in entry.get("queues", {}).items() if each["rows"]}
    if queues:
        link = max(queues, key=lambda each: queues[each]["rows"])
        rows, age_s = queues[link]["rows"], queues[link]["age_s"]
        if link != "inbox":
            return Reason("link", f"{rows:,} rows wait for {_arrow(link)}, the oldest for {age_s:,.1f} s", link)
        return Reason("inbox", f"{rows:,} rows wait at {path[-1]} for room in its inbox")
    if state == "waiting":
        return Reason("reader", f"{entry['in_flight']:,} rows are there and were not acknowledged: does anybody read?")
    if entry.get("withheld"):
        return Reason("admission", f"admission control withheld {entry['withheld']:.1%} of the stream under overload")
    given = {link: status["links"][link]["reduced"] for link in links if link in status["links"]}
    given = {link: rows for link, rows in given.items() if rows}
    if given and entry["reduced"]:
        link = max(given, key=lambda each: given[each])
        return Reason("link", f"{_arrow(link)} gave up {given[link]:,} rows since it started", link)
    return None


def _arrow(link: str) -> str:
    return link.replace("->", " → ")


def counted(found: Iterable[Attained]) -> dict[str, int]:
    """How many subscriptions are in each state."""
    counts = dict.fromkeys(STATES, 0)
    for each in found:
        counts[each.state] += 1
    return counts


def heat(found: Iterable[Attained]) -> list[dict[str, Any]]:
    """The attained part of what was contracted, by stream and site: how many, how many not well, mean and worst."""
    cells: dict[tuple[str, str], list[Attained]] = {}
    for each in found:
        cells.setdefault((each.stream, each.site), []).append(each)
    document = []
    for (stream, site), members in sorted(cells.items()):
        ratios = [ratio for each in members if (ratio := each.ratio) is not None]
        document.append(
            {
                "stream": stream,
                "site": site,
                "count": len(members),
                "unwell": sum(each.state in UNWELL for each in members),
                "worst": min(ratios, default=None),
                "mean": sum(ratios) / len(ratios) if ratios else None,
            }
        )
    return document
