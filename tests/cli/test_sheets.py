"""Tables for any terminal: numbers are whole at every width, and nothing is left out without a word."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from headgate.cli.sheets import Sheet
from headgate.cli.status_sheets import ledger_table, notes, service_line

TERMS = ("matched", "delivered", "reduced", "expired", "in_flight", "difference")


def shown(sheet: Sheet, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(sheet)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def document(count: int = 4) -> dict[str, object]:
    return {
        "subscriptions": {
            f"subscription-of-somebody-{n}": {
                **{term: 272_654_321 + 1000 * n + place for place, term in enumerate(TERMS)},
                "expired": 0,
                "level": 0,
                "commit_delay_ms": {"p50": 842.0 + n, "p99": 57_549.0},
                "event_delay_ms": {"p50": 1234.0 + n},
            }
            for n in range(count)
        }
    }


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
def test_every_number_is_whole_at_every_width(width: int) -> None:
    found = document()
    lines = shown(ledger_table(found, delays=True), width)
    assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert "…" not in text
    numbers = set(re.findall(r"[\d,]+", text))
    for each in found["subscriptions"].values():
        assert {f"{each[term]:,}" for term in TERMS if each[term]} <= numbers
        assert f"{each['event_delay_ms']['p50']:,.0f}" in numbers
    for head in ("matched", "deliv'd", "reduced", "expired", "flight", "diff", "level", "p50", "p99", "event"):
        assert head in text, "a column that is not shown is named"


def test_a_wide_terminal_has_one_block_with_all_columns() -> None:
    lines = shown(ledger_table(document(), delays=True), 160)
    assert len(lines) == 2 + 4
    assert "0 everywhere" not in "".join(lines)


def test_a_narrow_one_names_what_is_0_everywhere_and_goes_on_below() -> None:
    lines = shown(ledger_table(document(), delays=True), 80)
    assert sum(line.startswith("subscription ") for line in lines) == 2
    assert lines[-1] == "(0 everywhere: expired, level)"


def test_long_names_are_folded_and_empty_tables_are_titles() -> None:
    sheet = Sheet("links", "link", "bytes")
    assert shown(sheet, 80)[0] == "links"
    sheet.add_row("x" * 100, "1,234,567")
    lines = shown(sheet, 40)
    assert max(map(len, lines)) <= 40
    assert "".join(lines).count("x") == 100
    sheet = Sheet("links", "link", "bytes", "streams")
    sheet.add_row("a->b", "1,234,567", ", ".join(["weather"] * 12))
    lines = shown(sheet, 40)
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).count("weather") == 12
    assert sheet.row_count == 1
    with pytest.raises(ValueError, match="2 cells for 3 columns"):
        sheet.add_row("a", "b")


@pytest.mark.parametrize(
    ("state", "time_ms", "said"),
    [
        ("running", 59_000, "running; revision 7"),
        ("stopped", 0, "stopped at 1970-01-01 00:00:00 UTC, 60 s ago; revision 7"),
        ("silent", 0, "stopped without a word: last heard of at 1970-01-01 00:00:00 UTC, 60 s ago; revision 7"),
        ("unknown", None, "revision 7; whether it runs is not known"),
    ],
)
def test_the_first_line_says_whether_it_runs(state: str, time_ms: int | None, said: str) -> None:
    found = {"revision": 7, "time_ms": 60_000, "service": {"state": state, "time_ms": time_ms}}
    assert service_line(found) == said


def test_who_is_served_by_a_standby_is_named() -> None:
    """With the stream and the standby."""
    document = {"streams": {}, "sites": {"leaf": {"standbys": {"fleet": "root"}}}, "subscriptions": {}}
    assert notes(document) == ["leaf gets fleet from root for now, as its parent is silent"]
