"""Pictures of the documentation as a site: its landing page and three guides, from the site that `make docs` built.

``python -m headgate_studies.testing.site_pictures artifacts/site docs/assets/site`` takes them.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from headgate_studies.testing.browser import open_chromium

PAGES: Final = {
    "landing": "",
    "weather-grid": "howto/weather-grid.html",
    "thin-links": "howto/thin-links.html",
    "worker-groups": "howto/worker-groups.html",
}
"""Every page by the name of its picture, with its address."""
_WIDTH: Final = 1280
_HEIGHT: Final = 900


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *said: Any, **named: Any) -> None:
        """Say nothing of requests."""


@contextmanager
def _served(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def take_pictures(site: Path, directory: Path) -> None:
    """Take the pages of a built site."""
    if not (site / "index.html").is_file():
        raise SystemExit(f"{site}: expected the built site; run `make docs`")
    directory.mkdir(parents=True, exist_ok=True)
    with (
        _served(site) as address,
        open_chromium() as browser,
        browser.new_context(viewport={"width": _WIDTH, "height": _HEIGHT}) as context,
    ):
        page = context.new_page()
        for name, place in PAGES.items():
            page.goto(address + place)
            page.wait_for_timeout(1500)  # until drawings are drawn
            page.screenshot(path=str(directory / f"{name}.webp"), type="webp", quality=80)


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    take_pictures(given.site, given.directory)


if __name__ == "__main__":
    main()
