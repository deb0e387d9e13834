"""Pictures of the site in the documentation: all there, small, and shown."""

from __future__ import annotations

from pathlib import Path

from headgate_studies.testing.site_pictures import PAGES

DOCS = Path(__file__).parents[2] / "docs"


def test_every_page_has_a_small_picture_that_is_shown() -> None:
    sizes = {file.stem: file.stat().st_size for file in (DOCS / "assets" / "site").glob("*.webp")}
    assert sizes.keys() == PAGES.keys()
    assert all(size < 150_000 for size in sizes.values()), sizes
    shown = (DOCS / "house.md").read_text()
    assert all(f"(assets/site/{name}.webp)" in shown for name in PAGES)


def test_what_a_picture_is_of_is_a_page() -> None:
    assert all((DOCS / (place or "index.html")).with_suffix(".md").is_file() for place in PAGES.values())
