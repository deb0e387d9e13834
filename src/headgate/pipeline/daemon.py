"""The process that Spark forks its Python workers from, with what the match pass needs already imported.

Spark's own daemon imports nothing, so that every worker spends seconds on Arrow, Numba and Headgate before its first
row, after each start and again whenever an idle worker was replaced. A fork of this one has them. Nothing that starts a
thread may be imported here: a fork does not take threads along.

A worker looks for garbage after every task. What was imported is never garbage, so it is taken out of that search: it
took 45 ms of CPU in each of the two workers of a task, and it made every worker copy the pages that it shares with the
daemon.
"""

from __future__ import annotations

import gc
import os
import sys

from pyspark.daemon import manager


def preload(worker_module: str) -> bool:
    """Import what a worker of that module needs; true if it is one that runs our tasks."""
    if worker_module != "pyspark.worker":  # those that look up sources and plan reads need little
        return False
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy would start threads otherwise
    import pyspark.worker

    import headgate.pipeline.planned
    import headgate.pipeline.sources.generator
    import headgate.pipeline.sources.nats

    del headgate, pyspark
    gc.freeze()
    return True


if __name__ == "__main__":
    preload(sys.argv[1] if len(sys.argv) > 1 else "")
    manager()
