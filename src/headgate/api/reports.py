"""Reports: status, streams, sites, links, the ledger, dead letters, plans and what was measured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from headgate.api.gateway import UserGateway, known
from headgate.api.problems import ApiError
from headgate.api.routing import After, Here, Limit, open_to_users, page, router, tagged
from headgate.api.views import series_for
from headgate.client.names import known_names
from headgate.model import Deployment
from headgate.planning.document import plan_document
from headgate.service.dead_letters import read_dead_letters
from headgate.service.describing import links_document, stream_document
from headgate.service.proposing import ask_what_if, measured_sizes, result_document
from headgate.service.why.answer import Question
from headgate.service.why.asking import why_named
from headgate.service.why.restricted import why_for
from headgate.wire.codec import encode_site
from headgate.wire.message import json_text

routes = router("reports")

LEDGER = ("starts", "matched", "delivered", "reduced", "expired", "in_flight", "difference", "oldest_ms")


@routes.get("/status", summary="Everything that `headgate status` says")
@open_to_users
async def show_status(here: Here) -> Response:
    return JSONResponse(await here.status())


@routes.get("/alerts", summary="What is wrong for longer than it may be, and what was")
async def list_alerts(here: Here) -> dict[str, Any]:
    """Alerts that hold come first, oldest first; `cleared_ms` says of the others when they were over."""
    alerts = (await here.status())["alerts"]
    return {"active": sum(each["cleared_ms"] is None for each in alerts), "alerts": alerts}


@routes.get("/streams", summary="Streams: as declared, and their totals")
@open_to_users
async def list_streams(here: Here) -> dict[str, Any]:
    snapshot, status = await here.snapshot(), await here.status()
    streams = {
        name: {**stream_document(stream), "now": status["streams"].get(name)}
        for name, stream in snapshot.deployment.streams.items()
    }
    return {"revision": snapshot.revision, "streams": streams}


@routes.get("/streams/{name}", summary="One stream")
@open_to_users
async def show_stream(here: Here, name: str) -> dict[str, Any]:
    snapshot = await here.snapshot()
    stream = known(snapshot.deployment.streams, name, "stream")
    return {**stream_document(stream), "now": (await here.status())["streams"].get(name)}


@routes.get("/streams/{name}/dead", summary="Dead letters that the root log still holds, oldest first")
async def list_dead(
    here: Here, name: str, limit: Limit = 100, after: Annotated[int, Query(ge=0, le=2**53)] = 0
) -> dict[str, Any]:
    """`after` is how many to pass over: `next` of the page before."""
    known((await here.snapshot()).deployment.streams, name, "stream")
    lines = await read_dead_letters(here.client.fabric, name)
    part = [json.loads(line) for line in lines[after : after + limit]]
    return {"total": len(lines), "letters": part, "next": after + limit if after + limit < len(lines) else None}


@routes.get("/sites", summary="Sites: as declared, and what they do")
async def list_sites(here: Here) -> dict[str, Any]:
    snapshot, status = await here.snapshot(), await here.status()
    sites = {
        name: {"name": name, **encode_site(site), "now": status["sites"].get(name)}
        for name, site in snapshot.deployment.sites.items()
    }
    return {"revision": snapshot.revision, "sites": sites}


@routes.get("/sites/{name}", summary="One site, with its queues")
async def show_site(here: Here, name: str) -> dict[str, Any]:
    snapshot, status = await here.snapshot(), await here.status()
    site = known(snapshot.deployment.sites, name, "site")
    delivered = sorted(each for each, found in snapshot.deployment.subscriptions.items() if found.site == name)
    return {
        "name": name,
        **encode_site(site),
        "now": status["sites"].get(name),
        "links": {link: each for link, each in status["links"].items() if name in link.split("->")},
        "subscriptions": len(delivered),
    }


@routes.get("/links", summary="Links: as declared, used by the plan, and as measured")
async def list_links(here: Here) -> dict[str, Any]:
    snapshot, status = await here.snapshot(), await here.status()
    return {"revision": snapshot.revision, "links": links_document(snapshot), "now": status["links"]}


@routes.get("/ledger", summary="Whether every row is accounted for")
@open_to_users
async def show_ledger(
    here: Here,
    stream: Annotated[str | None, Query(max_length=256)] = None,
    limit: Limit = 100,
    after: After = None,
) -> dict[str, Any]:
    """`wrong` says whether a row is missing or cannot be accounted for; `findings` has what, where and what to do."""
    status = await here.status()
    entries = status["subscriptions"]
    names, following = page(
        sorted(name for name, each in entries.items() if stream is None or each["stream"] == stream), after, limit
    )
    totals = ("head", "rows_in", "dead", "shed", "evaluated", "unsent", "difference")
    return {
        "wrong": any(each["wrong"] for each in status["findings"]),
        "findings": status["findings"],
        "streams": {
            name: {key: each.get(key) for key in totals}
            for name, each in status["streams"].items()
            if stream is None or name == stream
        },
        "subscriptions": {name: _line(entries[name]) for name in names},
        "next": following,
    }


def _line(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"stream": entry["stream"], "site": entry["site"], **{key: entry.get(key) for key in LEDGER}}


@routes.get("/subscriptions/{name}/why", summary="What became of a row", response_class=Response)
@open_to_users
async def why(
    here: Here,
    name: str,
    seq: Annotated[int | None, Query(ge=1, le=2**53, description="The row's sequence number.")] = None,
    where: Annotated[str | None, Query(max_length=10_000, description="The row, as a SQL expression.")] = None,
    key: Annotated[str | None, Query(max_length=1000, description="The row's key.")] = None,
) -> Response:
    """As `headgate why`: `fate` in one word, `text` in one paragraph. Give one of `seq`, `where` and `key`.

    One question of whoever asks is answered at a time, and after one that took long comes a pause (429).
    """
    question = Question(seq, where, key)
    known_names(name, await here.snapshot())
    async with here.questions.turn():
        if isinstance(here, UserGateway) and here.user is not None:
            found = await why_for(here.whole.client, here.user, name, question)
        else:
            found = await why_named(here.client, name, question)
    return Response(json_text(found.to_document()), media_type="application/json")


@routes.get("/plan", summary="The plan in force, and what it grants to whom")
async def show_plan(request: Request, here: Here) -> Response:
    snapshot, planner, found = await here.snapshot(), await here.planner(), await here.granted()
    document: dict[str, Any] = {"revision": snapshot.revision, "planner": planner or None}
    if found is not None:
        document |= result_document(found)
    elif snapshot.plan is not None:
        document["plan"] = plan_document(snapshot.plan)
    return tagged(request, document, snapshot.identity.deployment, snapshot.revision, planner.get("time_ms"))


class PlanQuestion(BaseModel):
    """Changes to ask about, as for `headgate plan --what-if`; with `keep` the plan is carried over with few moves."""

    model_config = ConfigDict(extra="forbid")
    changes: Annotated[
        list[Annotated[str, Field(max_length=1000)]],
        Field(min_length=1, max_length=100, examples=[["site paris upload=1Mbit/s"]]),
    ]
    algorithm: Annotated[str, Field(max_length=32)] = "qasdg"
    keep: bool = False


@routes.post("/plan/what-if", summary="What a change of sites, links or rates would do")
async def what_if(here: Here, body: PlanQuestion) -> Response:
    """Nothing is changed. One question is answered at a time."""
    if here.asking.locked():
        raise ApiError("another question is being answered", hint="ask again in a moment", kind="busy")
    async with here.asking:
        snapshot, sizes = await here.snapshot(), measured_sizes(await here.planner())
        found = await asyncio.to_thread(
            ask_what_if, snapshot, sizes, body.changes, body.algorithm.lower(), keep=body.keep
        )
    return JSONResponse(found)


@routes.get("/contexts", summary="Contexts of subscribers, by pages")
@open_to_users
async def list_contexts(request: Request, here: Here, limit: Limit = 100, after: After = None) -> Response:
    snapshot = await here.snapshot()
    found = snapshot.deployment.subscriptions
    names, following = page(sorted(name for name, each in found.items() if each.context), after, limit)
    document = {"contexts": {name: dict(found[name].context) for name in names}, "next": following}
    return tagged(request, document, snapshot.identity.deployment, snapshot.revision, snapshot.contexts)


@routes.get("/measurements/series", summary="Figures over the last hour, every ten seconds")
@open_to_users
async def show_series(
    here: Here,
    of: Annotated[
        Literal["streams", "sites", "links", "subscriptions", "planner"], Query(description="What they are of.")
    ],
    name: Annotated[
        str, Query(max_length=256, description="Its name; a link is written as `paris->lyon`, the planner as `_`.")
    ],
    since_ms: Annotated[int, Query(ge=0, le=2**53, description="Only what was sampled after this time.")] = 0,
) -> dict[str, Any]:
    """Counters grow: their differences are rates. A sample that is missing is null."""
    if isinstance(here, UserGateway):
        mine = (await here.snapshot()).subscription_ids if of == "subscriptions" else {}
        known(mine, name, of.removesuffix("s"))
        return series_for(here.whole.series.of(of, name, since_ms))
    if not here.series.has(of, name) and _is_there(of, name, (await here.snapshot()).deployment):
        return {"times_ms": [], "series": {}}
    return here.series.of(of, name, since_ms)


def _is_there(of: str, name: str, deployment: Deployment) -> bool:
    """Whether something of this name may have figures soon."""
    if of == "planner":
        return name == "_"
    if of == "links":
        return set(name.split("->")) <= deployment.sites.keys()
    things: Mapping[str, Any] = getattr(deployment, of)
    return name in things


@routes.get("/measurements", summary="What was measured: rates, sizes, delays, quality")
async def show_measurements(here: Here) -> dict[str, Any]:
    planner, status = await here.planner(), await here.status()
    jobs = {name: each["job"] for name, each in status["streams"].items()}
    return {"planner": planner or None, "jobs": jobs, "links": status["links"], "sites": status["sites"]}
