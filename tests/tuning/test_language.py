"""The objective language: text and data say the same, and refusals point at their place."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.tuning.compile import compile_objective
from headgate.tuning.constraints import compile_constraint
from headgate.tuning.language import (
    GALLERY,
    Binary,
    FunctionCall,
    Name,
    NodeAggregate,
    Number,
    ObjectiveError,
    SystemObjective,
    constraint_from_data,
    constraint_to_data,
    objective_from_data,
    objective_to_data,
    parse_constraint,
    parse_objective,
)
from headgate.tuning.language import vocabulary as vocabulary_module
from headgate.tuning.language.lexer import MAX_LENGTH
from headgate.tuning.language.quantities import UNITS
from headgate.tuning.language.syntax import SYSTEM_SETS, SystemCost
from headgate.tuning.language.vocabulary import BUILT_IN, Vocabulary


@pytest.mark.parametrize("example", GALLERY, ids=lambda example: example.name)
def test_gallery_reads_and_prints_back(example):
    if example.kind == "constraint":
        constraint = parse_constraint(example.text)
        assert parse_constraint(str(constraint)) == constraint
        assert constraint_from_data(constraint_to_data(constraint)) == constraint
        compile_constraint(constraint)
        return
    objective = parse_objective(example.text)
    assert parse_objective(str(objective)) == objective
    assert objective_from_data(objective_to_data(objective)) == objective
    compile_objective(objective)


_leaf = st.one_of(
    st.sampled_from(["link_latency", "fanout", "superfluous_data", "processing_delay"]).map(Name),
    st.builds(
        lambda value, unit: Number(value * UNITS.get(unit, 1.0), unit),
        st.integers(-1000, 1000).map(float),
        st.sampled_from(["", "ms", "s", "kB", "Mbit/s", "%"]),
    ),
)


def _grow(inner):
    return st.one_of(
        st.builds(Binary, st.sampled_from("+-*/"), inner, inner),
        st.builds(lambda name, one, two: FunctionCall(name, (one, two)), st.sampled_from(["min", "max"]), inner, inner),
    )


_local = st.recursive(_leaf, _grow, max_leaves=6)
_aggregate = st.builds(
    NodeAggregate, st.sampled_from(["min", "max", "sum", "average"]), _local, st.sampled_from(["path", "children"])
)
_cost = st.recursive(st.one_of(_aggregate, _local), _grow, max_leaves=4)
_systems = st.builds(
    SystemCost, st.sampled_from(["min", "sum", "variance", "p95", "p99.9"]), _cost, st.sampled_from(SYSTEM_SETS)
)


@settings(max_examples=60, deadline=None)
@given(st.builds(SystemObjective, st.sampled_from(["minimise", "maximise"]), _systems, st.just(())))
def test_text_and_data_round_trip(objective):
    assert parse_objective(str(objective)) == objective
    assert objective_from_data(objective_to_data(objective)) == objective


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="minsuaxvergpth()_ \n,<=.0123456789+-*/≤äß;", max_size=60))
def test_any_text_parses_or_is_refused(text):
    for read in (parse_objective, parse_constraint):
        refused = None
        try:
            read(text)
        except ObjectiveError as error:
            refused = error
        assert refused is None or (refused.position is not None and 0 <= refused.position <= len(text))


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("minimise sum(path_latencie)", 13, "did you mean 'path_latency'"),
        ("minimise sum(sum(sum(fanout) over path) over children)", 17, "two levels"),
        ("minimse sum(fanout)", 0, "start with `minimise`"),
        ("minimise sum(fanout) over path", 9, "system cost is expected"),
        ("minimise sum(fanout ? 2)", 20, "unexpected character '?'"),
        ("minimise sum(merged_profile)", 13, "size(merged_profile)"),
        ("minimise sum(x) where x = x + 1", 26, "circles"),
        ("minimise sum(fanout) over client", 26, "brokers, clients"),
        ("minimise sum(average(fanout))", 13, "over path"),
        ("minimise sum(((fanout)", 22, "to close"),
        ("minimise sum(frobnicate(fanout))", 13, "unknown function"),
        ("minimise sum(median(fanout) over path)", 13, "not a node function"),
        ("minimise p101(fanout)", 9, "percentile"),
        ("minimise sum(fanout) where x = fanout, x = fanout", 39, "defined twice"),
        ("minimise sum(fanout) extra", 21, "unexpected 'extra'"),
        ("minimise sum(" + "(" * 40 + "fanout", 37, "nested"),
    ],
)
def test_refusals_point_at_their_place(text, position, message):
    with pytest.raises(ObjectiveError) as caught:
        parse_objective(text)
    assert message in str(caught.value)
    assert caught.value.position == position


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">=", "!=", "=="])
def test_every_operator(operator):
    limit = compile_constraint(f"fanout {operator} 3")
    held = {"<": 2, "<=": 3, ">": 4, ">=": 3, "!=": 2, "==": 3}[operator]
    missed = {"<": 3, "<=": 4, ">": 3, ">=": 2, "!=": 3, "==": 2}[operator]
    assert limit.miss(float(held)) == 0
    assert limit.miss(float(missed)) > 0


def test_thresholds_have_units():
    assert parse_constraint("max(path_latency) <= 200 ms").threshold.value == pytest.approx(0.2)
    assert parse_constraint("path_bandwidth >= 2 Mbit/s").threshold.value == 250_000
    with pytest.raises(ObjectiveError, match="did you mean 'ms'"):
        parse_constraint("path_latency <= 200 mss")
    with pytest.raises(ObjectiveError, match="threshold"):
        parse_constraint("fanout <")
    with pytest.raises(ObjectiveError, match="comparison"):
        parse_constraint("fanout 6")


def test_length_is_limited():
    with pytest.raises(ObjectiveError, match="too long"):
        parse_objective("minimise sum(fanout)" + " " * MAX_LENGTH + "x")


def test_data_is_checked_like_text():
    with pytest.raises(ObjectiveError, match="unknown metric"):
        objective_from_data({"goal": "minimise", "system": "sum", "cost": "path_latencie"})
    with pytest.raises(ObjectiveError, match="goal"):
        objective_from_data({"goal": "improve", "system": "sum", "cost": "fanout"})
    with pytest.raises(ObjectiveError, match="not an expression"):
        objective_from_data({"goal": "minimise", "system": "sum", "cost": [1]})


def test_user_functions_are_known_by_name():
    vocabulary = Vocabulary({"square": lambda value: value * value})
    compiled = compile_objective("minimise sum(square(fanout))", vocabulary)
    assert compiled.metrics == {"fanout"}
    with pytest.raises(ObjectiveError, match="unknown function"):
        parse_objective("minimise sum(square(fanout))")


def test_the_gallery_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text()
    for example in GALLERY:
        assert f"| {example.name} | `{example.text}` | {example.about} |" in page


def test_the_page_names_every_metric():
    page = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text()
    assert all(f"`{name}`" in page for name in BUILT_IN.values)


def test_functions_come_from_entry_points(monkeypatch):
    points = [EntryPoint("twice", "operator:neg", "headgate.tuning")]
    monkeypatch.setattr(vocabulary_module, "entry_points", lambda group: points)
    assert Vocabulary.installed().functions["twice"](2) == -2
    points[0] = EntryPoint("missing", "no_such_module:x", "headgate.tuning")
    with pytest.raises(ObjectiveError, match="cannot be loaded"):
        Vocabulary.installed()
    points[0] = EntryPoint("max", "operator:neg", "headgate.tuning")
    with pytest.raises(ObjectiveError, match="cannot be called that"):
        Vocabulary.installed()
