"""What was published at sites and waits there to go up to the root of its stream, as a table."""

from __future__ import annotations

from typing import Any

from headgate.cli.sheets import Sheet
from headgate.service.findings import age


def outbox_tables(document: dict[str, Any]) -> list[Sheet]:
    """One line for each site and stream that something was published at; nothing where nothing ever was.

    A message counts as waiting or as taken, never as both; `repeated` are those that the root had already.
    """
    counted = ("waiting", "taken", "repeated")
    table = Sheet("published at sites (messages)", "stream", "site", *counted, "oldest", "problem")
    for name, stream in document["streams"].items():
        for site, each in (stream.get("outboxes") or {}).items():
            oldest = each["oldest_ms"]
            waits = "-" if oldest is None else age(document["time_ms"] - oldest)
            counts = (f"{each[key]:,}" for key in counted)
            table.add_row(name, site, *counts, waits, each["problem"] or "-")
    return [table] if table.row_count else []
