"""Running a micro-batch again, as Spark does after a crash."""

import pyarrow as pa

from headgate.fabric import SyncFabric
from headgate.pipeline.match import MatchPass
from headgate.pipeline.staged import Staged
from headgate.pipeline.worker import worker


def replay(live, pin, rows, fresh):
    """What batch 1 of these rows stages by the pin that its first run chose; `fresh`: by a worker that just started."""
    with SyncFabric(live.address.url, live.address.logs) as fabric:
        if fresh:
            worker(live.address)._held.clear()
        index = live.keepers["fleet"].ensure(fabric, pin.version)
        work = MatchPass(live.address, "fleet", pin, index=index)
        nothing = pa.nulls(rows.num_rows, pa.string())
        marked = rows.append_column("_dead", nothing).append_column("_raw", nothing)
        return Staged.of(work(iter([marked])))
