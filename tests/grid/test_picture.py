"""`headgate view` draws a field, and says what is missing when it cannot."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from headgate.cli.picture import choose_value, draw
from headgate.errors import HeadgateError
from headgate.grid import Field, parse_layout
from headgate.model import Schema
from headgate.studies import grid_weather

SCHEMA = Schema.of({"x": "int", "y": "int", "name": "string", "temp": "double", "step": "int"})
LAYOUT = parse_layout(
    {"x": {"column": "x", "size": 8}, "y": {"column": "y", "size": 4}, "time": {"tick": "step"}}, SCHEMA
)


def test_a_field_becomes_a_picture(tmp_path):
    field = Field(LAYOUT, ("temp",))
    draw(field, "nothing yet", tmp_path / "empty.png")
    field.add(pa.record_batch({"x": [0, 4], "y": [0, 2], "step": [1, 1], "temp": [3.0, 9.0]}))
    draw(field, "two points", tmp_path / "pictures" / "two.png")
    for picture in (tmp_path / "empty.png", tmp_path / "pictures" / "two.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_column_to_draw_is_chosen_or_checked():
    assert choose_value(None, LAYOUT, SCHEMA) == "temp"
    assert choose_value("step", LAYOUT, SCHEMA) == "step"
    with pytest.raises(HeadgateError, match="did you mean 'temp'"):
        choose_value("tmp", LAYOUT, SCHEMA)
    with pytest.raises(HeadgateError, match="leaves out 'y'"):
        choose_value(None, LAYOUT, SCHEMA.select(["x", "temp"]))
    with pytest.raises(HeadgateError, match="no number to draw"):
        choose_value(None, LAYOUT, SCHEMA.select(["x", "y", "name"]))


def test_ten_subscribers_get_nested_shares_of_one_field():
    batch = grid_weather.rows_of(0)
    kept = [predicate.evaluate(batch, {}) for _, predicate in grid_weather.subscribers()]
    assert [round(keep.mean() * 16) for keep in kept[:5]] == [16, 8, 4, 2, 1]
    for finer, coarser in itertools.pairwise(kept[:5]):
        assert not (coarser & ~finer).any()
    assert np.array_equal(kept[5] & kept[1], kept[6])
