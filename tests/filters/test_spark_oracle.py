"""The language against real Spark: hundreds of generated expressions as columns of one job (contract 9)."""

import numpy as np
import pyarrow as pa
import pytest

from headgate.filters.evaluate import Scope, evaluate
from headgate.filters.filter import Filter, parse_filter
from tests.filters.generate import TYPES, Generator
from tests.filters.rows import CONTEXT, SCHEMA, table
from tests.filters.spark_text import spark_text

ROWS = 120


def three_valued(expr, batch):
    with np.errstate(all="ignore"):
        found = evaluate(expr, Scope(batch, CONTEXT))
    values = np.broadcast_to(found.values, batch.num_rows)
    null = np.zeros(batch.num_rows, bool) if found.null is None else np.broadcast_to(found.null, batch.num_rows)
    return [None if missing else bool(value) for value, missing in zip(values, null, strict=True)]


@pytest.fixture
def interpreted(spark):
    """Spark without generated code: compiling hundreds of columns takes far longer than evaluating them."""
    plain = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for key, value in plain.items():
        spark.conf.set(key, value)
    yield spark
    for key in plain:
        spark.conf.unset(key)


@pytest.mark.spark
@pytest.mark.long
def test_three_hundred_generated_expressions_agree_with_spark(interpreted):
    seed = 22
    batch = table(seed, ROWS)
    generator = Generator(seed)
    filters = [Filter.of(generator.boolean()) for _ in range(300)]
    frame = interpreted.createDataFrame(pa.Table.from_batches([batch])).coalesce(1)
    rows = frame.selectExpr(*(f"{spark_text(each.expr)} as c{index}" for index, each in enumerate(filters))).collect()
    for index, each in enumerate(filters):
        ours, theirs = three_valued(each.expr, batch), [row[index] for row in rows]
        wrong = [at for at in range(ROWS) if ours[at] is not theirs[at]]
        assert not wrong, (each.text, spark_text(each.expr), batch.slice(wrong[0], 1).to_pylist())
        assert each.evaluate(batch, CONTEXT).tolist() == [value is True for value in theirs]


@pytest.mark.parametrize("seed", range(5))
def test_canonical_text_parses_back_to_the_same_tree(seed):
    generator = Generator(seed + 100)
    for _ in range(200):
        found = Filter.of(generator.boolean())
        again = parse_filter(found.text, SCHEMA, TYPES)
        assert again.expr == found.expr, found.text
        assert hash(again) == hash(found)


@pytest.mark.parametrize("seed", range(3))
def test_slices_and_empty_batches_evaluate_like_the_whole(seed):
    generator = Generator(seed + 200)
    batch = table(seed, 60)
    for _ in range(60):
        found = Filter.of(generator.boolean())
        whole = found.evaluate(batch, CONTEXT)
        assert whole.dtype == bool
        assert found.evaluate(batch.slice(17, 20), CONTEXT).tolist() == whole[17:37].tolist(), found.text
        assert found.evaluate(batch.slice(5, 1), CONTEXT).tolist() == whole[5:6].tolist(), found.text
        assert found.evaluate(batch.slice(0, 0), CONTEXT).tolist() == []
