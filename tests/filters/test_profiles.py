"""Profile types: the contract over every built-in type and over a third party's, which is found by its entry point."""

import importlib
import sys
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import HeadgateError
from headgate.filters import FilterError, normal_form
from headgate.filters.profiles import compile_profile, profile_names, profile_type, relational
from headgate.filters.profiles.topic_pattern import parse_pattern
from headgate.model import Schema
from headgate_studies.testing.profiles import ProfileContract
from tests.filters.rows import CONTEXT, SCHEMA, table

EXAMPLE = Path(__file__).parents[2] / "examples" / "jsonpath_profile"


class TestRelational(ProfileContract):
    profile_type = profile_type("relational")
    schema = SCHEMA
    context = CONTEXT
    accepted = (
        "i > 1",
        "i > 1 AND flag",
        "TRUE",
        "name LIKE 'a%'",
        "name = 'a' OR x > $bound",
        "x + y > 2",
        "i IN (1, 2)",
    )
    refused = ("", "i >", "nam = 'a'", "i = 'a'")
    rows = table(3, 40)


TOPIC_ROWS = [
    "news",
    "news/",
    "news/sport",
    "news/sport/goals",
    "news//goals",
    "newsroom",
    "news.sport",
    "news.sport.goals",
]
TOPIC_ROWS += ["news..goals", "news.", "", "/", ".", "a%b", "日本/東京", None, "weather.oslo.alerts"]
TOPIC_PATTERNS = [
    "#",
    "news/#",
    "news/+",
    "news/+/goals",
    "+",
    "+/+",
    "news",
    "news*",
    "news/sport",
    "news.>",
    "news.*",
]
TOPIC_PATTERNS += [
    "news.*.goals",
    ">",
    "*",
    "*.*",
    "news.sport",
    "n*",
    "日本/+",
    "a%b",
    "a%*",
    "news/sport/#",
    "/",
    "+/sport/#",
]


class TestTopics(ProfileContract):
    profile_type = profile_type("topics")
    schema = Schema.of({"topic": "string", "other": "string", "n": "int"})
    accepted = (*TOPIC_PATTERNS, "topic: news/#, weather.*.alerts", "other: news/sport, n*", "news/sport, news/#")
    refused = ("", "news/#/x", "news/a+", "topc: a", "n: a", "a,,b", "a.>.b", "a*b*", "news/a#")
    rows = pa.record_batch(
        {"topic": TOPIC_ROWS, "other": TOPIC_ROWS[::-1], "n": pa.array(range(len(TOPIC_ROWS)), pa.int32())}
    )


class TestKeywords(ProfileContract):
    profile_type = profile_type("keywords")
    schema = Schema.of({"title": "string", "body": "string"})
    accepted = (
        "title: storm",
        "title: STORM flood",
        "title: storm OR flood",
        "title, body: storm -drill",
        'body: "heavy rain"',
        "body: flood*",
        "title: (storm OR hail) AND NOT (drill OR test)",
        "body: Größe",
        "body: c",
        "title: rain_gauge",
    )
    refused = (
        "",
        "title:",
        "title: (storm",
        "title: OR",
        "titel: storm",
        "storm",
        'title: ""',
        "title: a )",
        "title: a &",
        "title: -",
    )
    rows = pa.record_batch(
        {
            "title": [
                "Storm warning",
                "storms",
                "Flood, storm!",
                None,
                "drill: storm",
                "hail test",
                "rain_gauge",
                "hail",
            ],
            "body": [
                "Heavy  rain.",
                "heavy-rain floods",
                None,
                "die GRÖSSE",
                "storm",
                "C and c++",
                "größe",
                "flooding",
            ],
        }
    )


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The example as an installed distribution: its module on the path and its metadata beside it."""
    data = tmp_path / "headgate_jsonpath_profile-0.1.0.dist-info"
    data.mkdir()
    (data / "METADATA").write_text("Metadata-Version: 2.1\nName: headgate-jsonpath-profile\nVersion: 0.1.0\n")
    points = [
        "jsonpath = jsonpath_profile:PROFILE",
        "broken = no_such_module:X",
        "wrong = json:loads",
        "topics = json:loads",
    ]
    (data / "entry_points.txt").write_text("\n".join(["[headgate.profiles]", *points]))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield profile_type
    sys.modules.pop("jsonpath_profile", None)


JSON_ROWS = ['{"t": 21}', '{"t": "warm"}', '{"name": "a", "values": [1, 2]}', "not json", None, "[1]", "null"]
JSON_ROWS += ['{"deep": {"er": [{"x": 2}]}}', '{"t": 20.5, "values": []}']


class TestJsonPath(ProfileContract):
    schema = Schema.of({"payload": "string"})
    accepted = ("$.t > 20", "$.t", '$.name = "a"', "$.values[1] <= 3", "payload: $.t > 20", "$.deep.er[0].x != 1", "$")
    refused = ("", "t > 20", "$.t > x", "$.t >", "other: $.t")
    rows = pa.record_batch({"payload": JSON_ROWS})

    @pytest.fixture(autouse=True)
    def _found_by_entry_point(self, installed):
        type(self).profile_type = installed("jsonpath")


def test_the_example_is_short():
    assert len((EXAMPLE / "jsonpath_profile.py").read_text().splitlines()) < 80
    assert 'jsonpath = "jsonpath_profile:PROFILE"' in (EXAMPLE / "pyproject.toml").read_text()


def test_entry_points_are_found_and_broken_ones_harm_nobody(installed):
    assert profile_names()[:3] == ("relational", "topics", "keywords")
    assert {"jsonpath", "broken", "wrong"} <= set(profile_names())
    schema = Schema.of({"payload": "string"})
    assert compile_profile("jsonpath", "$.t > 1", schema).text == "payload: $.t > 1"
    with pytest.raises(HeadgateError, match=r"broken.*cannot be loaded"):
        compile_profile("broken", "x", schema)
    with pytest.raises(HeadgateError, match="is no profile type"):
        compile_profile("wrong", "x", schema)
    assert profile_type("topics").name == "topics"  # a package cannot take a built-in name
    with pytest.raises(HeadgateError, match="did you mean 'topics'"):
        compile_profile("topcs", "x", schema)


def test_the_built_in_types_are_entry_points_of_the_distribution():
    import tomllib

    from headgate.filters.profiles.registry import BUILT_IN, GROUP

    declared = tomllib.loads((EXAMPLE.parents[1] / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    assert declared == dict(BUILT_IN)
    for target in BUILT_IN.values():
        module, _, name = target.partition(":")
        assert hasattr(importlib.import_module(module), name)


def test_topics_are_boxes_where_they_can_be():
    schema = Schema.of({"topic": "string"})
    form = normal_form(relational(compile_profile("topics", "news/#, weather", schema)))
    assert form.exact
    assert len(form.boxes) == 1
    (box,) = normal_form(relational(compile_profile("topics", "news/+/goals", schema))).boxes
    assert box.domains["topic"].prefixes() == ("news/",)
    assert not box.exact


def test_the_column_is_guessed_only_when_that_is_clear():
    assert compile_profile("topics", "a", Schema.of({"only": "string", "n": "int"})).text == "only: a"
    assert compile_profile("topics", "a", Schema.of({"topic": "string", "s": "string"})).text == "topic: a"
    with pytest.raises(FilterError, match="which column"):
        compile_profile("topics", "a", Schema.of({"a": "string", "b": "string"}))


def reference(pattern: str, topic: str) -> bool:
    """The wildcards' definition, level by level."""
    if "/" in pattern or pattern in ("+", "#"):
        return _mqtt(pattern.split("/"), topic.split("/"))
    levels = pattern.split(".")
    if levels[-1].endswith("*") and len(levels[-1]) > 1:
        return topic.startswith(pattern[:-1])
    return _nats(levels, topic.split("."))


def _mqtt(levels, found):
    if not levels:
        return not found
    if levels[0] == "#":
        return True
    if not found:
        return False
    return (levels[0] in ("+", found[0])) and (
        _mqtt(levels[1:], found[1:]) or (levels[1:] == ["#"] and len(found) == 1)
    )


def _nats(levels, found):
    if not levels:
        return not found
    if not found:
        return False
    if levels[0] == ">":
        return found[0] != ""
    return (found[0] != "" if levels[0] == "*" else levels[0] == found[0]) and _nats(levels[1:], found[1:])


LEVEL = st.sampled_from(["a", "b", "ab", ""])
SLASHED = st.tuples(st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=3), st.sampled_from([[], ["#"]])).map(
    lambda parts: "/".join(parts[0] + parts[1])
)
POINTED = st.tuples(st.lists(st.one_of(LEVEL, st.just("*")), min_size=1, max_size=3), st.sampled_from([[], [">"]])).map(
    lambda parts: ".".join(parts[0] + parts[1])
)
PATTERNS = st.one_of(SLASHED, POINTED, st.sampled_from(["a*", "ab*", "a/b", "#", ">", "+", "*"])).filter(bool)
ALL_TOPICS = ["/".join(parts) for n in (1, 2, 3) for parts in product(["a", "b", "ab", ""], repeat=n)]
ALL_TOPICS += [topic.replace("/", ".") for topic in ALL_TOPICS] + ["a/b.a", "x"]
ALL_ROWS = pa.record_batch({"topic": ALL_TOPICS})
TOPICS = Schema.of({"topic": "string"})


@given(PATTERNS, PATTERNS)
def test_topic_wildcards_mean_what_they_are_defined_to(one, other):
    expected = {each: [reference(each, topic) for topic in ALL_TOPICS] for each in (one, other)}
    for each in (one, other):
        assert compile_profile("topics", f"topic: {each}", TOPICS).evaluate(ALL_ROWS).tolist() == expected[each]
    said = parse_pattern(one).covers(parse_pattern(other))
    truth = all(a or not b for a, b in zip(expected[one], expected[other], strict=True))
    assert not said or truth


def test_loading_types_hides_no_function():
    import headgate.filters.profiles as profiles

    for name in profile_names()[:3]:
        profile_type(name)
    for name in profiles.__all__:
        assert not hasattr(getattr(profiles, name), "__path__")
        assert type(getattr(profiles, name)).__name__ != "module"
