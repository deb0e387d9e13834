"""`weather`: a gridded field with a storm that moves over it, one row a cell and step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.model import Column, Schema, parse_type
from headgate.pipeline.sources.generators.base import Generator, Options, Rows
from headgate.pipeline.sources.generators.noise import normal, uniform

_SOUTH, _NORTH, _WEST, _EAST = 35.0, 60.0, -10.0, 30.0
_STEPS_A_DAY = 96
_STORM_RADIUS = 0.12


def _storm(seed: int, step: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The storm's centre as a fraction of the grid: eastwards and back in 200 steps, winding north and south."""
    phase = uniform(seed, 1, 0)[0]
    along = step / 200.0 + phase
    x = np.abs((along % 2.0) - 1.0)
    return x, 0.5 + 0.35 * np.sin(2.0 * np.pi * (1.7 * along + uniform(seed, 2, 0)[0]))


def columns(seed: int, rows: Rows, options: Options) -> Mapping[str, pa.Array]:
    """Every cell of the grid in row-major order, step after step."""
    width, height = int(options["width"]), int(options["height"])
    step, cell = np.divmod(rows, width * height)
    y, x = np.divmod(cell, width)
    across, up = (x + 0.5) / width, (y + 0.5) / height
    storm_x, storm_y = _storm(seed, step)
    dx, dy = across - storm_x, up - storm_y
    distance = np.hypot(dx, dy) / _STORM_RADIUS
    eye = np.exp(-(distance**2))
    ring = distance * np.exp(1.0 - distance)
    day = np.cos(2.0 * np.pi * (step / _STEPS_A_DAY + across / 9.0))
    hill = np.sin(5.0 * across + 3.0) * np.cos(4.0 * up)
    temp = 22.0 - 18.0 * up - 4.0 * day + 2.0 * hill - 5.0 * eye + 0.3 * normal(seed, 3, rows)
    wind = 4.0 + 2.0 * hill**2 + 24.0 * ring + np.abs(0.8 * normal(seed, 4, rows))
    rain = np.maximum(0.0, 18.0 * eye + 0.5 * normal(seed, 5, rows) - 0.8)
    pressure = 1016.0 - 4.0 * hill - 38.0 * eye + 0.2 * normal(seed, 6, rows)
    return {
        "x": pa.array(x.astype(np.int32)),
        "y": pa.array(y.astype(np.int32)),
        "lat": pa.array(_SOUTH + (_NORTH - _SOUTH) * up),
        "lon": pa.array(_WEST + (_EAST - _WEST) * across),
        "temp": pa.array(np.round(temp, 2)),
        "wind": pa.array(np.round(wind, 2)),
        "rain": pa.array(np.round(rain, 2)),
        "pressure": pa.array(np.round(pressure, 2)),
        "step": pa.array(step),
    }


WEATHER = Generator(
    kind="weather",
    about="a gridded field with a moving storm",
    schema=Schema(
        (
            Column("x", parse_type("int")),
            Column("y", parse_type("int")),
            Column("lat", parse_type("double"), "degree"),
            Column("lon", parse_type("double"), "degree"),
            Column("temp", parse_type("double"), "degC"),
            Column("wind", parse_type("double"), "m/s"),
            Column("rain", parse_type("double"), "mm/h"),
            Column("pressure", parse_type("double"), "hPa"),
            Column("at", parse_type("timestamp")),
            Column("step", parse_type("bigint")),
        )
    ),
    key=("x", "y"),
    options={"width": 32, "height": 32},
    columns=columns,
    group=lambda options: int(options["width"]) * int(options["height"]),
)
