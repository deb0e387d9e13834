"""Advice on the policy of a subscription: what each level would drop of the rows that it got lately."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body
from pydantic import Field

from headgate.api.gateway import Gateway, UserGateway
from headgate.api.problems import ApiError
from headgate.api.routing import Here, open_to_users, router
from headgate.api.subscriptions import Strict
from headgate.client.names import known_names
from headgate.service.advising import PolicyQuestion, advise_on, subscription_rows

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
    if known_names(name, known) != [name]:
        raise ApiError(f"{name!r} has a part at each root of its stream", hint="ask for one of them", kind="conflict")
    whole: Gateway = here.whole if isinstance(here, UserGateway) else here
    snapshot = await whole.snapshot()
    subscription = snapshot.deployment.subscriptions[name].resume()
    stream = snapshot.deployment.streams[subscription.stream]
    shown = known.deployment.subscriptions[name]
    recent = await whole.recent.get(whole.client.fabric, stream)
    rate = whole.rates.of("streams", stream.name, "rows_in")
    policy = shown.resume().policy if body.policy is None else body.policy
    question = PolicyQuestion(policy, body.target, body.window, body.key)

    def judge() -> dict[str, Any]:
        rows = subscription_rows(recent, subscription, stream)
        share = rows.num_rows / max(recent.evaluated, 1)
        found = advise_on(
            rows, stream.schema.select(rows.schema.names), question, None if rate is None else rate * share
        )
        return found.to_document()

    return await here.questions.ask(judge)
