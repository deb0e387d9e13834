"""The grid as a profile type keeps the contract of profile types."""

import json

import numpy as np
import pyarrow as pa

from headgate.filters.profiles import profile_type
from headgate.model import Schema
from headgate_studies.testing.profiles import ProfileContract

GRID = {
    "x": {"column": "lon", "bounds": [0, 64], "size": 64},
    "y": {"column": "lat", "bounds": [0, 64], "size": 64},
    "block": 8,
}


def text(**parts):
    return json.dumps({"grid": GRID, **parts})


class TestGrid(ProfileContract):
    profile_type = profile_type("grid")
    schema = Schema.of({"lon": "double", "lat": "double", "t": "double"})
    accepted = (
        text(region={"box": [0, 0, 32, 32]}),
        text(region={"box": [8, 8, 16, 16]}),
        text(region={"box": [8, 8, 16, 16]}, resolution={"space": "1/4"}),
        text(resolution={"space": "1/2"}),
        text(resolution={"space": "1/4"}),
        text(region={"circle": {"around": "$here", "radius": 6}}),
    )
    refused = (
        "",
        "{",
        "[]",
        json.dumps({"grid": GRID}),
        text(regoin={}),
        text(region={"box": [5, 5]}),
        text(region={"circle": {"around": "$nowhere", "radius": 6}}),
        json.dumps({"grid": {"x": {"column": "no"}}, "resolution": {"space": "1/2"}}),
    )
    rows = pa.record_batch(
        {
            "lon": pa.array([*np.random.default_rng(1).uniform(0, 64, 300), None, 70.0]),
            "lat": pa.array([*np.random.default_rng(2).uniform(0, 64, 300), 1.0, 1.0]),
            "t": pa.array(np.zeros(302)),
        }
    )
    context = {"here": [20.0, 20.0]}  # noqa: RUF012 - the contract's own form

    def test_covering_finds_regions_and_resolutions_inside_others(self):
        profiles = self._compiled()
        covers = self.profile_type.covers
        assert covers(profiles[0], profiles[1])
        assert covers(profiles[1], profiles[2])
        assert covers(profiles[3], profiles[4])
        assert not covers(profiles[4], profiles[3])
