"""Recorded rows of a small fleet, and a deployment that they run through."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.catalog import load_deployment
from headgate.model import Deployment

FIRST_US = 1_700_000_000_000_000
FILE = """
streams:
  fleet:
    root: hub
    schema: {at: timestamp, unit: bigint, speed: double, zone: string}
    source: {format: parquet, path: recorded}
    key: unit
    event_time: at
    rate: 100/s
sites: {hub: {upload: UPLOAD}, north: {}, south: {}}
links: {default_delay: 50 ms, pairs: [{between: [hub, south], delay: 400 ms}]}
subscriptions:
  fast: {site: north, stream: fleet, where: "speed > 60"}
  zones: {site: south, stream: fleet, where: "zone IN ('z1', 'z2') AND unit < 25", select: [at, unit, zone]}
  all: {site: hub, stream: fleet}
"""
FILTERS = {"fast": "speed > 60", "zones": "zone IN ('z1', 'z2') AND unit < 25", "all": "true"}
PLAN = {"fleet": {"root": "hub", "parents": {"north": "hub", "south": "hub"}}}


def fleet(tmp_path: Path, upload: str = "unknown") -> Deployment:
    """The deployment of three sites, with the upload that its hub has."""
    path = tmp_path / "headgate.yaml"
    path.write_text(FILE.replace("UPLOAD", upload), encoding="utf-8")
    return load_deployment(path)


def rows(count: int, seed: int = 1, rate: float = 100.0) -> pa.Table:
    """So many rows in the order of their times, at a mean rate a second."""
    random = np.random.default_rng(seed)
    times = FIRST_US + np.sort(random.integers(0, int(count / rate * 1e6), count))
    return pa.table(
        {
            "at": pa.array(times, pa.timestamp("us", tz="UTC")),
            "unit": pa.array(random.integers(0, 50, count)),
            "speed": pa.array(np.round(random.uniform(0, 100, count), 2)),
            "zone": pa.array([f"z{number}" for number in random.integers(0, 8, count)]),
        }
    )
