"""`fleet`: vehicles that move on closed routes around their depots, each reporting in turn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headgate.model import Column, Schema, parse_type
from headgate.pipeline.sources.generators.base import Generator, Options, Rows, labels, numbered
from headgate.pipeline.sources.generators.noise import bits, choice, normal, uniform

_DEPOTS = np.array(
    [(48.86, 2.35), (52.52, 13.41), (40.42, -3.70), (59.91, 10.75), (45.46, 9.19), (51.51, -0.13)]
)  # latitude, longitude
_STATUS = ["moving", "loading", "idle", "fault"]
_TAGS = ["cold", "express", "fragile", "hazard", "return"]
_SECONDS_A_REPORT = 10.0
_METRES_A_DEGREE = 111_320.0


def columns(seed: int, rows: Rows, options: Options) -> Mapping[str, pa.Array]:
    """Vehicle `k % vehicles` makes report `k // vehicles`; speed and heading are the derivative of the position."""
    count = int(options["vehicles"])
    report, vehicle = np.divmod(rows, count)
    depot = _DEPOTS[choice(seed, 1, vehicle, len(_DEPOTS))]
    reach = 0.05 + 0.4 * uniform(seed, 2, vehicle)
    petals = 1 + choice(seed, 4, vehicle, 3)
    turn = (8.0 + 14.0 * uniform(seed, 3, vehicle)) / (petals * reach * _METRES_A_DEGREE)
    second = report * _SECONDS_A_REPORT
    angle = turn * second + 2.0 * np.pi * uniform(seed, 5, vehicle)
    lat = depot[:, 0] + reach * np.sin(angle) * np.cos(petals * angle)
    lon = depot[:, 1] + reach * np.sin(angle + 0.7)
    north = reach * turn * (np.cos(angle) * np.cos(petals * angle) - petals * np.sin(angle) * np.sin(petals * angle))
    east = reach * turn * np.cos(angle + 0.7) * np.cos(np.radians(lat))
    # A vehicle stays in one state for 30 reports.
    state = uniform(seed, 6, (report // 30) * count + vehicle)
    status = np.searchsorted([0.80, 0.92, 0.98], state, side="right")
    moving = status == 0
    speed = np.where(moving, np.hypot(north, east) * _METRES_A_DEGREE * 3.6 + np.abs(normal(seed, 7, rows)), 0.0)
    heading = np.degrees(np.arctan2(east, north)) % 360.0
    tank = (second / 36_000.0 + uniform(seed, 8, vehicle)) % 1.0
    return {
        "vehicle": labels(numbered("v", count), vehicle),
        "lat": pa.array(np.round(lat, 6)),
        "lon": pa.array(np.round(lon, 6)),
        "speed": pa.array(np.round(speed, 1)),
        "heading": pa.array(np.round(heading, 1) % 360.0),
        "fuel": pa.array(np.round(100.0 * (1.0 - tank), 1)),
        "status": labels(_STATUS, status),
        "tags": _tags(seed, vehicle),
    }


def _tags(seed: int, vehicle: Rows) -> pa.Array:
    """None to three tags a vehicle, in the order of the list above."""
    drawn = bits(seed, 9, vehicle)
    carried = ((drawn[:, None] >> (np.arange(len(_TAGS), dtype=np.uint64) * np.uint64(8))) & np.uint64(0xFF)) < 64
    carried &= np.cumsum(carried, axis=1) <= 3
    ends = np.concatenate([[0], np.cumsum(carried.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(ends), labels(_TAGS, np.nonzero(carried)[1]), type=parse_type("array<string>")
    )


FLEET = Generator(
    kind="fleet",
    about="vehicles moving around their depots",
    schema=Schema(
        (
            Column("vehicle", parse_type("string")),
            Column("lat", parse_type("double"), "degree"),
            Column("lon", parse_type("double"), "degree"),
            Column("speed", parse_type("double"), "km/h"),
            Column("heading", parse_type("double"), "degree"),
            Column("fuel", parse_type("double"), "%"),
            Column("status", parse_type("string")),
            Column("tags", parse_type("array<string>")),
            Column("at", parse_type("timestamp")),
        )
    ),
    key=("vehicle",),
    options={"vehicles": 200},
    columns=columns,
)
