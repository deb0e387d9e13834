"""The page of a user who is no operator, in Chromium: its own subscriptions, and nothing that it was not granted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.api.browser import serious, visit
from tests.api.test_users import caller, served, token_of
from tests.service.test_grants import HIDDEN, World, world

from headgate.fabric.tokens import LOGIN
from headgate_studies.testing.browser import open_chromium, why_not

pytestmark = [pytest.mark.nats, pytest.mark.live, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]


def look(address: str, code: str) -> None:
    """What ada does on the page."""
    with open_chromium() as browser, browser.new_context() as context:
        page = context.new_page()
        refused: list[Any] = []
        page.on("response", lambda each: refused.append((each.status, each.url)) if each.status in (401, 403) else None)
        page.goto(f"{address}/login?code={code}")
        page.get_by_text("1 to 2 of 2 subscriptions").wait_for()
        assert page.locator("nav a:visible").all_inner_texts() == ["Subscriptions", "Why"]
        page.get_by_text("You are ada").wait_for()
        assert sorted(page.locator("tbody tr a").all_inner_texts()) == ["hers", "stopped"]
        visit(page, "subscription/stopped", "stopped")
        page.get_by_text("it names what you may not see any more").wait_for()
        visit(page, "new", "New subscription")
        page.get_by_label("Name").fill("fast-ones")
        page.get_by_label("Site to deliver at").fill("leaf")
        page.get_by_label("Which rows").fill("speed > 5")
        page.get_by_text("% of the rows of staff").wait_for()
        page.get_by_text("by 16 rows that were drawn at random").wait_for()
        assert "salary" not in page.locator("main").inner_text()
        page.get_by_role("button", name="Make it").click()
        page.get_by_role("heading", name="fast-ones", level=1).wait_for()
        page.get_by_role("region", name="Ledger").get_by_text("Matched").wait_for()
        assert serious(page) == []
        visit(page, "plan", "Subscriptions")  # an operator's page is not there
        page.get_by_text("of 3 subscriptions").wait_for()
        assert not [word for word in (*HIDDEN, "eves-4711") if word in page.content()]
        page.set_viewport_size({"width": 360, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert refused == []


@pytest.mark.long
def test_a_user_sees_and_makes_its_own_subscriptions_on_the_page(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here, served(here) as (address, _):
            await prepare(here, address)
            await asyncio.to_thread(look, address, token_of(here, "ada", LOGIN))
            made = (await here.operator.snapshot()).deployment.subscriptions["fast-ones"]
            assert (made.owner, made.site) == ("ada", "leaf")

    asyncio.run(run())


async def prepare(here: World, address: str) -> None:
    await (await here.user("ada", where="site = 'a'", columns=["id", "speed", "site"])).close()
    await (await here.user("eve")).close()
    wish = {"stream": "staff", "site": "leaf"}
    async with caller(address, token_of(here, "ada")) as ada:
        await ada("POST", "/api/subscriptions", 201, json={"name": "stopped", **wish, "where": "site <> 'b'"})
    await here.grant("ada", where="site = 'a'", columns=["id", "speed"])
    async with caller(address, token_of(here, "ada")) as ada, caller(address, token_of(here, "eve")) as eve:
        await ada("POST", "/api/subscriptions", 201, json={"name": "hers", **wish})
        await eve("POST", "/api/subscriptions", 201, json={"name": "eves-4711", **wish})
        found = await ada("GET", "/api/overview", 200)
        assert (found["links"], found["subscriptions"] <= 2, found["planner"].get("quality")) == ([], True, None)
        assert "eves-4711" not in str(await ada("GET", "/api/attainment", 200))
    await here.commit(0, 100)
