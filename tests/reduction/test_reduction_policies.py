"""Policies are read from documents and from the paper's XML, and refused with their place and the nearest name."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.model import Schema
from headgate.reduction import PolicyError, parse_policy, parse_policy_xml
from headgate.reduction.filters.delta import DeltaFilter
from headgate.reduction.filters.latest import Latest
from headgate.reduction.filters.within import Within

SCHEMA = Schema.of({"bpm": "double", "patient": "string", "at": "timestamp", "tags": "array<string>"})

FIGURE_2 = """
<policy attribute="bpm">
  <summary>
    <digester name="MAX"/>
    <digester name="MIN"/>
  </summary>
  <level>
    <filter name="DELTA"><para name="change" value="5"/></filter>
  </level>
  <level>
    <filter name="WITHIN"><para name="low" value="50"/><para name="high" value="100"/></filter>
  </level>
  <level>
    <filter name="LATEST"><para name="window" value="10"/></filter>
  </level>
</policy>
"""


def test_figure_2_in_both_forms() -> None:
    document = {
        "attribute": "bpm",
        "digest": ["max", "min"],
        "levels": [{"delta": 5}, {"drop": {"within": [50, 100]}}, {"latest": 10}],
    }
    for policy in (parse_policy(document, SCHEMA), parse_policy_xml(FIGURE_2, SCHEMA)):
        delta, within, latest = (level.filters[0] for level in policy.levels)
        assert isinstance(delta, DeltaFilter)
        assert delta.change == 5
        assert isinstance(within, Within)
        assert within.drop
        assert isinstance(latest, Latest)
        assert latest.n == 10
        assert [digester.label for digester in policy.digesters] == ["max(bpm)", "min(bpm)"]


@pytest.mark.parametrize(
    ("document", "place", "says"),
    [
        ({"levels": [{"dleta": 5}]}, "policy.levels[0]", "did you mean 'delta'?"),
        ({"levels": [{"delta": 5, "attribute": "bmp"}]}, "policy.levels[0].delta.attribute", "did you mean 'bpm'?"),
        ({"levels": [{"delta": {"chnage": 5}}], "attribute": "bpm"}, "policy.levels[0].delta", "'change' is missing"),
        ({"levels": [{"delta": {"change": 5, "keey": 1}}], "attribute": "bpm"}, "policy.levels[0].delta.keey", "'key'"),
        ({"levels": [{"delta": "x"}], "attribute": "bpm"}, "policy.levels[0].delta.change", "not a number"),
        ({"levels": [{"delta": 5}], "attribute": "patient"}, "policy.levels[0].delta.attribute", "number column"),
        ({"levels": [{"within": [1, 2]}], "attribute": "bpm"}, "policy.levels[0]", "`drop: {within: ...}`"),
        ({"levels": [{"drop": {"within": [2, 1]}}], "attribute": "bpm"}, "policy.levels[0].drop.within", "swap"),
        ({"levels": [{"drop": {"every": 2}}]}, "policy.levels[0].drop", "without `drop:`"),
        ({"levels": [{"drop where": "bmp > 5"}]}, "policy.levels[0].drop where.where", "bpm"),
        ({"levels": [{"max_age": "5"}]}, "policy.levels[0].max_age.age", "no unit"),
        ({"levels": [{"conflate": None}]}, "policy.levels[0].conflate", "needs a key"),
        ({"levels": [{"random": 2}]}, "policy.levels[0].random.fraction", "at most 1"),
        ({"levels": [{"drop": {"match": "(", "attribute": "patient"}}]}, "drop.match.pattern", "regular expression"),
        ({"levels": [{"drop": {"contain": 5, "attribute": "tags"}}]}, "drop.contain.value", "cannot be compared"),
        ({"levels": [{"drop": {"gt": "a", "attribute": "bpm"}}]}, "drop.gt.value", "not a number"),
        ({"levels": []}, "policy.levels", "list of levels"),
        ({"levels": [{"every": 2, "latest": 3}]}, "policy.levels[0]", "two filters"),
        ({"digest": ["maximum"]}, "policy.digest[0]", "unknown digester"),
        ({"digest": [{"box": "bpm"}]}, "policy.digest[0]", "two columns"),
        ({"level": [{"every": 2}]}, "policy.level", "did you mean 'levels'?"),
        ({"controller": "lader"}, "policy.controller", "did you mean 'ladder'?"),
        ({"key": "patiend"}, "policy.key", "did you mean 'patient'?"),
        ({"max_bytes": "5 parsecs"}, "policy.max_bytes", "unknown unit"),
        ({"levels": [{"thin_space": {"x": "bpm", "y": "patient"}}]}, "thin_space.y", "number column"),
        ({"levels": [{"extremes": "0 s"}], "attribute": "bpm"}, "policy.levels[0].extremes.step", "`10 s`"),
        ({"levels": [{"extremes": "1 s", "time": "bpm"}], "attribute": "bpm"}, "extremes.time", "time column"),
        ({"levels": [{"thin_space": 5}]}, "policy.levels[0].thin_space", "several parameters"),
    ],
)
def test_mistakes_are_located(document: dict[str, Any], place: str, says: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(document, SCHEMA, where="policy")
    assert place in str(caught.value.where)
    assert says in str(caught.value)


def test_a_missing_event_time_says_that_it_was_not_selected() -> None:
    with pytest.raises(PolicyError, match=r"no column of event time among bpm .*select a timestamp"):
        parse_policy({"levels": [{"thin_time": "1 s"}]}, Schema.of({"bpm": "double"}))
    with pytest.raises(PolicyError, match=r"give `time`: at or seen"):
        parse_policy(
            {"levels": [{"extremes": "1 s", "attribute": "bpm"}]},
            Schema.of({"bpm": "double", "at": "timestamp", "seen": "timestamp"}),
        )


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        (FIGURE_2.replace('"MAX"/', '"MAX"'), "line 6", "not well-formed"),
        (FIGURE_2.replace("DELTA", "DLETA"), "line 8", "did you mean 'delta'?"),
        (FIGURE_2.replace("<para", "<parameter").replace("LATEST", "LATEST"), "line 8", "'para'"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><policy/>', "line 1", "not allowed"),
        ("<polcy/>", "line 1", "did you mean 'policy'?"),
    ],
)
def test_xml_mistakes_are_located(text: str, place: str, says: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy_xml(text, SCHEMA)
    assert place in str(caught.value.where)
    assert says in str(caught.value)


def test_equal_documents_are_equal_policies() -> None:
    one = parse_policy({"levels": [{"every": 2}], "headroom": 0.2}, SCHEMA)
    two = parse_policy({"headroom": 0.2, "levels": [{"every": 2}]}, SCHEMA)
    assert one == two
    assert one != parse_policy(None, SCHEMA)
    assert len({one, two}) == 1
