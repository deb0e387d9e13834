"""One look at a deployment: is everything well, who does not get what they asked for, and which link is the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import Field
from starlette.responses import JSONResponse, Response

from headgate.api.gateway import Gateway
from headgate.api.routing import MOST, Here, open_to_users, router
from headgate.api.subscriptions import Strict
from headgate.model import Subscription
from headgate.service.attainment import UNWELL, Attained, counted, heat
from headgate.wire.snapshot import Snapshot

routes = router("overview")

_WORST: Final = 12
_CELLS: Final = 5000
"""Subscriptions that get a cell of their own in the heat view; of more only streams and sites have cells."""
_CHANGES: Final = 20
_ALERTS: Final = 50
_SEEN: Final = (
    "declared_bytes_per_s", "measured_bytes_per_s", "measured_busy", "used_bytes_per_s", "budget_bytes_per_s", "off",
    "round_trip_s", "resent",
)  # fmt: skip
"""What the status knows of a link's bandwidth, and the kernels of both ends of it; null where nothing was seen."""


@routes.get("/overview", summary="Whether all is well, who is not, and why: sites, links and streams with their rates")
@open_to_users
async def show_overview(here: Here) -> Response:
    """Rates are those of the last seconds, null while there are not two readings yet. A user sees what is its own."""
    snapshot, status, planner = await here.snapshot(), await here.status(), await here.planner()
    found = await here.attainment()
    unwell = [each for each in found if each.state in UNWELL]
    contracts = [each for each in found if each.at_least is not None]
    document = {
        "time_ms": status["time_ms"],
        "revision": snapshot.revision,
        "service": status["service"],
        "findings": status["findings"][:100],
        "machine": status.get("machine"),
        "alerts": status.get("alerts", [])[:_ALERTS],
        "states": counted(found),
        "subscriptions": len(found),
        "contracts": len(contracts),
        "contracts_below": sum(each.state == "below" for each in contracts),
        "worst": [each.to_document() for each in unwell[:_WORST]],
        "streams": {name: _stream(here, snapshot, name, each) for name, each in status["streams"].items()},
        "sites": _sites(here, snapshot, status, planner, found),
        "links": _links(here, snapshot, status),
        "joins": status.get("joins", [])[-_CHANGES:],
        "reorderings": status.get("reorderings", [])[-_CHANGES:],
        "planner": {key: value for key, value in planner.items() if key not in ("streams", "sites", "subscriptions")},
    }
    return JSONResponse(document)


def _stream(here: Gateway, snapshot: Snapshot, name: str, now: Mapping[str, Any]) -> dict[str, Any]:
    plan = snapshot.plan.trees.get(name) if snapshot.plan else None
    same = ("root", "state", "head", "rows_in", "dead", "shed", "evaluated", "difference", "unsent", "job", "waiting")
    stream = snapshot.deployment.streams.get(name)
    return {
        **{key: now.get(key) for key in same},
        "rows_per_s": here.rates.of("streams", name, "rows_in"),
        "declared_rows_per_s": None if stream is None else stream.rate_rows_per_s,
        "admission": None if stream is None else stream.admission.method,
        "gridded": stream is not None and "grid" in stream.options,
        "parents": {} if plan is None else dict(plan.parents),
    }


def _sites(
    here: Gateway,
    snapshot: Snapshot,
    status: Mapping[str, Any],
    planner: Mapping[str, Any],
    found: list[Attained],
) -> dict[str, Any]:
    counts: dict[str, list[int]] = {}
    for each in found:
        count = counts.setdefault(each.site, [0, 0])
        count[0] += 1
        count[1] += each.state in UNWELL
    sites = {}
    for name, site in snapshot.deployment.sites.items():
        now = status["sites"].get(name, {})
        measured = planner.get("sites", {}).get(name, {})
        sites[name] = {
            "position": site.position,
            "upload_bytes_per_s": site.upload_bytes_per_s,
            "download_bytes_per_s": site.download_bytes_per_s,
            "measured_upload_bytes_per_s": measured.get("upload_bytes_per_s"),
            "shed": measured.get("shed"),
            "up_bytes_per_s": here.rates.of("sites", name, "upload_bytes"),
            "down_bytes_per_s": here.rates.of("sites", name, "download_bytes"),
            "cpu_share": here.rates.of("sites", name, "cpu_s"),
            "queued_rows": now.get("queued_rows", 0),
            "inbox_bytes": now.get("inbox_bytes", 0),
            "level": now.get("level", 0),
            "age_s": None if now.get("time_ms") is None else max(status["time_ms"] - now["time_ms"], 0) / 1000,
            "subscriptions": counts.get(name, [0, 0])[0],
            "unwell": counts.get(name, [0, 0])[1],
            "roots": sorted(each.name for each in snapshot.deployment.streams.values() if each.root == name),
        }
    return sites


def _links(here: Gateway, snapshot: Snapshot, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every link that the plan uses or that has carried rows, in the direction in which it carries them.

    `second` has the streams of which it is the second path to a site (`paths: 2`).
    """
    used: dict[tuple[str, str], set[str]] = {}
    for stream, tree in snapshot.plan.trees.items() if snapshot.plan else ():
        for child, parent in tree.parents.items():
            used.setdefault((parent, child), set()).add(stream)
    for name in status["links"]:
        one, _, other = name.partition("->")
        used.setdefault((one, other), set())
    second: dict[tuple[str, str], list[str]] = {}
    for child, site in status["sites"].items():
        for stream, parent in sorted(site["second_parents"].items()):
            second.setdefault((parent, child), []).append(stream)
            used.setdefault((parent, child), set())
    found = []
    for (one, other), streams in sorted(used.items()):
        name = f"{one}->{other}"
        now, link = status["links"].get(name, {}), snapshot.deployment.links.between(one, other)
        sender = snapshot.deployment.sites.get(one)
        limit, limited_by = link.capacity_bytes_per_s, "capacity"
        if limit is None and sender is not None and sender.upload_bytes_per_s is not None:
            limit, limited_by = sender.upload_bytes_per_s, f"upload of {one}"
        rate = used_of_limit = here.rates.of("links", name, "bytes")
        if limited_by != "capacity":  # what the site sends on its other links counts as well
            used_of_limit = here.rates.of("sites", one, "upload_bytes")
        found.append(
            {
                "name": name,
                "from": one,
                "to": other,
                "planned": bool(streams),
                "streams": sorted(streams or now.get("streams", [])),
                "second": second.get((one, other), []),
                "bytes_per_s": rate,
                "messages_per_s": here.rates.of("links", name, "messages"),
                "lost_rows_per_s": here.rates.of("links", name, "reduced"),
                "limit_bytes_per_s": limit,
                "limited_by": None if limit is None else limited_by,
                "load": None if used_of_limit is None or not limit else used_of_limit / limit,
                **{key: now.get(key) for key in _SEEN},
                "delay_s": link.delay_s,
                "latency_s": now.get("latency_s"),
                "bytes": now.get("bytes", 0),
                "reduced": now.get("reduced", 0),
                "queued_rows": now.get("queued_rows", 0),
                "queued_s": now.get("queued_s", 0.0),
                "level": now.get("level", 0),
            }
        )
    return found


class AttainmentPage(Strict):
    """Which subscriptions, in which order, and which page of them."""

    search: Annotated[str | None, Field(max_length=256, description="Words of the name or the filter.")] = None
    stream: Annotated[str | None, Field(max_length=256)] = None
    site: Annotated[str | None, Field(max_length=256)] = None
    state: Annotated[
        Literal["difference", "below", "less", "waiting", "unmeasured", "well", "unwell"] | None,
        Field(description="Only those in this state; `unwell` do not get what they asked for."),
    ] = None
    sort: Annotated[
        Literal["state", "name", "stream", "site", "ratio", "quality", "drop", "delay_s", "delivered", "in_flight"],
        Field(description="What to sort by; `state` has the worst first."),
    ] = "state"
    descending: bool = False
    offset: Annotated[int, Field(ge=0, le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=MOST)] = 50

    def fits(self, each: Attained, subscription: Subscription | None) -> bool:
        """Whether a subscription is one of them, whatever its state."""
        if (self.stream is not None and each.stream != self.stream) or (
            self.site is not None and each.site != self.site
        ):
            return False
        if not self.search:
            return True
        text = f"{each.name} {'' if subscription is None else subscription.where}".lower()
        return all(word in text for word in self.search.lower().split())

    def listed(self, chosen: list[Attained]) -> list[Attained]:
        """Those in the wanted state, in the wanted order."""
        found = [each for each in chosen if self.state is None or _in_state(each, self.state)]
        if self.sort != "state":  # they come in that order
            found.sort(key=lambda each: _sortable(getattr(each, self.sort)))
        return found[::-1] if self.descending else found


@routes.get("/attainment", summary="Attained against contracted quality: searched, sorted, by pages, and as heat")
@open_to_users
async def show_attainment(here: Here, wanted: Annotated[AttainmentPage, Query()]) -> Response:
    """`heat` has a cell for each stream and site; `cells` one for each subscription where there are at most 5,000."""
    snapshot, found = await here.snapshot(), await here.attainment()
    document = await asyncio.to_thread(_page, wanted, found, snapshot.deployment.subscriptions)
    return JSONResponse({"time_ms": (await here.status())["time_ms"], "revision": snapshot.revision, **document})


def _page(wanted: AttainmentPage, found: list[Attained], subscriptions: Mapping[str, Subscription]) -> dict[str, Any]:
    chosen = [each for each in found if wanted.fits(each, subscriptions.get(each.name))]
    listed = wanted.listed(chosen)
    return {
        "total": len(listed),
        "states": counted(chosen),
        "rows": [each.to_document() for each in listed[wanted.offset : wanted.offset + wanted.limit]],
        "heat": heat(chosen),
        "cells": [[each.name, each.ratio, each.state] for each in listed] if len(listed) <= _CELLS else None,
    }


def _in_state(each: Attained, state: str) -> bool:
    return each.state in UNWELL if state == "unwell" else each.state == state


def _sortable(value: Any) -> tuple[bool, Any]:
    """What is not known comes last."""
    return value is None, 0 if value is None else value
