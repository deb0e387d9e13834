"""A short run of `make chaos`: each fault once, on real processes; and the table of its page."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate_studies.testing.chaos_page import BEGIN, END, write_page
from headgate_studies.testing.havoc import FaultRecord, HavocOutcome, run_havoc


@pytest.mark.live
@pytest.mark.long
def test_every_reader_has_every_row_once_after_every_fault(tmp_path: Path) -> None:
    """A fault of each kind, in the order of the seed."""
    outcome = asyncio.run(run_havoc(3, 100.0, tmp_path))
    assert outcome.wrong == []
    assert (outcome.lost, outcome.twice, outcome.out_of_order, outcome.ledger_difference) == (0, 0, 0, 0)
    assert outcome.matched > outcome.rows > 0
    assert outcome.tried


def test_the_last_line_and_the_page_say_the_same(tmp_path: Path) -> None:
    """What is outside of the table stays."""
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    outcome = HavocOutcome(seed=4, rows=100, matched=300, tried={"server killed": FaultRecord(2, [1.0, 2.5])})
    document = outcome.document()
    assert (document["faults"], document["worst_recovery_s"]) == (2, 2.5)
    assert {"faults", "lost", "twice", "out_of_order", "ledger_difference"} <= document.keys()
    write_page(page, document)
    text = page.read_text()
    assert "| server killed | 2 | nothing lost, twice or out of order | 1.8 s | 2.5 s |" in text
    assert (text.startswith("# Title"), text.endswith("The end.\n"), "old" in text) == (True, True, False)
