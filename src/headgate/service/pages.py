"""Some of many subscriptions: which ones a status shows, and sums over all of them by site and by delivery class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.wire.snapshot import Snapshot
from headgate.wire.sums import Entry

PAGE: Final = 1_000
"""How many subscriptions are shown at a time unless somebody says otherwise."""
_CLASSES: Final = 20
_TERMS: Final = ("matched", "delivered", "reduced", "expired", "in_flight", "difference")


@dataclass(frozen=True, slots=True)
class Page:
    """Which subscriptions to show: of a site, stream or class, in the order of their names, from one name on."""

    names: tuple[str, ...] = ()
    site: str | None = None
    stream: str | None = None
    class_id: int | None = None
    after: str = ""
    limit: int = PAGE

    @classmethod
    def read(cls, only: Mapping[str, str], after: str = "", limit: int = PAGE) -> Page:
        """A page of subscriptions by `site`, `stream`, `class` or `name`.

        >>> Page.read({"site": "oslo", "class": "7"}, limit=10)
        Page(names=(), site='oslo', stream=None, class_id=7, after='', limit=10)
        """
        strange = sorted(only.keys() - {"site", "stream", "class", "name"})
        if strange:
            raise HeadgateError(f"subscriptions have no {strange[0]!r}", hint="name site, stream, class or name")
        if not only.get("class", "0").isdigit():
            raise HeadgateError(
                f"{only['class']!r} is no class", hint="a class is a number, as `headgate status` shows"
            )
        names = (only["name"],) if "name" in only else ()
        class_id = int(only["class"]) if "class" in only else None
        return cls(names, only.get("site"), only.get("stream"), class_id, after, limit)

    def choose(self, snapshot: Snapshot) -> tuple[list[str], str | None]:
        """The names on this page, and the one to go on after; None where it is the last page."""
        known = snapshot.deployment.subscriptions
        if self.names:
            return [name for name in self.names if name in known], None
        found = [name for name in known if name > self.after and self._takes(snapshot, name)]
        if not self.after and len(found) <= self.limit:
            return found, None  # as the catalog has them
        found.sort()
        shown = found[: self.limit]
        return shown, shown[-1] if len(found) > len(shown) and shown else None

    def _takes(self, snapshot: Snapshot, name: str) -> bool:
        each = snapshot.deployment.subscriptions[name]
        return (
            (self.site is None or each.site == self.site)
            and (self.stream is None or each.stream == self.stream)
            and (self.class_id is None or snapshot.class_ids[name] == self.class_id)
        )


def terms_of(entry: Entry) -> dict[str, int]:
    """The terms of a line of the ledger as numbers."""
    found = {term: getattr(entry, term) for term in _TERMS if term != "reduced"}
    return {**found, "reduced": sum(entry.reduced.values())}


def group_sums(snapshot: Snapshot, entries: Mapping[int, Entry]) -> dict[str, Any]:
    """Sums of the ledger by site, and by class where most is in flight; `subscriptions` says of how many."""
    sites: dict[str, dict[str, int]] = {}
    classes: dict[tuple[str, str, int], dict[str, int]] = {}
    for name, each in snapshot.deployment.subscriptions.items():
        entry = entries.get(snapshot.subscription_ids[name])
        terms = {} if entry is None else terms_of(entry)
        site = sites.setdefault(each.site, _none())
        group = classes.setdefault((each.stream, each.site, snapshot.class_ids[name]), _none())
        for sums in (site, group):
            sums["subscriptions"] += 1
            for term, value in terms.items():
                sums[term] += value
    first = sorted(classes.items(), key=lambda each: (-abs(each[1]["difference"]), -each[1]["in_flight"], each[0]))
    return {
        "sites": sites,
        "classes": [
            {"stream": stream, "site": site, "class": class_id, **sums}
            for (stream, site, class_id), sums in first[:_CLASSES]
        ],
        "class_count": len(classes),
    }


def _none() -> dict[str, int]:
    return dict.fromkeys(("subscriptions", *_TERMS), 0)
