"""Chromium for tests and pictures of the dashboard: the one that the system has, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str | None:
    """Where Chromium is, None where there is none."""
    return next((found for name in _NAMES if (found := shutil.which(name)) is not None), None)


def why_not() -> str | None:
    """Why nothing can be done in a browser here, None where it can."""
    try:
        import playwright  # noqa: F401 - whether it is installed is what is asked
    except ImportError:
        return "playwright is not installed"
    return None if find_chromium() else "no chromium on PATH (apt-get install chromium)"


@contextmanager
def open_chromium() -> Iterator[Any]:
    """A browser of Playwright's synchronous API."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@asynccontextmanager
async def open_chromium_beside() -> AsyncIterator[Any]:
    """A browser of Playwright's asynchronous API, beside other work of an event loop."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            await browser.close()
