"""Pictures of the dashboard for the documentation, and how quick it is, from a deployment that runs.

``python -m headgate_studies.testing.dashboard pictures docs/assets/dashboard`` takes every page in light and dark and
writes down which files of the dashboard they were taken of; a test fails when those have changed since.
``python -m headgate_studies.testing.dashboard measure --subscriptions 1000`` prints when the first page was painted and
loaded, and for each page the longest task, script time and layout shift while so many subscriptions change every
second; with ``--relays`` their rows are delivered to their inboxes as well. ``search --subscriptions 10000`` prints
how long the page takes to find some of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from headgate.api.pages import static_files
from headgate_studies.testing.browser import open_chromium
from headgate_studies.testing.showcase import Stage

PAGES: Final = {
    "overview": "",
    "sites": "sites?link=london-%3Eship",
    "subscriptions": "subscriptions",
    "subscription": "subscription/weather-map",
    "new": "new?stream=fleet&site=rome&where=speed%20%3E%2020%20and%20status%20%3D%20%27moving%27",
    "streams": "streams?stream=pulse",
    "plan": "plan",
    "why": "why?subscription=fleet-port&by=where&value=speed%20%3E%2030",
}
"""Every page by the name of its picture, with its address."""
TUNING: Final = "tuning"
"""The picture of the plan page of a deployment that the live tuner owns."""
THEMES: Final = ("light", "dark")
TAKEN_OF: Final = "taken-of.json"
"""The file beside the pictures that says what they were taken of."""
_WIDTH: Final = 1280
_HEIGHT: Final = 800
_SETTLE_S: Final = 40.0
_WATCH: Final = """() => {
  window.longest = [];
  window.shift = 0;
  new PerformanceObserver((list) => window.longest.push(...list.getEntries().map((each) => each.duration)))
    .observe({ type: 'longtask', buffered: true });
  new PerformanceObserver((list) => list.getEntries().forEach((each) => { window.shift += each.value; }))
    .observe({ type: 'layout-shift', buffered: true });
}"""
_LOAD: Final = """() => {
  const [load] = performance.getEntriesByType('navigation');
  const paint = performance.getEntriesByName('first-contentful-paint')[0];
  const files = performance.getEntriesByType('resource').filter((each) => each.name.includes('/static/'));
  return { first_paint_ms: paint.startTime, loaded_ms: load.loadEventEnd, files: files.length,
           bytes: files.reduce((sum, each) => sum + each.decodedBodySize, load.decodedBodySize) };
}"""


_COUNT: Final = """() => {
  window.changes = 0;
  new MutationObserver((list) => { window.changes += list.length; })
    .observe(document.querySelector('main'), { subtree: true, childList: true, characterData: true, attributes: true });
}"""


def dashboard_digest() -> str:
    """What the pictures depend on: every file that a page of the dashboard is made of."""
    digest = hashlib.sha256()
    for name, file in sorted(static_files().items()):
        if name == "index.html" or name.startswith(("app/", "client/")):
            digest.update(f"{name}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def take_pictures(directory: Path, only: Sequence[str] = ()) -> None:
    """Take every page in both themes, or only some of them where the others have not changed."""
    directory.mkdir(parents=True, exist_ok=True)
    wanted = {name: place for name, place in PAGES.items() if not only or name in only}
    if wanted:
        _take_pages(directory, wanted)
    if not only or TUNING in only:
        _take_tuning(directory)
    (directory / TAKEN_OF).write_text(json.dumps({"sha256": dashboard_digest()}) + "\n")


def _take_pages(directory: Path, wanted: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory() as state, Stage(Path(state)) as stage, open_chromium() as browser:
        time.sleep(_SETTLE_S)  # until the planner has measured, and the charts have lines
        for theme in THEMES:
            with browser.new_context(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme=theme) as context:
                page = context.new_page()
                page.goto(stage.showcase.login())
                for name, place in wanted.items():
                    page.evaluate("place => { location.hash = place }", f"#/{place}")
                    page.locator("main[data-fresh]").wait_for()
                    page.wait_for_timeout(6000 if name in ("subscription", "sites", "plan") else 2500)
                    if name == "plan":
                        _ask_what_if(page)
                    if name == "why":
                        page.locator(".paragraph").wait_for()
                    whole = name in ("subscription", "sites")  # the field, and the links, are further down
                    path = directory / f"{name}-{theme}.webp"
                    page.screenshot(path=str(path), type="webp", quality=70 if whole else 80, full_page=whole)


def _take_tuning(directory: Path) -> None:
    """Take the plan page of the same deployment, owned by the live tuner, when that has done something."""
    with tempfile.TemporaryDirectory() as state, Stage(Path(state), tuned=True) as stage, open_chromium() as browser:
        for theme in THEMES:
            with browser.new_context(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme=theme) as context:
                page = context.new_page()
                page.goto(stage.showcase.login())
                page.evaluate("place => { location.hash = place }", "#/plan")
                panel = page.locator("section", has=page.get_by_role("heading", name="Tuning", exact=True))
                panel.locator("tbody tr", has_text="in force").nth(1).wait_for(timeout=240_000)
                page.wait_for_timeout(20_000)  # until what was done last is measured
                heading = page.get_by_role("heading", name="Tuning", exact=True).element_handle()
                page.evaluate("node => scrollTo(0, node.getBoundingClientRect().top + scrollY - 90)", heading)
                page.screenshot(path=str(directory / f"{TUNING}-{theme}.webp"), type="webp", quality=80)


def _ask_what_if(page: Any) -> None:
    """Ask what more capacity to the ship would do, and for a better plan, so that the picture has answers."""
    page.get_by_label("Link london to ship").fill("16")
    page.get_by_role("region", name="Subscriptions that would get more or less").wait_for(timeout=180_000)
    page.get_by_role("button", name="Propose one now").click()
    page.get_by_role("region", name="Who gets another parent").first.wait_for(timeout=180_000)
    heading = page.get_by_role("heading", name="What if").element_handle()
    page.evaluate("node => scrollTo(0, node.getBoundingClientRect().top + scrollY - 90)", heading)


_TIMES: Final = {"ScriptDuration": "script_s", "TaskDuration": "tasks_s", "LayoutDuration": "layout_s"}
"""What the DevTools protocol calls the seconds that a page has spent, and what they are called here."""


def _spent(session: Any) -> dict[str, float]:
    """What the page has spent since it was watched, in seconds of the browser's main thread."""
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return {ours: metrics[theirs] for theirs, ours in _TIMES.items()}


def measure(subscriptions: int, seconds: float, *, relays: bool = False) -> dict[str, Any]:
    """Load the first page and watch every page for a while: paint, load, bytes, layout shift, tasks and script time."""
    found: dict[str, Any] = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "of_subscriptions": subscriptions,
        "relays": relays,
        "load_of_machine": os.getloadavg()[0],
    }
    with (
        tempfile.TemporaryDirectory() as state,
        Stage(Path(state), many=subscriptions, relays=relays) as stage,
        open_chromium() as browser,
        browser.new_context(viewport={"width": _WIDTH, "height": _HEIGHT}) as context,
    ):
        page = context.new_page()
        page.goto(stage.showcase.login())
        page.locator("main[data-fresh]").wait_for(timeout=60_000)
        session = context.new_cdp_session(page)
        session.send("Performance.enable")
        before = _spent(session)
        page.reload()  # the first one has waited for the deployment to start
        page.locator("main[data-fresh]").wait_for(timeout=60_000)
        spent = _spent(session)
        found |= page.evaluate(_LOAD)
        found |= {f"loading_{key.removesuffix('_s')}_ms": _ms(spent[key] - before[key], 1) for key in spent}
        page.evaluate(_WATCH)
        found["loading_layout_shift"] = page.evaluate(_SHIFT)
        for name in ("overview", "subscriptions", "subscription", "sites"):
            page.evaluate(
                "place => { location.hash = place; window.longest = []; window.shift = 0 }", f"#/{PAGES[name]}"
            )
            page.locator("main[data-fresh]").wait_for(timeout=60_000)
            page.evaluate(_COUNT)
            before = _spent(session)
            page.wait_for_timeout(1000 * seconds)
            spent = _spent(session)
            tasks = page.evaluate("() => window.longest")
            found[name] = {
                "longest_task_ms": max(tasks, default=0),
                "tasks_over_50_ms": len(tasks),
                **{f"{key.removesuffix('_s')}_ms_a_second": _ms(spent[key] - before[key], seconds) for key in spent},
                "layout_shift": round(page.evaluate("() => window.shift"), 4),
                "changes_a_second": round(page.evaluate("() => window.changes") / seconds, 1),
            }
    return found


_SHIFT: Final = """() => new Promise((done) => setTimeout(() => done(window.shift)))"""


def _ms(spent_s: float, seconds: float) -> float:
    return round(1000 * spent_s / seconds, 2)


def search(subscriptions: int) -> dict[str, Any]:
    """How long the page takes until it shows some of so many subscriptions, for one word after another."""
    found: dict[str, Any] = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "of_subscriptions": subscriptions,
        "load_of_machine": os.getloadavg()[0],
    }
    began_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as state,
        Stage(Path(state), many=subscriptions) as stage,
        open_chromium() as browser,
        browser.new_context(viewport={"width": _WIDTH, "height": _HEIGHT}) as context,
    ):
        found["started_s"] = round(time.monotonic() - began_s, 1)
        page = context.new_page()
        page.set_default_timeout(600_000)
        page.goto(stage.showcase.login())
        page.locator("main[data-fresh]").wait_for()
        began_s = time.monotonic()
        page.evaluate("() => { location.hash = '#/subscriptions' }")
        page.get_by_text(f"of {subscriptions + 17:,} subscriptions").wait_for()
        found["opened_s"] = round(time.monotonic() - began_s, 2)
        page.evaluate(_WATCH)
        field, took_s = page.get_by_label("Name or filter"), []
        for number in (subscriptions // 2, 7, subscriptions - 1, subscriptions // 3, subscriptions // 7):
            name = f"vehicle-{number:04}"
            began_s = time.monotonic()
            field.fill(name)
            page.locator("tbody th a", has_text=name).first.wait_for()
            page.get_by_text(f"of {subscriptions + 17:,} subscriptions").wait_for(state="hidden")
            took_s.append(round(time.monotonic() - began_s, 2))
        found |= {"searches_s": took_s, "longest_task_ms": max(page.evaluate("() => window.longest"), default=0)}
    return found


def main() -> None:
    """Take pictures, or measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    pictures = verbs.add_parser("pictures")
    pictures.add_argument("directory", type=Path)
    pictures.add_argument("--only", nargs="*", default=[], choices=[*PAGES, TUNING])
    timing = verbs.add_parser("measure")
    timing.add_argument("--subscriptions", type=int, default=1000)
    timing.add_argument("--seconds", type=float, default=10.0)
    timing.add_argument("--relays", action="store_true")
    finding = verbs.add_parser("search")
    finding.add_argument("--subscriptions", type=int, default=10_000)
    given = parser.parse_args()
    if given.verb == "pictures":
        take_pictures(given.directory, given.only)
        for file in sorted(given.directory.glob("*.webp")):
            print(f"{file.name:30} {file.stat().st_size:8,} bytes")
    elif given.verb == "search":
        print(json.dumps(search(given.subscriptions), indent=1))
    else:
        print(json.dumps(measure(given.subscriptions, given.seconds, relays=given.relays), indent=1))


if __name__ == "__main__":
    main()
