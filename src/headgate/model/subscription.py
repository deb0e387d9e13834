"""Subscriptions: who wants which rows, columns and resolution of a stream, how well, and what to give up first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headgate.model.grant import Narrowed
from headgate.model.group import GroupRule
from headgate.model.quality import Quality


class Stay(NamedTuple):
    """A time that a subscription spends at one site and in one inbox there. Moving begins the next one.

    Its inbox is its own, or that of another subscription which wants the same rows: `shared` is then the id of that one
    and the number of its stay.
    """

    number: int
    site: str
    shared: tuple[int, int] | None = None

    def inbox_of(self, subscription: int) -> tuple[int, int]:
        """The subscription, and its stay, whose inbox a subscription reads in this stay.

        >>> Stay(2, "oslo").inbox_of(7), Stay(2, "oslo", (3, 0)).inbox_of(7)
        ((7, 2), (3, 0))
        """
        return self.shared or (subscription, self.number)


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription as its owner wrote it.

    `where` is text in the filter language of `profile` (relational SQL by default); `resolution`, `region` and
    `policy` are documents that the grid and reduction packages check and interpret. `select` None means every column.
    `stay` and `left` are the catalog's: how often it has moved, and the stays before that its reader had not finished
    with when it last moved, oldest first. So is `shared`: the id and the stay of the subscription whose inbox it reads
    (see `headgate.model.sharing`), None while it has its own.
    `owner` is the user who made it, whom nobody but an operator can act for; without one it is the operators'.
    `context_from` names a subscription whose rows set the values of `context`. `require` is what it must be kept under
    overload of the stream's job, where that differs from what the stream's admission says. While it is paused, `where`
    takes no row, and `paused` has the filter and the profile that it gets back. `suspended` says why the service has
    paused it, `suspended_class` which class it had: only an operator resumes it as it is, its owner changes its filter.
    `narrowed` is the catalog's too: the owner's grant, where it allows less than was asked for. The other fields are
    then what is in force, and `narrowed` has what was asked for. `every_s` and `at_most_rows_per_s` thin what it gets
    always: one row of each key in an interval, and so many rows a second in all. `average_s` makes one row of each key
    and so much time, with the means of its rows. With `group` it has several readers, its members, and each row goes to
    one of them. With `serves_bytes_per_s` it is the part of a gridded stream that its site owns and answers readers
    from, up to that bandwidth. With `paths` 2 its rows come over two paths, where the plan has them
    (`headgate.model.second_path`).
    """

    name: str
    stream: str
    site: str
    where: str = "true"
    select: tuple[str, ...] | None = None
    profile: str = "relational"
    resolution: Mapping[str, Any] | None = None
    region: Mapping[str, Any] | None = None
    quality: Quality = field(default_factory=Quality)
    policy: Mapping[str, Any] | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    context_from: str | None = None
    weight: float = 1.0
    priority: int = 0
    format: str = "arrow"
    start: str = "now"
    expires_s: float | None = None
    require: Mapping[str, Any] | None = None
    every_s: float | None = None
    at_most_rows_per_s: float | None = None
    serves_bytes_per_s: float | None = None
    group: GroupRule | None = None
    average_s: float | None = None
    paths: int = 1
    stay: int = 0
    left: tuple[Stay, ...] = ()
    shared: tuple[int, int] | None = None
    owner: str = ""
    narrowed: Narrowed | None = None
    paused: tuple[str, str] | None = None
    suspended: str = ""
    suspended_class: int = 0

    @property
    def stays(self) -> tuple[Stay, ...]:
        """Where its rows may lie, oldest first; the last one is where it is delivered now."""
        return (*self.left, self.present)

    @property
    def present(self) -> Stay:
        """Where it is delivered now."""
        return Stay(self.stay, self.site, self.shared)

    def pause(self) -> Subscription:
        """The subscription that takes no rows until it is resumed; it keeps its id, its place and its reader.

        >>> Subscription("s", "wind", "oslo", "speed > 3").pause().resume().where
        'speed > 3'
        """
        if self.paused is not None:
            return self
        return replace(self, where="false", profile="relational", paused=(self.where, self.profile))

    def resume(self) -> Subscription:
        """The subscription with the filter that it had before it was paused."""
        if self.paused is None:
            return self
        where, profile = self.paused
        return replace(self, where=where, profile=profile, paused=None, suspended="", suspended_class=0)

    def suspend(self, why: str, class_id: int) -> Subscription:
        """The subscription paused by the service, with what its owner is told and the class that it had."""
        return replace(self.pause(), suspended=why, suspended_class=class_id)

    def paused_as(self, other: Subscription) -> Subscription:
        """The subscription paused or suspended where the other one is."""
        if other.paused is None:
            return self
        return replace(self.pause(), suspended=other.suspended, suspended_class=other.suspended_class)
