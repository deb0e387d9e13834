"""Who gets what they asked for: states and reasons, from documents as the status and the planner write them."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.model import Deployment, Plan, Quality, Site, Source, Stream, Subscription, Tree
from headgate.model.schema import Schema
from headgate.service.attainment import Attained, attainment, counted, heat
from headgate.wire.snapshot import Snapshot

NOW_MS = 100_000


def snapshot(at_least: float | None) -> Snapshot:
    stream = Stream("rows", Schema.of({"a": "int"}), Source("generator", {}), "root")
    subscription = Subscription("one", site="leaf", stream="rows", quality=Quality(0.1, 2.0, at_least=at_least))
    sites = {name: Site(name) for name in ("root", "mid", "leaf")}
    return Snapshot(
        revision=1,
        deployment=Deployment({"rows": stream}, sites, subscriptions={"one": subscription}),
        subscription_ids={"one": 1},
        class_ids={"one": 1},
        plan=Plan({"rows": Tree("rows", "root", {"mid": "root", "leaf": "mid"})}),
    )


def entry(**more: Any) -> dict[str, Any]:
    terms = {"matched": 10, "delivered": 4, "reduced": 3, "expired": 0, "in_flight": 3, "difference": 0}
    return {**terms, "oldest_ms": NOW_MS - 1000, "level": 0, "queues": {}, **more}


def judged(
    quality: float | None,
    at_least: float | None = None,
    losses: dict[str, float] | None = None,
    links: dict[str, Any] | None = None,
    **more: Any,
) -> Attained:
    status = {"time_ms": NOW_MS, "subscriptions": {"one": entry(**more)}, "links": links or {}}
    planner = {"subscriptions": {"one": {"quality": quality, "drop": 0.3, "delay_s": 1.0}}}
    return attainment(snapshot(at_least), status, planner, lambda link: (losses or {}).get(link))[0]


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({"quality": 0.5, "at_least": 0.8, "difference": 1}, "difference"),
        ({"quality": 0.79, "at_least": 0.8}, "below"),
        ({"quality": 0.8, "at_least": 0.8}, "well"),
        ({"quality": 0.8}, "less"),
        ({"quality": 1.0}, "well"),
        ({"quality": 1.0, "oldest_ms": NOW_MS - 31_000}, "waiting"),
        ({"quality": None}, "unmeasured"),
        ({"quality": None, "oldest_ms": None}, "unmeasured"),
    ],
)
def test_states(given: dict[str, Any], state: str) -> None:
    assert judged(**given).state == state


def test_the_link_that_gives_up_most_is_the_reason() -> None:
    found = judged(0.2, 0.8, {"root->mid": 3.0, "mid->leaf": 40.0, "root->other": 99.0})
    assert found.reason is not None
    assert (found.reason.link, found.reason.kind) == ("mid->leaf", "link")
    assert found.reason.text == "mid → leaf gives up 40 rows/s for want of bandwidth"


def test_where_rows_wait_is_the_reason_where_nobody_gives_up_any() -> None:
    queues = {"root->mid": {"rows": 4, "bytes": 1, "age_s": 1.0}, "mid->leaf": {"rows": 9, "bytes": 1, "age_s": 2.5}}
    found = judged(0.2, 0.8, {"root->mid": 0.0}, queues=queues)
    assert found.reason is not None
    assert found.reason.text == "9 rows wait for mid → leaf, the oldest for 2.5 s"
    inbox = judged(0.2, 0.8, queues={"inbox": {"rows": 2, "bytes": 1, "age_s": 0.1}})
    assert inbox.reason is not None
    assert inbox.reason.kind == "inbox"


def test_other_reasons() -> None:
    unread = judged(1.0, oldest_ms=0)
    assert unread.reason is not None
    assert unread.reason.kind == "reader"
    withheld = judged(0.5, withheld=0.25)
    assert withheld.reason is not None
    assert withheld.reason.text == "admission control withheld 25.0% of the stream under overload"
    before = judged(0.5, links={"root->mid": {"reduced": 7}, "mid->leaf": {"reduced": 0}})
    assert before.reason is not None
    assert before.reason.link == "root->mid"
    assert judged(1.0).reason is None


def test_heat_and_counts() -> None:
    found = [judged(0.4, 0.8), judged(0.9, 0.8), judged(None, 0.8)]
    assert counted(found) == {"difference": 0, "below": 1, "less": 0, "waiting": 0, "unmeasured": 1, "well": 1}
    (cell,) = heat(found)
    assert cell == {"stream": "rows", "site": "leaf", "count": 3, "unwell": 1, "worst": 0.5, "mean": 0.75}
