"""What a user who is no operator may ask for: only about subscriptions of its own, of streams that it was granted.

`admitted` looks at a request alone and rewrites it, so that what it makes is the user's; `check_owned` looks at it
together with the catalog, inside the transaction that would make the change. Nothing that is refused says whether
something of somebody else exists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from headgate.catalog.profiles import row_cost_us
from headgate.fabric.registry import User, UserError
from headgate.model import RequestLimits, Stream, Subscription
from headgate.model.roots import members_named
from headgate.service.audit import Author
from headgate.service.requests import Request, RequestError, mapping_of, text_of
from headgate.wire.snapshot import Snapshot

BY: Final = "by"
"""The key of a request under which the service notes which user it is of; operators' requests have none."""
OPERATOR: Final = "operator"
"""The key under which an operator says who it is."""
ORIGIN: Final = "origin"
"""The key that says where a request is from: of operators as they say, of users as the server does."""
VERBS: Final = ("subscribe", "move", "unsubscribe", "pause", "resume", "context", "refine", "mine")
"""What users who are no operators may ask for."""
_PRIVILEGED: Final = {"weight": 1.0, "priority": 0}


def admitted(user: User, verb: str, request: Request, origin: str = "") -> Request:
    """The request of a user as the service carries it out; `UserError` where it is none of the user's business."""
    if verb not in VERBS:
        raise UserError(f"user {user.name!r} may not ask for {verb!r}", hint="an operator may")
    found = {**request, BY: user.name, ORIGIN: origin}
    if "request" in request:  # ids are each user's own: nobody gets the answer to another's
        found["request"] = hashlib.sha256(f"{user.name}/{request['request']}".encode()).hexdigest()[:48]
    if verb == "subscribe":
        if "subscriptions" in request:
            wanted = mapping_of(request, "subscriptions")
            found["subscriptions"] = {name: _owned(user, name, wanted[name]) for name in wanted}
        else:
            found["subscription"] = _owned(user, text_of(request, "name"), mapping_of(request, "subscription"))
    return found


def _owned(user: User, name: str, document: Any) -> dict[str, Any]:
    """A subscription as it is asked for, in the name of its user."""
    if not isinstance(document, Mapping):
        raise RequestError(f"the subscription {name!r} is no mapping", hint="give its keys")
    if document.get("owner", user.name) != user.name:
        raise UserError(f"user {user.name!r} cannot subscribe for others", hint="leave `owner` out")
    stream = document.get("stream")
    if not isinstance(stream, str) or not user.may_subscribe(stream):
        raise UserError(f"user {user.name!r} may not subscribe to {stream!r}", hint="an operator grants streams")
    for key, usual in _PRIVILEGED.items():
        if document.get(key, usual) != usual:
            raise UserError(f"only an operator gives a subscription a {key}", hint=f"leave `{key}` out")
    return {**document, "owner": user.name}


def check_owned(request: Request, before: Snapshot, limits: RequestLimits) -> None:
    """Refuse a request of a user that touches what is not its own, or asks for more subscriptions than it may have."""
    name = request.get(BY)
    if name is None:
        return
    known = before.deployment.subscriptions
    wanted = _documents(request)
    for each in _names(request):
        touched = [*([each] if each in known else []), *members_named(before.deployment.streams, known, each)]
        if any(known[other].owner != name for other in touched) or not (touched or each in wanted):
            raise unknown(each)
    for document in wanted.values():
        source = document.get("context_from")
        if source is not None and (source not in known or known[source].owner != name):
            raise unknown(str(source))
    new = [each for each in wanted if each not in known]
    have = sum(found.owner == name for found in known.values())
    if new and have + len(new) > limits.subscriptions:
        raise UserError(
            f"user {name!r} has {have} subscriptions and may have {limits.subscriptions}",
            hint="end some, or ask an operator for more",
        )


def check_share(
    request: Request, after: Mapping[str, Subscription], streams: Mapping[str, Stream], most_us: float
) -> None:
    """Refuse what would make all filters of a user on one stream cost more than its share of the matching.

    `after` are the subscriptions as the request would leave them.
    """
    name = request.get(BY)
    if name is None:
        return
    costs: dict[str, float] = {}
    for each in after.values():
        if each.owner == name:
            found = row_cost_us(each, streams[each.stream].schema)
            costs[each.stream] = costs.get(each.stream, 0.0) + found
    stream, cost_us = max(costs.items(), key=lambda each: each[1], default=("", 0.0))
    if cost_us > most_us:
        raise UserError(
            f"all filters of user {name!r} on {stream!r} together would take about {cost_us:,.0f} us a row, "
            f"{most_us:,.0f} are allowed",
            hint="simplify or end some, or ask an operator for more",
        )


def unknown(name: str) -> UserError:
    """What a user is told of a subscription that is not its own, whether it exists or not."""
    return UserError(f"no subscription {name!r} of yours", hint="its name may be another user's: take another one")


def author_of(request: Request) -> Author:
    """Who made a request, for the audit. Operators are believed who they are, and where."""
    name = request.get(BY) or request.get(OPERATOR)
    named = name if isinstance(name, str) else "operator"
    return Author(named[:64], str(request.get(ORIGIN, ""))[:200])


def owned_by(snapshot: Snapshot, user: str) -> dict[str, Subscription]:
    """The subscriptions of a user by name."""
    return {name: each for name, each in snapshot.deployment.subscriptions.items() if each.owner == user}


def _documents(request: Request) -> dict[str, Any]:
    if "subscriptions" in request:
        return mapping_of(request, "subscriptions")
    return {text_of(request, "name"): mapping_of(request, "subscription")} if "subscription" in request else {}


def _names(request: Request) -> Iterable[str]:
    """Every subscription that a request is about."""
    found = [request["name"]] if "name" in request else []
    for key in ("names", "contexts", "subscriptions"):
        found += list(request.get(key) or ())
    return [str(each) for each in found]
