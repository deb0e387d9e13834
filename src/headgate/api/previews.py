"""Preview of a subscription: what its filter means, which share of recent rows it matches, what links would carry."""

from __future__ import annotations

import asyncio
from typing import Any

from headgate.api.gateway import UserGateway
from headgate.api.routing import Here, open_to_users, router
from headgate.api.subscriptions import New
from headgate.catalog import parse_subscription
from headgate.fabric.registry import User
from headgate.service.describing import filter_document, subscription_document
from headgate.service.preview_costs import costs_of
from headgate.service.previewing import preview
from headgate.service.proposing import measured_sizes
from headgate.service.sampled_share import read_sample
from headgate.service.user_preview import share_document, wish_document, wished

routes = router("subscriptions")


@routes.post("/preview", summary="What a subscription would match and cost, without making it")
@open_to_users
async def preview_subscription(here: Here, body: New) -> dict[str, Any]:
    """Checked like one that is made. The share is judged by the last rows that were committed.

    `share_at_most` differs from `share_at_least` where nobody takes the whole stream: rows that nobody wanted are not
    kept. `hops` has for each link of its path what it would carry in addition to what it carries now, `costs` what the
    plan would grant it and who would get less. A user is told the share by rows that were drawn at random, as a 95 %
    interval, and nothing of links and others.
    """
    if isinstance(here, UserGateway) and here.user is not None:
        return await _preview_of_user(here, here.user, body.name, dict(body.model_extra or {}))
    snapshot, planner, before = await here.snapshot(), await here.planner(), await here.granted()
    document = dict(body.model_extra or {})
    parts = await asyncio.to_thread(parse_subscription, body.name, document, snapshot.deployment)
    shares = []
    for part in parts:
        recent = await here.recent.get(here.client.fabric, snapshot.deployment.streams[part.stream])
        rate = here.rates.of("streams", part.stream, "rows_in")
        found = (await asyncio.to_thread(preview, snapshot, part, recent, planner, rate)).to_document()
        sizes, share = measured_sizes(planner), found["share_at_least"]
        costs = await asyncio.to_thread(costs_of, snapshot, part, share, sizes, before, here.compared)
        shares.append({**found, "costs": None if costs is None else costs.to_document()})
    first = parts[0]
    filtered = await asyncio.to_thread(filter_document, first, snapshot.deployment.streams[first.stream])
    return {"subscription": subscription_document(first), "filter": filtered, "parts": shares}


async def _preview_of_user(here: UserGateway, user: User, name: str, document: dict[str, Any]) -> dict[str, Any]:
    whole = here.whole
    snapshot = await whole.snapshot()
    streams = snapshot.deployment.streams
    parts = await here.questions.ask(lambda: wished(snapshot, user, name, document))
    samples = {part.asked.stream: await read_sample(whole.client.fabric, streams[part.asked.stream]) for part in parts}
    rates = {stream: whole.rates.of("streams", stream, "rows_in") for stream in samples}

    def judge() -> dict[str, Any]:
        named = [(part, part.asked.stream) for part in parts]
        first, stream = named[0]
        shares = [share_document(part, streams[each], samples[each], rates[each]) for part, each in named]
        return {**wish_document(first, user, streams[stream]), "parts": shares}

    return await here.questions.ask(judge)
