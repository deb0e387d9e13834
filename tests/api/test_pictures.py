"""Pictures of the dashboard in the documentation: all there, small, and taken of the dashboard as it is."""

from __future__ import annotations

import json
from pathlib import Path

from headgate_studies.testing.dashboard import PAGES, TAKEN_OF, THEMES, TUNING, dashboard_digest

DIRECTORY = Path(__file__).parents[2] / "docs" / "assets" / "dashboard"
HOW = "make pictures"


def test_pictures_are_of_the_dashboard_as_it_is() -> None:
    taken = json.loads((DIRECTORY / TAKEN_OF).read_text())
    assert taken["sha256"] == dashboard_digest(), f"the dashboard has changed: look at it, and run `{HOW}`"


def test_every_page_has_a_small_picture_in_both_themes() -> None:
    sizes = {file.stem: file.stat().st_size for file in DIRECTORY.glob("*.webp")}
    assert sizes.keys() == {f"{name}-{theme}" for name in (*PAGES, TUNING) for theme in THEMES}
    assert all(size < 150_000 for size in sizes.values()), sizes
