from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.pipeline.sources.generators import (
    GENERATOR_SCHEMAS,
    GENERATORS,
    ORIGIN_US,
    GeneratorError,
    generate,
)
from headgate.pipeline.sources.generators.noise import bits, normal, uniform

KINDS = sorted(GENERATORS)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_depend_on_seed_and_number_only(kind):
    whole = generate(kind, 7, 0, 3000)
    assert whole.schema.equals(GENERATOR_SCHEMAS[kind].arrow)
    whole.validate(full=True)
    cuts = [0, 1, 2, 17, 1024, 1025, 2999, 3000]
    parts = [generate(kind, 7, first, last) for first, last in pairwise(cuts)]
    assert pa.Table.from_batches(parts).combine_chunks().equals(pa.Table.from_batches([whole]).combine_chunks())
    assert generate(kind, 7, 5, 5).num_rows == 0
    assert not generate(kind, 8, 0, 3000).equals(whole)


@pytest.mark.parametrize("kind", KINDS)
def test_far_rows_are_as_good_as_near_ones(kind):
    far = generate(kind, 7, 10**12, 10**12 + 500)
    for name in far.schema.names:
        assert far.column(name).null_count == 0 or name == "quote"


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"weather"}))
def test_time_runs_at_the_rate(kind):
    at = generate(kind, 1, 100, 104, rate=250.0).column("at").cast(pa.int64()).to_pylist()
    assert at == [ORIGIN_US + row * 4000 for row in range(100, 104)]


def test_a_weather_step_has_one_time_and_every_cell():
    step = pa.Table.from_batches([generate("weather", 1, 3 * 12, 4 * 12, rate=6.0, width=4, height=3)])
    assert step["step"].unique().to_pylist() == [3]
    assert step["at"].cast(pa.int64()).unique().to_pylist() == [ORIGIN_US + 6_000_000]
    assert sorted(zip(step["x"].to_pylist(), step["y"].to_pylist(), strict=True)) == [
        (x, y) for x in range(4) for y in range(3)
    ]


def test_the_storm_moves_and_is_where_pressure_is_lowest():
    fields = pa.Table.from_batches([generate("weather", 1, 0, 60 * 1024)])
    pressure = fields["pressure"].to_numpy().reshape(60, 1024)
    rain = fields["rain"].to_numpy().reshape(60, 1024)
    assert pressure.min() < 995 < 1010 < pressure.max()
    eyes = pressure.argmin(axis=1)
    assert (np.abs(eyes - rain.argmax(axis=1)) % 32 <= 3).mean() > 0.5
    assert len(set(eyes.tolist())) > 10
    assert (rain > 0.5).mean() < 0.3


def test_a_vehicle_moves_as_fast_as_it_says():
    count = 50
    rows = pa.Table.from_batches([generate("fleet", 3, 0, count * 200, vehicles=count)])
    for vehicle in ("v07", "v31"):
        own = rows.filter(pc.equal(rows["vehicle"], vehicle))
        lat, lon = own["lat"].to_numpy(), own["lon"].to_numpy()
        metres = np.hypot(np.diff(lat), np.diff(lon) * np.cos(np.radians(lat[:-1]))) * 111_320.0
        moving = np.array([status == "moving" for status in own["status"].to_pylist()])
        assert np.abs(metres / 10.0 * 3.6 - own["speed"].to_numpy()[:-1])[moving[:-1]].mean() < 8.0
        assert (own["speed"].to_numpy()[~moving] == 0.0).all()
        assert len(set(map(tuple, own["tags"].to_pylist()))) == 1
    assert set(rows["status"].unique().to_pylist()) == {"moving", "loading", "idle", "fault"}
    assert {len(tags) for tags in rows["tags"].to_pylist()} >= {0, 1, 2}
    assert 0 < rows["speed"].to_numpy().max() < 150


def test_alarms_are_rare_and_mean_what_they_say():
    rows = pa.Table.from_batches([generate("pulse", 3, 0, 60_000)]).to_pandas()
    expected = (rows.heart_rate > 120) | (rows.heart_rate < 45) | (rows.spo2 < 92)
    assert (rows.alarm == expected).all()
    assert 0.002 < rows.alarm.mean() < 0.1
    assert (rows.systolic > rows.diastolic).all()
    assert rows.spo2.max() <= 100


def test_ticks_nest_and_some_have_no_quote():
    rows = generate("ticks", 3, 0, 20_000)
    quote = rows.column("quote")
    assert 0.01 < quote.null_count / 20_000 < 0.03
    valid = quote.is_valid()
    bid, ask = (pc.filter(quote.field(side), valid).to_numpy() for side in (0, 1))
    price = pc.filter(rows.column("price"), valid).to_numpy()
    assert ((bid < price) & (price < ask)).all()
    attributes = [dict(pairs) for pairs in rows.column("attributes").to_pylist()]
    assert all(pairs["side"] in ("buy", "sell") for pairs in attributes)
    assert 0.2 < sum("condition" in pairs for pairs in attributes) / 20_000 < 0.3


def test_noise_is_uniform_normal_and_independent_between_lanes():
    counter = np.arange(200_000)
    assert len(np.unique(bits(5, 0, counter))) == 200_000
    one, other = uniform(5, 0, counter), uniform(5, 1, counter)
    assert 0 <= one.min() < one.max() < 1
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.01
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.01
    drawn = normal(5, 0, counter)
    assert (drawn.mean(), drawn.std()) == pytest.approx((0, 1), abs=0.01)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("wether", {}, "no generator of the kind 'wether' .did you mean 'weather'"),
        ("fleet", {"vehicle": 3}, "no option 'vehicle' .did you mean 'vehicles'"),
        ("fleet", {"vehicles": 0}, "whole number of at least 1"),
        ("fleet", {"vehicles": "many"}, "'many' is not a value"),
    ],
)
def test_mistakes_are_named(kind, options, message):
    with pytest.raises(GeneratorError, match=message):
        generate(kind, 0, 0, 1, **options)


def test_generating_and_checking_do_not_import_spark():
    code = (
        "import sys, headgate.pipeline.sources as s; from headgate.model import Source, Stream;"
        "s.generate('ticks', 0, 0, 1); schema = s.GENERATOR_SCHEMAS['ticks'];"
        "s.check_source(Stream('a', schema, Source('generator', {'kind': 'ticks'}), 'r'));"
        "s.check_source(Stream('a', schema, Source('nats'), 'r'));"
        "sys.exit('pyspark' in sys.modules)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], check=False, env=environ).returncode == 0
