"""Where the time from an event to its commit goes in the Spark job, stage by stage, for one micro-batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

STAGES: Final = ("trigger wait", "source", "planning", "Python start", "match", "stage", "commit")
"""The stages of the job, in order; their seconds add up to the time from the mean event to the commit."""
_SOURCE: Final = ("latestOffset", "getBatch", "walCommit")


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """What the driver measured of a micro-batch, in seconds.

    `lag_s` is from the mean event to the commit, `pin_s` until version and index were chosen, `tasks_s` all of the
    tasks as the driver saw them. `work_s` and `match_s` are what tasks spent on rows, summed over `tasks` of them that
    ran side by side; `commit_s` is the append of the manifest.
    """

    lag_s: float
    pin_s: float
    tasks_s: float
    work_s: float
    match_s: float
    commit_s: float
    tasks: int = 1

    def waterfall(self, spark_ms: Mapping[str, float]) -> dict[str, float]:
        """Seconds by stage; `spark_ms` are the durations that Spark reports of a micro-batch, of the last one.

        >>> times = BatchTimes(lag_s=0.9, pin_s=0.01, tasks_s=0.25, work_s=0.1, match_s=0.06, commit_s=0.02)
        >>> times.waterfall({"latestOffset": 20, "walCommit": 30, "getBatch": 0, "queryPlanning": 10})["match"]
        0.06
        """
        share = max(self.tasks, 1)
        match_s, work_s = self.match_s / share, self.work_s / share
        source_s = sum(spark_ms.get(name, 0.0) for name in _SOURCE) / 1000
        planning_s = spark_ms.get("queryPlanning", 0.0) / 1000 + self.pin_s
        inside_s = self.pin_s + self.tasks_s + self.commit_s
        before_s = self.lag_s - inside_s - source_s - spark_ms.get("queryPlanning", 0.0) / 1000
        seconds = (
            max(before_s, 0.0),
            source_s,
            planning_s,
            max(self.tasks_s - work_s, 0.0),
            match_s,
            max(work_s - match_s, 0.0),
            self.commit_s,
        )
        return {name: round(value, 4) for name, value in zip(STAGES, seconds, strict=True)}
