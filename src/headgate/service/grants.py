"""Grants of users in the catalog: what they ask for is read, checked and narrowed by what they may see.

A grant is kept with its user (`headgate.fabric.registry`). The catalog has every subscription as its owner's grant
leaves it, so that matching, links and inboxes need to know nothing of grants. When a grant changes, the subscriptions
of its user are changed with it, as one revision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from headgate.catalog import Catalog, CatalogBusyError, CatalogError, Edit
from headgate.catalog.granting import GrantError, check_grant, narrow, narrow_or_stop, stream_for
from headgate.catalog.profiles import row_limit_us
from headgate.errors import nearest
from headgate.fabric.registry import ANY, User, UserError
from headgate.filters import FilterError
from headgate.model import Deployment, Grant, Stream, Subscription
from headgate.model.roots import members_of, root_region
from headgate.service.requests import Request
from headgate.service.rights import BY
from headgate.wire.snapshot import Snapshot


def granted_name(stream: Stream) -> str:
    """The name that a stream is granted by: one that is a root of another is granted with the whole."""
    region = root_region(stream)
    return stream.name if region is None else region.of


def grant_of(user: User, stream: Stream) -> Grant:
    """What a user may have of a stream."""
    return user.grant(granted_name(stream))


def deployment_for(deployment: Deployment, user: User) -> Deployment:
    """A deployment as the requests of a user are read: of streams that it was granted, what it may know of."""
    streams = {
        name: stream_for(stream, grant_of(user, stream))
        for name, stream in deployment.streams.items()
        if user.may_subscribe(granted_name(stream))
    }
    return replace(deployment, streams=streams, subscriptions={}, plan=None)


def checked_grant(name: str, grant: Grant, deployment: Deployment) -> Grant:
    """A grant that fits the stream of a name."""
    if name == ANY:
        if grant.whole:
            return grant
        raise UserError("a grant of some rows or columns is of one stream", hint="name the stream")
    streams = deployment.streams
    found = streams.get(name) or next(iter(members_of(streams, name).values()), None)
    if found is None:
        known = sorted({granted_name(each) for each in streams.values()})
        close = nearest(name, known)
        hint = f"did you mean {close!r}?" if close else "streams are " + (", ".join(known) or "none")
        raise UserError(f"no stream {name!r}", hint=hint)
    return check_grant(grant, found, row_limit_us(deployment.options))


class Granting:
    """Narrows subscriptions by the grants of the users that own them; `users` are all users by name."""

    def __init__(self, users: Callable[[], Mapping[str, User]]) -> None:
        self._users = users

    def asker(self, request: Request) -> User | None:
        """The user who makes a request, None for an operator."""
        name = request.get(BY)
        return None if name is None else self._users()[str(name)]

    def seen(self, deployment: Deployment, request: Request) -> Deployment:
        """The deployment as whoever makes a request may know it."""
        user = self.asker(request)
        return deployment if user is None else deployment_for(deployment, user)

    def narrowed(self, wanted: Subscription, before: Snapshot, request: Request) -> Subscription:
        """A subscription as the grant of its owner leaves it.

        What a user asks for itself is refused where the grant leaves nothing of it; what an operator sets for a user
        stops instead.
        """
        known = before.deployment.subscriptions.get(wanted.name)
        owner = self._users().get(wanted.owner or ("" if known is None else known.owner))
        if owner is None or owner.operator:
            return wanted
        stream = before.deployment.streams[wanted.stream]
        grant, limit_us = grant_of(owner, stream), row_limit_us(before.deployment.options)
        if self.asker(request) is None:
            return narrow_or_stop(wanted, stream, grant, limit_us)
        try:
            return narrow(wanted, stream, grant, limit_us)
        except GrantError as error:
            raise UserError(error.message, hint=error.hint) from None

    @contextmanager
    def unquoted(self, names: Iterable[str], snapshot: Snapshot, request: Request) -> Iterator[None]:
        """Keep the filter that is in force out of what its owner is told: it may name what the owner may not see."""
        known = snapshot.deployment.subscriptions
        try:
            yield
        except (FilterError, CatalogError) as error:
            if BY not in request or isinstance(error, CatalogBusyError):
                raise
            if any(name in known and known[name].narrowed is not None for name in names):
                raise UserError(
                    "these values cannot be set together with what you may see", hint="give fewer, or of their type"
                ) from None
            raise

    def settle_all(self, catalog: Catalog) -> None:
        """Settle all grants in the catalog's thread, as at a start: a file may have other subscriptions of users."""
        with catalog.edit("grants") as edit:
            self.settle(edit, edit.snapshot())

    def settle(self, edit: Edit, before: Snapshot) -> int:
        """Bring every subscription to what its owner's grant leaves of it; how many were changed."""
        users, changed = self._users(), 0
        limit_us = row_limit_us(before.deployment.options)
        for each in before.deployment.subscriptions.values():
            owner = users.get(each.owner)
            if owner is None or owner.operator or each.stream not in before.deployment.streams:
                continue
            stream = before.deployment.streams[each.stream]
            grant = grant_of(owner, stream)
            if (each.narrowed.grant if each.narrowed else Grant()) != grant:
                edit.change(narrow_or_stop(edit.subscription(each.name), stream, grant, limit_us))
                changed += 1
        return changed
