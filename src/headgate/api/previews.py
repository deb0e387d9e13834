"""Preview of a subscription: what its filter means, which share of recent rows it matches, what links would carry."""

from __future__ import annotations

import asyncio
from typing import Any

from headgate.api.routing import Here, router
from headgate.api.subscriptions import New
from headgate.catalog import parse_subscription
from headgate.service.describing import filter_document, subscription_document
from headgate.service.previewing import preview

routes = router("subscriptions")


@routes.post("/preview", summary="What a subscription would match and cost, without making it")
async def preview_subscription(here: Here, body: New) -> dict[str, Any]:
    """Checked like one that is made. The share is judged by the last rows that were committed.

    `share_at_most` differs from `share_at_least` where nobody takes the whole stream: rows that nobody wanted are not
    kept. `hops` has for each link of its path what it would carry in addition to what it carries now.
    """
    snapshot, planner = await here.snapshot(), await here.planner()
    document = dict(body.model_extra or {})
    parts = await asyncio.to_thread(parse_subscription, body.name, document, snapshot.deployment)
    shares = []
    for part in parts:
        recent = await here.recent.get(here.client.fabric, snapshot.deployment.streams[part.stream])
        rate = here.rates.of("streams", part.stream, "rows_in")
        found = await asyncio.to_thread(preview, snapshot, part, recent, planner, rate)
        shares.append(found.to_document())
    first = parts[0]
    filtered = await asyncio.to_thread(filter_document, first, snapshot.deployment.streams[first.stream])
    return {"subscription": subscription_document(first), "filter": filtered, "parts": shares}
