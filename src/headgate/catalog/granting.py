"""What a grant leaves of a stream and of a subscription to it.

A subscription in force asks for what its owner asked for, intersected with the owner's grant by the algebra of filters.
Whoever may not see a column is treated as if the stream did not have it: a filter that names it is refused as one that
names a column that does not exist, with the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headgate.catalog.checks import Flaw, check_subscription
from headgate.catalog.engines import check_grid
from headgate.catalog.profiles import check_cost
from headgate.errors import HeadgateError, nearest
from headgate.filters import FilterError, context_types, covers, intersection, parse_filter
from headgate.filters.cost import ROW_US
from headgate.filters.profiles import compile_profile, relational
from headgate.model import Grant, Narrowed, Stream, Subscription
from headgate.model.stream import DERIVE, DERIVE_STATE

_GRID: Final = ("grid", "gridding")
_UNSAID: Final = ("gridding", DERIVE, DERIVE_STATE)
_ASKED: Final = ("where", "profile", "select", "policy", "region", "resolution")


class GrantError(HeadgateError):
    """A grant that does not fit its stream, or a subscription that a grant leaves nothing of."""


def check_grant(grant: Grant, stream: Stream, limit_us: float = ROW_US) -> Grant:
    """A grant in its canonical form; one that names what the stream does not have, or costs too much, is refused."""
    names = stream.schema.names
    for name in grant.columns or ():
        if name not in names:
            close = nearest(name, names)
            hint = f"did you mean {close!r}?" if close else "columns are " + ", ".join(names)
            raise GrantError(f"stream {stream.name!r} has no column {name!r}", hint=hint)
    if grant.columns is not None and not grant.columns:
        raise GrantError("a grant without columns shows nothing", hint="take the grant away instead")
    try:
        found = parse_filter(grant.where, stream.schema, row_us=limit_us)
    except FilterError as error:
        raise GrantError(f"the filter of the grant: {error.message}", hint=error.hint) from error
    columns = None if grant.columns is None or set(grant.columns) >= set(names) else tuple(dict.fromkeys(grant.columns))
    return Grant("true" if found.text == "TRUE" else found.text, columns)


def allows(grant: Grant, other: Grant, stream: Stream) -> bool:
    """Whether everything that the other grant shows may be shown under this one too; a yes is never wrong."""
    if grant in (other, Grant()):
        return True
    if grant.columns is not None and (other.columns is None or not set(other.columns) <= set(grant.columns)):
        return False
    try:
        return covers(parse_filter(grant.where, stream.schema), parse_filter(other.where, stream.schema))
    except FilterError:
        return False


def stream_for(stream: Stream, grant: Grant) -> Stream:
    """A stream as somebody with a grant may know it.

    Its grid is known only with all columns that rows are told apart, timed and placed by: a resolution would otherwise
    tell something of those that are not.
    """
    if grant.columns is None:
        return stream
    names = [name for name in stream.schema.names if grant.shows(name)]
    timed, keyed = stream.event_time is None or grant.shows(stream.event_time), all(map(grant.shows, stream.key))
    options = {name: value for name, value in stream.options.items() if name not in _UNSAID}
    found = replace(
        stream,
        schema=stream.schema.select(names),
        key=stream.key if keyed else (),
        event_time=stream.event_time if timed else None,
        options=options,
    )
    if timed and keyed and _shows_its_axes(found):
        return found
    return replace(found, options={name: value for name, value in options.items() if name not in _GRID})


def _shows_its_axes(stream: Stream) -> bool:
    try:
        check_grid(stream)
    except HeadgateError:
        return False
    return True


def as_asked(subscription: Subscription) -> Subscription:
    """A subscription as its owner asked for it, paused where it is."""
    if subscription.narrowed is None:
        return subscription
    asked = replace(subscription.resume(), narrowed=None, **subscription.narrowed.asked)
    return asked.paused_as(subscription)


def narrow(subscription: Subscription, stream: Stream, grant: Grant, limit_us: float = ROW_US) -> Subscription:
    """What a grant leaves of a subscription, which may have been narrowed before.

    Raises:
        GrantError: It names something that the grant does not show, or cannot be combined with the grant's rows. The
            message says nothing about the grant.
    """
    asked = as_asked(subscription)
    if grant.whole:
        return asked
    if asked.paused is not None:
        return narrow(asked.resume(), stream, grant, limit_us).paused_as(asked)
    seen = stream_for(stream, grant)
    if not seen.schema.names:
        raise GrantError(f"you may see nothing of {stream.name!r}", hint="ask an operator")
    finding = next(iter(check_subscription(asked, {stream.name: seen}, (asked.site,), limit_us)), None)
    if finding is not None:
        raise GrantError(_said(asked, finding), hint=finding.hint)
    changes: dict[str, Any] = {}
    if grant.columns is not None:
        wanted = seen.schema.names if asked.select is None else asked.select
        changes["select"] = tuple(name for name in wanted if grant.shows(name))
    changes |= _rows(asked, stream, seen, grant)
    found = replace(asked, **changes)
    try:
        check_cost(found, stream.schema, limit_us)
    except HeadgateError:
        raise GrantError(
            f"the filter of {asked.name!r} costs too much together with what you may see", hint="ask for less"
        ) from None
    return _noted(found, asked, grant)


def narrow_or_stop(subscription: Subscription, stream: Stream, grant: Grant, limit_us: float = ROW_US) -> Subscription:
    """As `narrow`, for what was allowed before: it goes on with the columns that it selects and may still see.

    A subscription whose filter, policy or resolution names something else matches nothing, until its owner changes it
    or may see more again.
    """
    asked = as_asked(subscription)
    if asked.paused is not None:
        return narrow_or_stop(asked.resume(), stream, grant, limit_us).paused_as(asked)
    visible = tuple(name for name in stream.schema.names if grant.shows(name))
    select = None if asked.select is None else tuple(name for name in asked.select if name in visible)
    narrowed = None
    if select != ():
        try:
            narrowed = narrow(replace(asked, select=select), stream, grant, limit_us)
        except GrantError:
            narrowed = None  # nothing is left of it: it stops
    if narrowed is not None:
        return _noted(narrowed, asked, grant)
    found = replace(asked, where="false", profile="relational", policy=None, region=None, resolution=None)
    # No rows will come: the columns are only there because somebody has to have some.
    return _noted(replace(found, select=select or visible[:1] or stream.schema.names[:1]), asked, grant)


def is_stopped(subscription: Subscription) -> bool:
    """Whether a grant leaves nothing of a subscription, as it names what its owner may not see."""
    narrowed = subscription.narrowed
    return narrowed is not None and subscription.resume().where == "false" and "where" in narrowed.asked


def _rows(asked: Subscription, stream: Stream, seen: Stream, grant: Grant) -> Mapping[str, str]:
    """The filter of a subscription and that of a grant as one, where that differs from the subscription's own.

    A filter of another profile may mean a column without naming it: it is read with those that are shown.
    """
    types = context_types(asked.context)
    mine = relational(compile_profile(asked.profile, asked.where, seen.schema, types))
    if mine is None:
        raise GrantError(
            f"you may not see all of this stream, and the profile {asked.profile!r} does not combine with that",
            hint="write the filter in the relational profile",
        )
    try:
        both = intersection(mine, parse_filter(grant.where, stream.schema))
    except FilterError:  # the stream has changed since
        raise GrantError("what you may see of this stream no longer fits it", hint="ask an operator") from None
    same = both == mine and asked.profile == "relational"
    return {} if same else {"where": both.text, "profile": "relational"}


def _noted(found: Subscription, asked: Subscription, grant: Grant) -> Subscription:
    changed = {name: getattr(asked, name) for name in _ASKED if getattr(found, name) != getattr(asked, name)}
    return replace(found, narrowed=None if grant.whole else Narrowed(grant, changed))


def _said(asked: Subscription, finding: Flaw) -> str:
    return f"subscription {asked.name!r}: {finding.message}"
