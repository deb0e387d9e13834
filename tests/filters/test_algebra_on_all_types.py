"""The algebra on expressions of every type and function: what it says must hold on rows full of nasty values."""

import pytest

from headgate.filters import Filter, bind, covers, intersects, merge, normal_form, parse_filter, simplify
from headgate.filters.algebra.express import boxes_expression
from tests.filters.generate import TYPES, Generator
from tests.filters.rows import CONTEXT, SCHEMA, table

ROWS = table(42, 300)


@pytest.mark.parametrize("seed", range(3))
def test_normal_form_simplify_and_bind_keep_the_rows(seed):
    generator = Generator(seed + 500)
    for _ in range(120):
        found = Filter.of(generator.boolean())
        matched = found.evaluate(ROWS, CONTEXT)
        form = normal_form(found)
        again = Filter.of(boxes_expression(form.boxes, form.attributes))
        assert (again.evaluate(ROWS, CONTEXT) == matched).all(), found.text
        simple = simplify(found)
        assert (simple.evaluate(ROWS, CONTEXT) == matched).all(), (found.text, simple.text)
        assert parse_filter(simple.text, SCHEMA, TYPES) == simple
        bound = bind(found, CONTEXT)
        assert (bound.evaluate(ROWS, CONTEXT) == matched).all(), (found.text, bound.text)


@pytest.mark.parametrize("seed", range(2))
def test_relations_hold_on_the_rows(seed):
    generator = Generator(seed + 600)
    filters = [Filter.of(generator.boolean(1)) for _ in range(40)]
    matched = [each.evaluate(ROWS, CONTEXT) for each in filters]
    for i, one in enumerate(filters):
        for j, other in enumerate(filters):
            if covers(one, other):
                assert not (matched[j] & ~matched[i]).any(), (one.text, other.text)
            if not intersects(one, other):
                assert not (matched[j] & matched[i]).any(), (one.text, other.text)
        union = merge([one, filters[i - 1]])
        assert (union.evaluate(ROWS, CONTEXT) == (matched[i] | matched[i - 1])).all(), union.text
        assert parse_filter(union.text, SCHEMA, TYPES) == union
