"""QoS functions as data: forms, limits, monotonicity, documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import HeadgateError
from headgate.model import PRESETS, Quality, QualityTable, parse_quality

UNIT = st.floats(0, 1)
DELAY = st.floats(0, 20)


@st.composite
def qualities(draw):
    if draw(st.booleans()):
        return Quality(draw(UNIT), draw(DELAY))
    drops = sorted(draw(st.sets(UNIT, min_size=1, max_size=4)))
    delays = sorted(draw(st.sets(DELAY, min_size=1, max_size=4)))
    values, cap = [], [1.0] * len(delays)
    for _ in drops:
        row, left = [], 1.0
        for bound in cap:
            left = min(left, bound, draw(UNIT))
            row.append(left)
        values.append(tuple(row))
        cap = row
    kind = draw(st.sampled_from(["steps", "linear"]))
    return Quality(table=QualityTable(kind, tuple(drops), tuple(delays), tuple(values)))


@given(qualities(), UNIT, UNIT, DELAY, DELAY)
def test_never_rises_with_drop_or_delay_and_stays_within_bounds(quality, r, r2, d, d2):
    worst, best = quality.value(max(r, r2), max(d, d2)), quality.value(min(r, r2), min(d, d2))
    assert 0 <= worst <= best + 1e-9
    assert best <= 1 + 1e-9


def test_the_paper_example():
    example = Quality(drop=0.2, delay_s=1.0)
    assert example.value(0.2, 1.0) == 1.0
    assert example.value(0.1, 1.5) == 0.5
    assert example.value(0.4, 0.1) == pytest.approx(0.1 / 0.4)


def test_a_zero_threshold_makes_any_drop_worthless():
    assert Quality(drop=0.0).value(0.0, 1.0) == 1.0
    assert Quality(drop=0.0).value(1e-6, 1.0) == 0.0


def test_presets_are_the_four_corners():
    tolerant = {name: (quality.drop > 0.1, quality.delay_s > 10) for name, quality in PRESETS.items()}
    assert tolerant == {
        "strict": (False, False),
        "timely": (True, False),
        "complete": (False, True),
        "relaxed": (True, True),
    }


def test_linear_table_from_a_document():
    quality = parse_quality(
        {"table": {"kind": "linear", "drop": [0, 0.5], "delay": ["1 s", "3 s"], "value": [[1, 0.6], [0.4, 0]]}}
    )
    assert quality.value(0.25, 2.0) == pytest.approx(0.5)
    assert quality.value(0.9, 9.0) == 0.0


@pytest.mark.parametrize(
    ("document", "part"),
    [
        ({"dropp": 0.1}, "did you mean 'drop'"),
        ({"drop": 2}, "within 0 to 1"),
        ({"preset": "strikt"}, "did you mean 'strict'"),
        ({"delay": "5"}, "no unit"),
        ({"table": {"drop": [0.1, 0.2], "value": [0.5, 0.9]}}, "must not rise"),
        ({"table": {"drop": [0.2, 0.1], "value": [0.5, 0.4]}}, "must rise"),
        ({"table": {"drop": [0.1]}}, "map of kind"),
        ({"at_least": True}, "must be a number"),
        (["drop"], "is not a quality"),
    ],
)
def test_bad_documents_say_what_is_wrong(document, part):
    with pytest.raises(HeadgateError, match=part):
        parse_quality(document)
