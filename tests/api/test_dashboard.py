"""The dashboard in Chromium, on a deployment that runs: what each page says, by mouse and by keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.api.browser import logged_in, serious, visit

from headgate.protocol.reports import CostPoint, TunedStep, TuningReport
from headgate.wire.message import json_text
from headgate_studies.testing.browser import open_chromium, why_not
from headgate_studies.testing.showcase import Showcase, Stage, document

pytestmark = [pytest.mark.nats, pytest.mark.live, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, nats_url: str) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("showcase"), nats=nats_url, namespace="showcase") as found:
        yield found


@pytest.fixture(scope="module")
def page(stage: Stage) -> Iterator[Any]:
    with open_chromium() as browser, logged_in(browser, stage.showcase) as found:
        yield found


def test_a_link_is_shown_as_declared_and_as_used(page: Any) -> None:
    visit(page, "sites?link=london-%3Eship", "Sites and links")
    chosen = page.locator("tr.chosen")
    for place, words in ((3, "bit/s"), (5, re.compile("bit/s.*arrives"))):  # after a second report of the relays
        chosen.locator("td").nth(place).filter(has_text=words).wait_for()
    cells = chosen.locator("td").all_inner_texts()
    assert cells[0] == "fleet, weather"
    assert cells[2] == "48 kbit/s\ncapacity"
    assert re.fullmatch(r"(≥ )?\d+(\.\d)? k?bit/s.*", cells[3], re.DOTALL)
    assert re.fullmatch(r"\d+(\.\d)? k?bit/s\narrives \d+(\.\d)? k?bit/s", cells[5])
    page.get_by_text("declared 48 kbit/s (capacity), measured").wait_for()
    page.locator(".chart .one[d]").first.wait_for()
    page.get_by_role("button", name="paris", exact=True).click()
    page.get_by_role("heading", name="paris", exact=True).wait_for()
    page.get_by_text("Upload 200 kbit/s, download 20 Mbit/s").wait_for()
    assert page.url.endswith("site=paris")
    page.get_by_label("Another upload").fill("much")
    page.get_by_role("button", name="Change").click()
    page.get_by_role("alert").wait_for()
    page.get_by_label("Another upload").fill("208 kbit/s")
    page.get_by_role("button", name="Change").click()
    page.get_by_text("The upload of paris is 208 kbit/s since revision").wait_for()
    page.get_by_text("Upload 208 kbit/s, download 20 Mbit/s").wait_for()


def test_dead_letters_have_their_reason(page: Any) -> None:
    visit(page, "streams?stream=pulse", "Streams")
    page.get_by_text("column 'spo2' is not an int").first.wait_for()
    page.get_by_text("patient string, key").wait_for()


def test_a_subscription_shows_its_path_its_ledger_and_its_rows(page: Any) -> None:
    visit(page, "subscription/fleet-port", "fleet-port")
    page.locator(".path .stop", has_text="ship").wait_for()
    assert page.locator(".path .stop").all_inner_texts() == ["paris", "london", "ship"]
    page.get_by_text("by max_age").first.wait_for()  # given up, told in the live sample
    page.get_by_text("max(speed)").first.wait_for()
    ledger = page.get_by_role("region", name="Ledger")
    ledger.get_by_text("max_age").wait_for()  # acknowledged a little later
    terms = [int(each.replace(",", "")) for each in ledger.locator("tr td:nth-child(2)").all_inner_texts()]
    matched, delivered, reduced, expired, in_flight, difference = terms
    assert matched == delivered + reduced + expired + in_flight
    assert (difference, reduced > 0) == (0, True)
    visit(page, "subscription/fleet-tens", "fleet-tens")
    page.get_by_text("Each row comes over both, and is delivered once").wait_for()
    ways = [page.get_by_role("list", name=name, exact=True).locator(".stop") for name in ("Path", "Second path")]
    assert [way.all_inner_texts() for way in ways] == [["paris", "lyon", "rome"], ["paris", "rome"]]
    page.get_by_text("of the stream's rows").wait_for()
    visit(page, "subscription/weather-quarter", "weather-quarter")
    page.get_by_text("every 2 by 2 points").wait_for()
    painted = page.evaluate(
        """() => { const canvas = document.querySelector('canvas.field');
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        return data.filter((_, place) => place % 4 === 3 && data[place]).length }"""
    )
    assert painted > 1000


def test_a_subscription_is_previewed_made_and_ended(page: Any) -> None:
    visit(page, "new?stream=fleet&site=madrid", "New subscription")
    page.get_by_label("Name").fill("slow-ones")
    page.get_by_label("Which rows").fill("sped < 10")
    page.get_by_text("did you mean 'speed'?").wait_for()
    page.get_by_label("Which rows").fill("speed < 1000 and speed < 2000")
    page.get_by_text("of the last").wait_for()
    assert page.locator(".share").inner_text() == "100 %"  # fleet-all takes the whole stream, so that it is exact
    assert page.locator("pre").inner_text() == "speed < 1000"
    page.get_by_text("paris → lyon").wait_for()
    page.get_by_text("nothing more: it carries these rows already").first.wait_for()  # fleet-dispatch is at lyon
    page.get_by_role("button", name="Make it").click()
    page.get_by_role("heading", name="slow-ones", level=1).wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Pause").wait_for()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="End", exact=True).click()
    page.wait_for_url("**/#/subscriptions")
    page.get_by_text("of 17 subscriptions").wait_for()


def test_why_is_answered_on_the_page(page: Any) -> None:
    visit(page, "why?subscription=fleet-faults", "Why did a row not come?")
    page.get_by_label("Which row").fill("status = 'moving'")
    page.get_by_role("button", name="Ask").click()
    page.locator(".tag", has_text="unmatched").wait_for()
    assert "status = 'fault'" in page.locator(".paragraph").inner_text()
    page.get_by_label("The row is named by").select_option("seq")
    page.get_by_label("Which row").fill("999999999")
    page.keyboard.press("Enter")
    page.locator(".tag", has_text="unread").wait_for()
    page.get_by_label("The row is named by").select_option("where")
    page.get_by_label("Which row").fill("speed > 1e6")
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("heading", name="No such row").wait_for()
    answer = "async () => (await fetch('/api/subscriptions/fleet-faults/why?where=speed%20%3E%201e6')).json()"
    found = page.evaluate(answer)
    assert page.locator(".tag", has_text=found["fate"]).count() == 1
    same = found["text"].partition(" of 'fleet'")[2]  # rows go on coming
    assert page.locator(".paragraph").inner_text().endswith(same)


def test_what_if_is_asked_by_a_slider(page: Any) -> None:
    visit(page, "plan", "Plan")
    slider = page.get_by_label("Link london to ship")
    slider.focus()
    for _ in range(24):
        page.keyboard.press("ArrowRight")
    page.get_by_text("link london-ship capacity=384000bit/s").wait_for()
    better = page.get_by_role("region", name="Subscriptions that would get more or less")
    better.locator("a", has_text="fleet-port").wait_for()
    assert page.locator(".tree li").first.inner_text().startswith("paris")


def test_a_plan_is_proposed_and_refused_by_the_operator(page: Any) -> None:
    visit(page, "plan", "Plan")
    page.get_by_role("button", name="Propose one now").click()
    page.locator(".tag", has_text="pending").wait_for()
    proposed = page.locator("section", has=page.get_by_role("heading", name="Proposed plan"))
    said = re.search(r"(\d+) moves?\.", proposed.inner_text())
    assert said is not None
    moved = proposed.get_by_role("region", name="Who gets another parent").locator("tbody tr").all_inner_texts()
    assert len(moved) == int(said[1]) > 0
    before = document()["plan"]
    for site, stream, parent, after in (each.split("\t") for each in moved):
        assert before[stream].get(site, "joins") == parent != after
    page.get_by_role("button", name="Reject").click()
    page.locator(".tag", has_text="rejected").wait_for()
    page.locator("summary", has_text="Revision 1: apply").click()
    first = page.locator("details[open]")
    first.get_by_text("Nothing was predicted of it").wait_for()
    assert first.locator("tbody tr").first.inner_text().split("\t")[2] == "joins"


def test_tuning_is_shown_as_cost_over_time_with_each_transformation(stage: Stage, page: Any) -> None:
    step = TunedStep(
        run=1, time_ms=2_000_000, at_s=2.0, period=2, stream="fleet", transformation="child promotion", owner="lyon",
        moves={"madrid": "paris"}, revision=3, state="in force", cost_before=0.5, predicted=0.125, measured=0.25,
    )  # fmt: skip
    refused = TunedStep(
        run=1, time_ms=3_000_000, at_s=3.0, period=3, stream="fleet", transformation="child demotion", owner="lyon",
        moves={"rome": "paris"}, revision=0, state="refused", why="the plan has changed",
    )  # fmt: skip
    costs = [CostPoint(time_ms=1000_000 * at, at_s=at, period=at, cost=0.5 / at, sites=8) for at in (1, 2, 4)]
    report = TuningReport(
        time_ms=4_000_000, state="settled", run=1, objective="minimise sum delay", modes=["bottleneck"], every_s=30.0,
        cost=0.125, costs=costs, steps=[step, refused],
    )  # fmt: skip

    async def tell(showcase: Showcase) -> None:
        fabric = showcase.client.fabric
        await fabric.publish(fabric.logs.stats("tuning", "_"), report.encode())

    stage.ask(tell)
    visit(page, "plan", "Plan")
    tuning = page.locator("section", has=page.get_by_role("heading", name="Tuning", exact=True))
    tuning.get_by_text("settled").wait_for()
    lines = tuning.locator("tbody tr").all_inner_texts()
    assert ["child demotion" in lines[0], "refused" in lines[0]] == [True, True]  # the newest first
    assert [each in lines[1] for each in ("madrid below paris", "0.5", "+0.125", "+0.25", "in force")] == [True] * 5
    assert tuning.locator(".chart .mark").count() == 1  # what was refused changed no cost
    assert tuning.locator(".chart .mark title").text_content() == "child promotion: madrid below paris"
    assert serious(page) == []


def test_the_frame_works_by_keyboard_and_remembers_the_theme(page: Any) -> None:
    visit(page, "why", "Why did a row not come?")
    page.reload()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    theme = page.get_by_role("button", name="Theme")
    for name in ("light", "dark"):
        theme.click()
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == name
    page.reload()
    assert theme.inner_text() == "Theme: dark"
    theme.click()
    assert theme.inner_text() == "Theme: system"
    assert page.locator("nav [aria-current=page]").inner_text() == "Why"


PAGES = [
    ("", "Overview"),
    ("sites?link=london-%3Eship", "Sites and links"),
    ("subscriptions", "Subscriptions"),
    ("subscription/fleet-port", "fleet-port"),
    ("new", "New subscription"),
    ("streams?stream=pulse", "Streams"),
    ("plan", "Plan"),
    ("why?subscription=fleet-faults&by=where&value=speed%20%3E%200", "Why did a row not come?"),
]


@pytest.mark.parametrize(("place", "heading"), PAGES)
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_window(page: Any, place: str, heading: str) -> None:
    visit(page, place, heading)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert serious(page) == []
    for width in (360, 3840, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width


def test_somebody_without_a_session_sees_no_page(stage: Stage) -> None:
    import httpx

    showcase: Showcase = stage.showcase
    with httpx.Client(base_url=showcase.address, trust_env=False) as http:
        assert http.get("/static/app/main.js").status_code == 401
        headers = {"Authorization": f"Bearer {showcase.token}"}
        found = http.get("/static/app/main.js", headers=headers)
        assert found.headers["content-type"].startswith("text/javascript")
        assert "script-src 'self'" in found.headers["content-security-policy"]
        again = http.get("/static/app/main.js", headers={**headers, "If-None-Match": found.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        for name in ("app/../../app.py", "app", "%2e%2e/app.py", "app/missing.js"):
            assert http.get(f"/static/{name}", headers=headers).status_code == 404


READ = """async ([name, wanted, holds]) => {
  const { HeadgateClient } = await import('/static/client/headgate-client.js');
  const states = [];
  const client = new HeadgateClient(undefined, { onState: (state) => states.push(state), longestWaitMs: 300 });
  const rows = [], spans = [];
  for await (const delivery of client.subscribe(name, { maxRows: 7 })) {
    spans.push([delivery.after, delivery.upto]);
    rows.push(...delivery.rows);
    window.got = rows.length;
    if (rows.length >= holds[0]) {  // a delivery is in the hands of the application when the connection is cut
      holds.shift();
      const before = states.filter((state) => state === 'waiting').length;
      const cut = () => states.filter((state) => state === 'waiting').length > before;
      while (!cut()) await new Promise((done) => setTimeout(done, 5));
    }
    if (rows.length >= wanted) break;
  }
  client.close();
  return { rows, spans, states };
}"""


async def _cut(showcase: Showcase) -> int:
    """Cut every web socket below the application, as a network does."""
    import gc

    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    found = [each for each in gc.get_objects() if isinstance(each, WebSocketsSansIOProtocol)]
    for each in found:
        each.transport.abort()
    return len(found)


def test_the_client_gets_what_python_gets_through_cuts(stage: Stage, page: Any) -> None:
    """Two subscriptions of one class, one read by the page through three cuts, one by the Python client."""
    wanted = 240

    async def make(showcase: Showcase) -> None:
        document = {"stream": "fleet", "site": "rome", "where": "speed > 5", "select": ["vehicle", "speed", "at"]}
        names = {"read-js": document, "read-py": document}
        await showcase.client.control("subscribe", subscriptions=names, change=False)

    async def read(showcase: Showcase) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async for delivery in await showcase.client.subscribe("read-py"):
            pairs = zip(delivery.seqs.tolist(), delivery.to_pylist(), strict=True)
            found += [json.loads(json_text({"_seq": seq, **row})) for seq, row in pairs]
            if len(found) >= wanted:
                return found
        raise AssertionError("it ended")

    async def end(showcase: Showcase) -> None:
        await showcase.client.control("unsubscribe", names=["read-js", "read-py"])

    stage.ask(make)
    visit(page, "", "Overview")
    reading = page.evaluate_handle(f"(given) => {{ window.reading = ({READ})(given) }}", ["read-js", wanted, [20, 160]])
    for place in (20, 90, 160):  # at 90 wherever it is
        page.wait_for_function("place => window.got >= place", arg=place)
        assert stage.ask(_cut) >= 1
    found = page.evaluate("() => window.reading")
    assert found["states"].count("waiting") >= 2
    assert found["rows"][:wanted] == stage.ask(read)[:wanted]
    assert all(before[1] == after[0] for before, after in pairwise(found["spans"]))
    reading.dispose()
    stage.ask(end)


def test_the_client_says_why_it_cannot_read(page: Any) -> None:
    visit(page, "", "Overview")
    refused = page.evaluate(
        f"given => ({READ})(given).catch((error) => [error.name, error.status, error.message])", ["nobody", 1, []]
    )
    assert refused[:2] == ["HeadgateError", 404]
    assert "no subscription 'nobody'" in refused[2]


def test_the_types_of_the_client_name_what_it_exports() -> None:
    place = Path(__file__).parents[2] / "src/headgate/api/static/client"
    exported = re.compile(r"^export (?:class|const|function) (\w+)", re.MULTILINE)
    assert exported.findall((place / "headgate-client.js").read_text()) == exported.findall(
        (place / "headgate-client.d.ts").read_text()
    )


# What was measured takes ten seconds to be there, so these come last.


def test_the_overview_names_who_is_not_served_and_the_link(page: Any) -> None:
    visit(page, "", "Overview")
    verdict = page.locator(".verdict", has_text="The link london → ship is the reason")
    verdict.filter(has_text="not get what they contracted").wait_for()
    worst = page.locator("section", has=page.get_by_role("heading", name="Who does not get what they asked for"))
    for name in ("fleet-port", "weather-ship"):
        worst.locator("li a", has_text=name).wait_for()
    assert page.locator(".map .site").count() == 8
    assert page.locator(".map .second").count() == 1  # of fleet-tens
    assert page.locator(".map .land").get_attribute("d").startswith("M")
    page.locator("#pulse-text", has_text="not met").wait_for()
    page.locator(".map a.site", has_text="ship").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/#/sites?site=ship")


def test_subscriptions_are_searched_sorted_and_filtered_by_the_server(page: Any) -> None:
    visit(page, "subscriptions", "Subscriptions")
    rows = page.locator("tbody tr").filter(has=page.locator(".tag"))
    page.get_by_text("1 to 17 of 17 subscriptions").wait_for()
    rows.first.locator(".tag", has_text="below contract").wait_for()
    page.get_by_label("Name or filter").fill("cardio")  # in the filter, not in the name
    page.get_by_text("1 to 1 of 1 subscription").wait_for()
    assert rows.first.locator("a").inner_text() == "pulse-ward"
    page.get_by_label("Name or filter").fill("")
    page.get_by_label("State").select_option("unwell")
    page.wait_for_function("() => document.querySelectorAll('.tag').length < 17")
    assert "state=unwell" in page.url
    page.get_by_label("State").select_option("")
    page.get_by_role("button", name="Delivered").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")  # the other way round
    page.locator("th[aria-sort=descending]").wait_for()
    table = page.get_by_role("region", name="Subscriptions", exact=True)
    counts = [int(each.replace(",", "")) for each in table.locator("tbody tr td:nth-child(9)").all_inner_texts()]
    assert counts == sorted(counts, reverse=True)
    page.get_by_role("button", name="fleet at rome").click()
    page.get_by_text("1 to 1 of 1 subscription").wait_for()
    assert rows.first.locator("a").inner_text() == "fleet-tens"
