"""Every profile type matches on Spark's executors exactly as it does here."""

import pyarrow as pa
import pytest

from headgate.filters import context_types
from headgate.filters.profiles import compile_profile
from headgate.model import Schema

SCHEMA = Schema.of({"id": "int", "topic": "string", "body": "string"})
WISHES = [
    ("relational", "id % 3 = $rest AND topic IS NOT NULL"),
    ("topics", "topic: news/+/goals, weather.>, a*"),
    ("keywords", 'body: storm OR "heavy rain" -drill'),
]
CONTEXT = {"rest": 1}
TOPICS = ["news/sport/goals", "news/sport", "weather.oslo", None, "a", "news//goals"]
BODIES = ["Storm ahead", "heavy, RAIN", "storm drill", None, "calm"]


@pytest.mark.spark
@pytest.mark.long
def test_executors_match_as_the_driver_does(spark):
    profiles = [compile_profile(kind, where, SCHEMA, context_types(CONTEXT)) for kind, where in WISHES]
    rows = [(n, TOPICS[n % len(TOPICS)], BODIES[n % len(BODIES)]) for n in range(60)]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), SCHEMA.columns, strict=True)],
        schema=SCHEMA.arrow,
    )

    def match(batches):
        for each in batches:
            masks = [pa.array(profile.evaluate(each, CONTEXT)) for profile in profiles]
            yield pa.record_batch([each.column("id"), *masks], names=["id", "a", "b", "c"])

    frame = spark.createDataFrame(pa.Table.from_batches([batch])).repartition(2)
    found = frame.mapInArrow(match, "id int, a boolean, b boolean, c boolean").orderBy("id").toArrow()
    for name, profile in zip("abc", profiles, strict=True):
        expected = profile.evaluate(batch, CONTEXT).tolist()
        assert found.column(name).to_pylist() == expected
        assert 0 < sum(expected) < len(rows)
