"""What the browser tests share: pages that are logged in, and what a page must never do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headgate_studies.testing.showcase import Showcase

AXE = "axe_playwright_python"


@contextmanager
def logged_in(browser: Any, showcase: Showcase, **settings: Any) -> Iterator[Any]:
    """A page that is logged in; it fails the test if the page logs an error or breaks the content policy."""
    with browser.new_context(viewport={"width": 1280, "height": 800}, **settings) as context:
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console", lambda said: errors.append(f"{said.location['url']}: {said.text}") if _is_error(said) else None
        )
        page.set_default_timeout(60_000)
        page.goto(showcase.login())
        yield page
        assert not errors, errors


def _is_error(said: Any) -> bool:
    """Chromium logs every refused request; one that was refused for what it says (422) is part of a test."""
    return bool(said.type == "error" and "status of 422" not in said.text)


def visit(page: Any, place: str, heading: str) -> None:
    """Go to a page by its address, and wait until it is there."""
    page.evaluate("place => { location.hash = place }", f"#/{place}")
    page.get_by_role("heading", name=heading, level=1).wait_for(state="attached")
    page.locator("main[data-fresh]").wait_for()


def serious(page: Any) -> list[str]:
    """What axe-core finds on a page that is serious or worse, each with where it is."""
    import importlib.util

    found = importlib.util.find_spec(AXE)
    assert found is not None
    assert found.submodule_search_locations is not None
    script = Path(found.submodule_search_locations[0]) / "axe.min.js"
    page.evaluate(script.read_text())
    results = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in results
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
