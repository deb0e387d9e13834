"""From one plan to another in steps that lose nothing: make before break, parents before children.

Members are moved in the order of the new trees, from the root down. When one is moved, everybody above its new place is
in the final place already, so no step closes a loop and every graph in between serves everybody whom both plans serve.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headgate.model import Plan, Tree


@dataclass(frozen=True, slots=True)
class RelayStep:
    """One thing that relays do.

    `serve`: the parent begins to forward the stream to the child, after it and all above it carry what the child needs;
    `switch`: the child takes coverage from the new parent once the old one's has reached the switching point;
    `stop`: the parent ceases to forward to the child, and links above shrink to what is still needed.
    """

    action: str  # serve | switch | stop
    stream: str
    parent: str
    child: str

    def __str__(self) -> str:
        return f"{self.stream}: {self.action} {self.parent} -> {self.child}"


@dataclass(frozen=True, slots=True)
class ParentChange:
    """A member that gets another parent: `before` is None where it joins the tree, `after` where it leaves."""

    stream: str
    site: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.stream}: {self.site} joins below {self.after}"
        if self.after is None:
            return f"{self.stream}: {self.site} leaves, was below {self.before}"
        return f"{self.stream}: {self.site} goes from {self.before} to {self.after}"


def difference(old: Plan, new: Plan) -> tuple[RelayStep, ...]:
    """The steps from one plan to another, stream after stream.

    >>> one = Plan({"s": Tree("s", "a", {"b": "a", "c": "b"})})
    >>> two = Plan({"s": Tree("s", "a", {"c": "a", "b": "c"})})
    >>> print(*difference(one, two), sep="; ")
    s: serve a -> c; s: switch a -> c; s: stop b -> c; s: serve c -> b; s: switch c -> b; s: stop a -> b
    """
    steps: list[RelayStep] = []
    for name in sorted({*old.trees, *new.trees}):
        steps += _steps(name, old.trees.get(name), new.trees.get(name))
    return tuple(steps)


def moves(old: Plan, new: Plan) -> int:
    """How many members have another parent, join or leave."""
    return len(parent_changes(old, new))


def parent_changes(old: Plan, new: Plan) -> tuple[ParentChange, ...]:
    """The members that have another parent, join or leave, by stream and name.

    >>> one = Plan({"s": Tree("s", "a", {"b": "a", "c": "b"})})
    >>> two = Plan({"s": Tree("s", "a", {"b": "a", "c": "a", "d": "c"})})
    >>> print(*parent_changes(one, two), sep="; ")
    s: c goes from b to a; s: d joins below c
    """
    found = []
    for name in sorted({*old.trees, *new.trees}):
        before, after = (plan.trees[name].parents if name in plan.trees else {} for plan in (old, new))
        found += [
            ParentChange(name, site, before.get(site), after.get(site))
            for site in sorted({*before, *after})
            if before.get(site) != after.get(site)
        ]
    return tuple(found)


def _steps(name: str, old: Tree | None, new: Tree | None) -> Iterator[RelayStep]:
    before = dict(old.parents) if old else {}
    if old and new and old.root != new.root:
        before = {}
    order = new.members[1:] if new else ()
    for child in order:
        assert new is not None
        parent, was = new.parents[child], before.get(child)
        if was == parent:
            continue
        yield RelayStep("serve", name, parent, child)
        yield RelayStep("switch", name, parent, child)
        if was is not None:
            yield RelayStep("stop", name, was, child)
    if old:
        gone = [site for site in old.members[1:] if not new or site not in new.parents]
        for child in reversed(gone):
            yield RelayStep("stop", name, old.parents[child], child)
