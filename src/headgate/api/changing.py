"""Changes of what runs: streams, sites, links, objectives; subscriptions that pause; plans that wait for approval.

Each is the request that the command line makes, so that both refuse in the same words.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Query
from pydantic import Field, WithJsonSchema

from headgate.api.gateway import known
from headgate.api.routing import Here, open_to_users, router
from headgate.api.subscriptions import BulkUnsubscribe, RequestKey, Strict, request_id
from headgate.catalog.file_writing import links_document, site_document, stream_document, stream_names
from headgate.protocol.reports import TuningReport
from headgate.service.audit import redacted
from headgate.service.proposals import read_proposal
from headgate.service.reports import read_reports, shown

routes = router("changes")

SiteBody = Annotated[dict[str, Any], WithJsonSchema({"$ref": "#/components/schemas/SiteEntry"})]
StreamBody = Annotated[dict[str, Any], WithJsonSchema({"$ref": "#/components/schemas/StreamEntry"})]
Patch = Annotated[dict[str, Any], Body(media_type="application/merge-patch+json")]


class LinkBody(Strict):
    """What a pair of sites has of its own; `null` takes it away."""

    delay: Annotated[str | None, Field(max_length=64, examples=["40 ms"])] = None
    capacity: Annotated[str | None, Field(max_length=64, examples=["2 Mbit/s"])] = None
    max_rows: Annotated[int | None, Field(ge=1, le=2**53)] = None
    max_bytes: Annotated[str | None, Field(max_length=64)] = None
    max_age: Annotated[str | None, Field(max_length=64)] = None


class ObjectivePatch(Strict):
    """What plans are made by and must keep to; keys that are not given stay as they are, `null` is the default."""

    objective: Annotated[str | None, Field(max_length=10_000)] = None
    constraints: Annotated[list[Annotated[str, Field(max_length=10_000)]] | None, Field(max_length=100)] = None
    options: dict[str, Any] | None = None


class InWords(Strict):
    """Changes as for `headgate plan --what-if`, made as one revision."""

    changes: Annotated[
        list[Annotated[str, Field(max_length=1000)]],
        Field(min_length=1, max_length=100, examples=[["site paris upload=1Mbit/s"]]),
    ]


class ProposeBody(Strict):
    """How to make a plan to propose."""

    algorithm: Annotated[str, Field(max_length=32)] = "search"


class ProposalBody(Strict):
    """Which proposal."""

    proposal: Annotated[str, Field(max_length=64)]


async def _change(here: Here, key: str | None, patch: dict[str, Any], **more: Any) -> dict[str, Any]:
    return await here.client.control("change", request=request_id(key, "chg"), deployment=patch, **more)


@routes.get("/declared", summary="Streams, sites, links and settings as a deployment file writes them")
async def show_declared(here: Here) -> dict[str, Any]:
    """Values that may be secrets are stars."""
    snapshot = await here.snapshot()
    deployment = snapshot.deployment
    found: dict[str, Any] = redacted(
        {
            "streams": {name: stream_document(deployment, name) for name in stream_names(deployment)},
            "sites": {name: site_document(site) for name, site in deployment.sites.items()},
            "links": links_document(deployment.links),
            "objective": deployment.objective,
            "constraints": list(deployment.constraints),
            "options": dict(deployment.options),
        }
    )
    return {"revision": snapshot.revision, **found}


@routes.patch("/declared", summary="Change streams, sites, links and settings as one revision")
async def change_declared(here: Here, body: Patch, key: RequestKey = None) -> dict[str, Any]:
    """A merge patch (RFC 7396) of a deployment file; of `links.pairs` the pairs that are listed change."""
    return await _change(here, key, body)


@routes.post("/changes", summary="Change sites, links and rates, in words")
async def change_in_words(here: Here, body: InWords, key: RequestKey = None) -> dict[str, Any]:
    return await here.client.control("change", request=request_id(key, "chg"), changes=body.changes)


@routes.put("/sites/{name}", summary="Add a site, or replace what is declared of it")
async def put_site(here: Here, name: str, body: SiteBody, key: RequestKey = None) -> dict[str, Any]:
    return await _change(here, key, {"sites": {name: body}}, whole=True)


@routes.patch("/sites/{name}", summary="Change what is declared of a site")
async def change_site(here: Here, name: str, body: Patch, key: RequestKey = None) -> dict[str, Any]:
    known((await here.snapshot()).deployment.sites, name, "site")
    return await _change(here, key, {"sites": {name: body}})


@routes.delete("/sites/{name}", summary="Take a site out")
async def end_site(here: Here, name: str, key: RequestKey = None) -> dict[str, Any]:
    """Refused while a stream has its root there, or a subscription is delivered there."""
    return await _change(here, key, {"sites": {name: None}})


@routes.put("/streams/{name}", summary="Add a stream, or replace what is declared of it")
async def put_stream(here: Here, name: str, body: StreamBody, key: RequestKey = None) -> dict[str, Any]:
    return await _change(here, key, {"streams": {name: body}}, whole=True)


@routes.patch("/streams/{name}", summary="Change what is declared of a stream")
async def change_stream(here: Here, name: str, body: Patch, key: RequestKey = None) -> dict[str, Any]:
    deployment = (await here.snapshot()).deployment
    known(dict.fromkeys(stream_names(deployment)), name, "stream")
    return await _change(here, key, {"streams": {name: body}})


@routes.delete("/streams/{name}", summary="End a stream")
async def end_stream(here: Here, name: str, key: RequestKey = None) -> dict[str, Any]:
    """Refused while somebody subscribes to it. Its logs stay."""
    return await _change(here, key, {"streams": {name: None}})


@routes.patch("/links/{one}/{other}", summary="Change what is declared of the link between two sites")
async def change_link(here: Here, one: str, other: str, body: LinkBody, key: RequestKey = None) -> dict[str, Any]:
    given = body.model_dump(exclude_unset=True)
    return await _change(here, key, {"links": {"pairs": [{"between": [one, other], **given}]}})


@routes.delete("/links/{one}/{other}", summary="Let a link have nothing of its own")
async def reset_link(here: Here, one: str, other: str, key: RequestKey = None) -> dict[str, Any]:
    return await _change(here, key, {"links": {"pairs": [{"between": [one, other]}]}}, whole=True)


@routes.get("/objective", summary="What plans are made by and must keep to")
async def show_objective(here: Here) -> dict[str, Any]:
    deployment = (await here.snapshot()).deployment
    options = redacted(dict(deployment.options))
    return {"objective": deployment.objective, "constraints": list(deployment.constraints), "options": options}


@routes.patch("/objective", summary="Change what plans are made by and must keep to")
async def change_objective(here: Here, body: ObjectivePatch, key: RequestKey = None) -> dict[str, Any]:
    """A constraint that no plan can keep is refused."""
    return await _change(here, key, body.model_dump(exclude_unset=True))


@routes.post("/subscriptions/{name}/pause", summary="Let a subscription take no rows for now")
@open_to_users
async def pause_subscription(here: Here, name: str, key: RequestKey = None) -> dict[str, Any]:
    """It keeps its id, its reader and what was on its way. Rows that come meanwhile are not matched for it."""
    await here.client.control("pause", request=request_id(key, "pau"), name=name)
    return await here.subscription(name)


@routes.post("/subscriptions/{name}/resume", summary="Let a subscription take rows again")
@open_to_users
async def resume_subscription(here: Here, name: str, key: RequestKey = None) -> dict[str, Any]:
    await here.client.control("resume", request=request_id(key, "res"), name=name)
    return await here.subscription(name)


@routes.post("/bulk/pause", summary="Pause many subscriptions as one revision")
@open_to_users
async def pause_many(here: Here, body: BulkUnsubscribe, key: RequestKey = None) -> dict[str, Any]:
    return await here.client.control("pause", request=request_id(key, "blp"), names=body.names)


@routes.post("/bulk/resume", summary="Resume many subscriptions as one revision")
@open_to_users
async def resume_many(here: Here, body: BulkUnsubscribe, key: RequestKey = None) -> dict[str, Any]:
    return await here.client.control("resume", request=request_id(key, "blr"), names=body.names)


@routes.get("/plan/proposed", summary="The plan that waits for approval, or the last that did")
async def show_proposal(here: Here) -> dict[str, Any]:
    """`steps` is the difference to the plan that was in force when it was made."""
    return {"proposal": shown(await read_proposal(here.client.fabric)) or None}


@routes.post("/plan/propose", summary="Make a plan by what was measured, and propose it")
async def propose_plan(here: Here, body: ProposeBody, key: RequestKey = None) -> dict[str, Any]:
    return await here.client.control("plan-propose", request=request_id(key, "prp"), algorithm=body.algorithm)


@routes.post("/plan/approve", summary="Put a proposed plan in force")
async def approve_plan(here: Here, body: ProposalBody, key: RequestKey = None) -> dict[str, Any]:
    return await here.client.control("plan-approve", request=request_id(key, "app"), proposal=body.proposal)


@routes.post("/plan/reject", summary="Say no to a proposed plan")
async def reject_plan(here: Here, body: ProposalBody, key: RequestKey = None) -> dict[str, Any]:
    return await here.client.control("plan-reject", request=request_id(key, "rej"), proposal=body.proposal)


@routes.get("/plan/history", summary="Plans that were in force, newest first")
async def list_plans(here: Here, limit: Annotated[int, Query(ge=1, le=200)] = 50) -> dict[str, Any]:
    """As far back as the catalog keeps revisions.

    `moved` has who got another parent, with the one before and after it (null where it joined or left); `quality` and
    `quality_after` what was predicted with the plan before and after, where a plan was made for it; `tuned` what the
    live tuner's objective cost.
    """
    return await here.client.control("plan-history", limit=limit)


class TuningWishes(Strict):
    """What the live tuner is to do instead of what the deployment file says; what is missing is the file's."""

    objective: Annotated[str | None, Field(max_length=10_000)] = None
    constraints: Annotated[list[Annotated[str, Field(max_length=10_000)]] | None, Field(max_length=100)] = None
    mode: Annotated[str | None, Field(max_length=100)] = None
    every: Annotated[str | None, Field(max_length=40)] = None
    levels: Annotated[int | None, Field(ge=3, le=6)] = None
    approximate: Annotated[float | None, Field(ge=0)] = None


@routes.get("/plan/tuning", summary="The live tuner: cost over time, each transformation as predicted and as measured")
async def show_tuning(here: Here) -> dict[str, Any]:
    """Null as long as the tuner has never owned the plan; `state` is off, running or settled."""
    return {"tuning": shown((await read_reports(here.client.fabric, TuningReport)).get("_")) or None}


@routes.post("/plan/tuning", summary="Let the live tuner go on by other wishes; none of them are the file's")
async def change_tuning(here: Here, body: TuningWishes, key: RequestKey = None) -> dict[str, Any]:
    """Refused where the central planner owns the plan."""
    wishes = body.model_dump(exclude_none=True)
    return await here.client.control("tune", request=request_id(key, "tun"), **(wishes or {"file": True}))
