"""The model against the running system: the demo's deployment live at several bandwidths, drops beside predictions.

One deployment runs through. First without limits: rates, joint selectivities and bytes on the wire are measured as the
running service measures them, and for each scale of the demo's bandwidths the planner makes its plan from these. Then
the bandwidths and the plan are put in force, and after settling the drop is counted by the subscribers: rows declared
given up against rows owed, over the same range of the stream, until everybody was owed enough rows. Three predictions
stand beside it: from what is assumed before anything runs, from what was measured without limits, and from what the
service measures under this load. They differ by the bytes of a row alone: rows that are left after thinning are less
alike and compress worse, so much that a site a little over its upload may shed more or less of them and send the same
bytes. So bytes are measured while rows are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from headgate_studies.bench import model_live, model_virtual
from headgate_studies.bench.model_demo import WIDER, faster
from headgate_studies.bench.model_lines import Times, figures


def run(
    scales: Sequence[float] = (0.1, 0.07, 0.05),
    factor: float = 10.0,
    free_s: float = 20.0,
    settle_s: float = 60.0,
    seconds: float = 60.0,
    most_s: float = 150.0,
    rows: int = 10_000,
    shed_after: str = "2 s",
    trigger_s: float = 1.0,
    master: str = "local[2]",
    live: bool = True,
) -> dict[str, Any]:
    """Run the demo's deployment at `factor` times its rates and `factor` x scale times its bandwidths.

    At each scale it counts for `seconds`, and longer until everybody was owed so many `rows`, but not past `most_s`;
    whoever was owed fewer is not judged. With `live=false` the relays run in virtual time, without Spark and NATS, so
    that a busy machine does not count. A site that is 5 % over its upload needs 40 s until its rows wait for 2 s and it
    begins to shed: `settle_s`.
    """
    chosen = list(scales)
    demo, times = faster(factor, shed_after), Times(free_s, settle_s, seconds, max(most_s, seconds), rows)
    print(f"wider than in the demo, so that {rows:,} rows come in time: {', '.join(WIDER)}", flush=True)
    if live:
        lines, seen = asyncio.run(model_live.lines(demo, chosen, factor, times, master, trigger_s))
    else:
        lines, seen = model_virtual.lines(demo, chosen, factor, times), {}
    return {"live": live, "scales": chosen, "rate_factor": factor, **seen, **figures(lines, chosen, rows)}
