"""The table of `docs/reliability.md`, written from what `make chaos` has found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

BEGIN: Final = "<!-- chaos -->"
END: Final = "<!-- /chaos -->"


def chaos_table(document: Mapping[str, Any]) -> str:
    """The faults with how often each was tried and how long rows took to flow again.

    >>> faults = {"relay killed": {"tried": 2, "recovery_s": [1.0, 3.0]}}
    >>> counts = {"lost": 0, "twice": 0, "out_of_order": 0, "ledger_difference": 0, "seed": 1, "seconds": 60.0}
    >>> found = {"tried": faults, "rows": 10, "matched": 20, "moves": 3, "replans": 1, "worst_recovery_s": 3.0}
    >>> print(chaos_table({**found, **counts}).splitlines()[-1])
    | relay killed | 2 | nothing lost, twice or out of order | 2.0 s | 3.0 s |
    """
    bad = {name: document[name] for name in ("lost", "twice", "out_of_order") if document[name]}
    result = ", ".join(f"{count} rows {name}" for name, count in bad.items()) or "nothing lost, twice or out of order"
    load = f"{document['rows']:,} rows committed, {document['matched']:,} deliveries owed"
    changes = f"{document['moves']} moves of a subscription, {document['replans']} other plans"
    lines = [
        f"Seed {document['seed']}, {document['seconds'] / 60:.0f} minutes: {load}, {changes}.",
        f"Ledger difference {document['ledger_difference']}.",
        "",
        "| Fault | Tried | Result | Rows flow again after (median) | At most |",
        "|---|---|---|---|---|",
    ]
    for name, found in sorted(document["tried"].items()):
        times = found["recovery_s"]
        lines.append(f"| {name} | {found['tried']} | {result} | {median(times):.1f} s | {max(times):.1f} s |")
    return "\n".join(lines)


def write_page(page: Path, document: Mapping[str, Any]) -> None:
    """Replace the table of a page."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{chaos_table(document)}\n{END}{after}")
