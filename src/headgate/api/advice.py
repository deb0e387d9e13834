"""Advice on the policy of a subscription: what each level would drop of the rows that it got lately."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body
from pydantic import Field

from headgate.api.gateway import Gateway, UserGateway
from headgate.api.routing import Here, open_to_users, router
from headgate.api.subscriptions import Strict
from headgate.service.advising import PolicyQuestion, advise_on, received_lately, the_one
from headgate.service.previewing import stream_rate

routes = router("subscriptions")


class AdviceBody(Strict):
    """Which policy to judge (the subscription's own where none is given), and how much of the rows may stay."""

    policy: Annotated[dict[str, Any] | None, Field(description="As in the deployment file.")] = None
    target: Annotated[
        float | Annotated[str, Field(max_length=64)],
        Field(description="A fraction, or a rate.", examples=[0.5, "50/s"]),
    ] = 0.5
    window: Annotated[int, Field(ge=1, le=100_000, description="Rows that a queue holds when it is packed.")] = 1000
    key: Annotated[str | None, Field(max_length=256, description="Key column for a policy that is made here.")] = None


@routes.post("/subscriptions/{name}/advice", summary="What each level of a policy would drop of recent rows")
@open_to_users
async def advise_policy(here: Here, name: str, body: Annotated[AdviceBody, Body()]) -> dict[str, Any]:
    """As `headgate policy advise`: levels as written and in a better order; `reaches` is the first that is enough.

    Nothing is changed. Without a policy, one that suits the columns is judged, and shown as `policy`.
    """
    known = await here.snapshot()
    shown = known.deployment.subscriptions[the_one(name, known)].resume()
    whole: Gateway = here.whole if isinstance(here, UserGateway) else here
    snapshot = await whole.snapshot()
    stream = snapshot.deployment.streams[shown.stream]
    recent = await whole.recent.get(whole.client.fabric, stream)
    rate = stream_rate(stream, await whole.planner(), whole.rates.of("streams", stream.name, "rows_in"))
    policy = shown.policy if body.policy is None else body.policy
    question = PolicyQuestion(policy, body.target, body.window, body.key)

    def judge() -> dict[str, Any]:
        found = received_lately(snapshot, name, recent, rate)
        return advise_on(found.rows, found.schema, question, found.rate_rows_per_s).to_document()

    return await here.questions.ask(judge)
