"""`pulse`: patients' vital signs, mostly normal, with episodes that a policy should not lose (PACK, figure 2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headgate.model import Column, Schema, parse_type
from headgate.pipeline.sources.generators.base import Generator, Options, Rows, labels, numbered
from headgate.pipeline.sources.generators.noise import choice, normal, uniform

_WARDS = ["cardiology", "intensive", "maternity", "surgery"]
_EPISODE = 60
"""Readings between two chances of an episode, which lasts half of that."""


def columns(seed: int, rows: Rows, options: Options) -> Mapping[str, pa.Array]:
    """Patient `k % patients` gives reading `k // patients`."""
    count = int(options["patients"])
    reading, patient = np.divmod(rows, count)
    slot, inside = np.divmod(reading, _EPISODE)
    struck = uniform(seed, 1, slot * count + patient) < 0.06
    # An episode rises and falls as a half sine over 30 readings.
    strain = np.where(struck & (inside < _EPISODE // 2), np.sin(np.pi * inside / (_EPISODE // 2)), 0.0)
    resting = 58.0 + 30.0 * uniform(seed, 2, patient)
    breath = np.sin(2.0 * np.pi * (reading / 40.0 + uniform(seed, 3, patient)))
    rate = resting + 4.0 * breath + 55.0 * strain + 1.5 * normal(seed, 4, rows)
    oxygen = np.minimum(100.0, 97.5 - 9.0 * strain + 0.5 * normal(seed, 5, rows))
    upper = 105.0 + 35.0 * uniform(seed, 6, patient) + 30.0 * strain + 2.0 * normal(seed, 7, rows)
    lower = 62.0 + 0.2 * (upper - 105.0) + 12.0 * strain + 1.5 * normal(seed, 8, rows)
    temp = 36.4 + 0.8 * uniform(seed, 9, patient) + 0.9 * strain + 0.05 * normal(seed, 10, rows)
    beats, saturation = np.rint(rate).astype(np.int32), np.round(oxygen, 1)
    return {
        "patient": labels(numbered("p", count), patient),
        "ward": labels(_WARDS, choice(seed, 11, patient, len(_WARDS))),
        "heart_rate": pa.array(beats),
        "spo2": pa.array(saturation),
        "systolic": pa.array(np.rint(upper).astype(np.int32)),
        "diastolic": pa.array(np.rint(lower).astype(np.int32)),
        "temp": pa.array(np.round(temp, 2)),
        "alarm": pa.array((beats > 120) | (beats < 45) | (saturation < 92.0)),
    }


PULSE = Generator(
    kind="pulse",
    about="patients' vital signs with alarming episodes",
    schema=Schema(
        (
            Column("patient", parse_type("string")),
            Column("ward", parse_type("string")),
            Column("heart_rate", parse_type("int"), "1/min"),
            Column("spo2", parse_type("double"), "%"),
            Column("systolic", parse_type("int"), "mmHg"),
            Column("diastolic", parse_type("int"), "mmHg"),
            Column("temp", parse_type("double"), "degC"),
            Column("alarm", parse_type("boolean")),
            Column("at", parse_type("timestamp")),
        )
    ),
    key=("patient",),
    options={"patients": 60},
    columns=columns,
)
