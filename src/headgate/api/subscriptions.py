"""Subscriptions: list, make, change, move, detach, refine, set contexts and end them, one or many at a time."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import Body, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.responses import Response

from headgate.api.problems import ApiError
from headgate.api.routing import MOST, After, Here, Limit, open_to_users, page, router, tagged
from headgate.catalog.file_writing import merged
from headgate.client.names import known_names
from headgate.service.describing import sharing, subscription_document
from headgate.service.requests import MAX_ID

routes = router("subscriptions")

Document = Annotated[dict[str, Any], WithJsonSchema({"$ref": "#/components/schemas/SubscriptionEntry"})]
Name = Annotated[str, Field(max_length=256)]
Names = Annotated[list[Name], Field(min_length=1, max_length=MOST)]
Values = Annotated[dict[str, Any], Field(description="Values by name, for the `$names` of the filter.")]
RequestKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MAX_ID - 4,
        pattern=r"^[!-~]+$",
        description="A request that is repeated under the same key is done once and answered again.",
    ),
]


class Strict(BaseModel):
    """A request body without other keys."""

    model_config = ConfigDict(extra="forbid")


class New(BaseModel):
    """A subscription to make: its name, and the keys of the deployment file."""

    model_config = ConfigDict(extra="allow")
    name: Annotated[str, Field(max_length=256, description="Its name.")]


class MoveBody(Strict):
    """Where to deliver from now on."""

    site: Name


class DetachBody(Strict):
    """How long to keep rows for a reader who is away, such as `10 min`; as the subscription says where nothing is."""

    expires: Annotated[str | None, Field(max_length=64)] = None


class Refine(Strict):
    """The resolution to have; with `add`, what is lacking of it becomes a subscription of that name."""

    resolution: dict[str, Any]
    add: Name | None = None


class BulkSubscribe(Strict):
    """Subscriptions by name, made (or with `change` also changed) as one revision, all or none."""

    subscriptions: Annotated[dict[str, Document], Field(min_length=1, max_length=MOST)]
    change: bool = False


class BulkUnsubscribe(Strict):
    """Subscriptions to end as one revision, all or none."""

    names: Names


class BulkMove(BulkUnsubscribe):
    """Subscriptions to deliver at another site as one revision, all or none."""

    site: Name


def request_id(key: str | None, what: str) -> str:
    """The id of a control request: of the key, so that a repetition has the same."""
    return uuid.uuid4().hex if key is None else f"{what}:{key}"


@routes.get("/subscriptions", summary="List subscriptions, filtered, by pages")
@open_to_users
async def list_subscriptions(
    request: Request,
    here: Here,
    stream: Annotated[str | None, Query(max_length=256)] = None,
    site: Annotated[str | None, Query(max_length=256)] = None,
    search: Annotated[str | None, Query(max_length=256, description="Part of the name or of the filter.")] = None,
    class_: Annotated[int | None, Query(alias="class", ge=0, le=2**53)] = None,
    limit: Limit = 100,
    after: After = None,
) -> Response:
    snapshot = await here.snapshot()
    wanted = [
        name
        for name, each in snapshot.deployment.subscriptions.items()
        if (stream is None or each.stream == stream)
        and (site is None or each.site == site)
        and (class_ is None or snapshot.class_ids[name] == class_)
        and (search is None or search.lower() in name.lower() or search.lower() in each.where.lower())
    ]
    names, following = page(sorted(wanted), after, limit)
    shared = sharing(snapshot)
    items = [
        {
            "name": name,
            "id": snapshot.subscription_ids[name],
            "class": snapshot.class_ids[name],
            "sharing": shared[snapshot.class_ids[name]],
            "subscription": subscription_document(snapshot.deployment.subscriptions[name]),
        }
        for name in names
    ]
    document = {"revision": snapshot.revision, "total": len(wanted), "subscriptions": items, "next": following}
    return tagged(request, document, snapshot.identity.deployment, snapshot.revision, snapshot.contexts)


@routes.post("/subscriptions", status_code=201, summary="Make a subscription")
@open_to_users
async def make_subscription(here: Here, body: New, response: Response, key: RequestKey = None) -> dict[str, Any]:
    """Answers with its normalised filter, its delivery class and how many share it, and what the plan grants it."""
    document = dict(body.model_extra or {})
    await here.client.control("subscribe", request=request_id(key, "sub"), name=body.name, subscription=document)
    response.headers["Location"] = f"/api/subscriptions/{body.name}"
    return await here.subscription(body.name)


@routes.get("/subscriptions/{name}", summary="Show a subscription, with what the plan grants it now")
@open_to_users
async def show_subscription(here: Here, name: str) -> dict[str, Any]:
    found = await here.subscription(name)
    status = (await here.status())["subscriptions"]
    if "members" in found:
        return {**found, "members": [{**each, "now": status.get(each["name"])} for each in found["members"]]}
    return {**found, "now": status.get(name)}


@routes.put("/subscriptions/{name}", summary="Make a subscription, or replace the one of that name")
@open_to_users
async def put_subscription(here: Here, name: str, body: Document, key: RequestKey = None) -> dict[str, Any]:
    request = request_id(key, "put")
    await here.client.control("subscribe", request=request, name=name, subscription=body, change=True)
    return await here.subscription(name)


@routes.patch("/subscriptions/{name}", summary="Change some keys of a subscription")
@open_to_users
async def change_subscription(
    here: Here,
    name: str,
    body: Annotated[dict[str, Any], Body(media_type="application/merge-patch+json")],
    key: RequestKey = None,
) -> dict[str, Any]:
    """A merge patch (RFC 7396) of the document that `GET` shows as `subscription`; `null` takes a key out."""
    snapshot = await here.snapshot()
    if known_names(name, snapshot) != [name]:
        raise ApiError(f"{name!r} has a part at each root of its stream", hint="replace it with PUT", kind="conflict")
    found = snapshot.deployment.subscriptions[name]
    document = merged(subscription_document(found), body)
    request = request_id(key, "pat")
    await here.client.control("subscribe", request=request, name=name, subscription=document, change=True)
    return await here.subscription(name)


@routes.delete("/subscriptions/{name}", summary="End a subscription")
@open_to_users
async def end_subscription(here: Here, name: str, key: RequestKey = None) -> dict[str, Any]:
    return await here.client.control("unsubscribe", request=request_id(key, "end"), name=name)


@routes.post("/subscriptions/{name}/move", summary="Deliver a subscription at another site")
@open_to_users
async def move_subscription(here: Here, name: str, body: MoveBody, key: RequestKey = None) -> dict[str, Any]:
    """Its reader gets what the old site holds first, and nothing twice."""
    await here.client.control("move", request=request_id(key, "mov"), name=name, site=body.site)
    return await here.subscription(name)


@routes.post("/subscriptions/{name}/detach", summary="Say that nobody will read a subscription for a while")
@open_to_users
async def detach_subscription(here: Here, name: str, body: DetachBody) -> dict[str, Any]:
    return {"position": await here.client.detach(name, expires=body.expires)}


@routes.post("/subscriptions/{name}/refine", summary="Change the resolution of a subscription to a gridded stream")
@open_to_users
async def refine_subscription(here: Here, name: str, body: Refine, key: RequestKey = None) -> dict[str, Any]:
    request = request_id(key, "ref")
    return await here.client.control("refine", request=request, name=name, resolution=body.resolution, add=body.add)


@routes.get("/subscriptions/{name}/context", summary="Show the values of a subscriber's context")
@open_to_users
async def show_context(here: Here, name: str) -> dict[str, Any]:
    found = await here.subscription(name)
    first = found["members"][0] if "members" in found else found
    return {"context": first["subscription"].get("context", {})}


@routes.patch("/subscriptions/{name}/context", summary="Set values of a subscriber's context")
@open_to_users
async def set_context(here: Here, name: str, body: Values, key: RequestKey = None) -> dict[str, Any]:
    """Answers with the place in the stream's order from which they hold."""
    return await here.client.control("context", request=request_id(key, "ctx"), name=name, values=body)


@routes.patch("/contexts", summary="Set values of several subscribers, all or none")
@open_to_users
async def set_contexts(here: Here, body: dict[str, Values], key: RequestKey = None) -> dict[str, Any]:
    return await here.client.control("context", request=request_id(key, "ctx"), contexts=body)


@routes.post("/bulk/subscribe", summary="Make many subscriptions as one revision")
@open_to_users
async def subscribe_many(here: Here, body: BulkSubscribe, key: RequestKey = None) -> dict[str, Any]:
    request = request_id(key, "blk")
    return await here.client.control("subscribe", request=request, subscriptions=body.subscriptions, change=body.change)


@routes.post("/bulk/unsubscribe", summary="End many subscriptions as one revision")
@open_to_users
async def unsubscribe_many(here: Here, body: BulkUnsubscribe, key: RequestKey = None) -> dict[str, Any]:
    return await here.client.control("unsubscribe", request=request_id(key, "ble"), names=body.names)


@routes.post("/bulk/move", summary="Deliver many subscriptions at another site as one revision")
@open_to_users
async def move_many(here: Here, body: BulkMove, key: RequestKey = None) -> dict[str, Any]:
    return await here.client.control("move", request=request_id(key, "blm"), names=body.names, site=body.site)
