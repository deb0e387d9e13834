"""Make-before-break step lists under every interleaving with rows in flight."""

from __future__ import annotations

import pytest

from headgate.tuning.shape import Shape
from headgate.tuning.steps import make_before_break
from headgate_studies.models.interleavings import Model, SwitchRules

CASES = {
    "child promotion": ([-1, 0, 1], [(2, 0)]),
    "child demotion": ([-1, 0, 0], [(2, 1)]),
    "subtree migration": ([-1, 0, 0, 1], [(3, 2)]),
    "subtree promotion": ([-1, 0, 1, 1], [(2, 0), (3, 0)]),
    "parent-child swap": ([-1, 0, 1, 2], [(1, 2), (2, 0), (3, 1)]),
}


@pytest.mark.parametrize("name", CASES)
def test_no_interleaving_loses_repeats_or_reorders(name):
    parents, moves = CASES[name]
    shape = Shape(parents)
    steps = make_before_break(shape, moves)
    for rows, cache in ((1, 0), (1, 1)) if len(parents) > 3 else ((2, 0), (3, 1)):
        verdict = Model(shape, steps, rows, cache).check()
        assert verdict.fault is None, verdict.trace
        assert verdict.states > 50
        assert verdict.ends >= 1


@pytest.mark.parametrize(
    ("rules", "fault"),
    [
        (SwitchRules(ask_for_the_missing=False), "before row"),
        (SwitchRules(drop_what_is_covered=False), "delivered twice"),
        (SwitchRules(ask_further_up=False), "miss rows"),
    ],
)
def test_the_check_notices_a_broken_rule(rules, fault):
    shape = Shape([-1, 0, 1, 2])
    steps = make_before_break(shape, [(1, 2), (2, 0), (3, 1)])
    verdict = Model(shape, steps, rows=2, cache=0, rules=rules).check()
    assert verdict.fault is not None
    assert fault in verdict.fault
    assert verdict.trace


def test_dropping_first_and_never_catching_up_is_noticed():
    shape = Shape([-1, 0, 1])
    steps = [step for step in make_before_break(shape, [(2, 0)]) if step.kind != "catch up"]
    verdict = Model(shape, steps, rows=1).check()
    assert verdict.fault is not None


def test_steps_are_ordered_and_told_in_words():
    shape = Shape([-1, 0, 1, 2])
    steps = make_before_break(shape, [(1, 2), (2, 0), (3, 1)])
    assert [(step.kind, step.site) for step in steps[:3]] == [("connect", 2), ("catch up", 2), ("drop", 2)]
    assert steps[0].told(["root", "a", "b", "c"]) == "b connects to root"
    with pytest.raises(ValueError, match="one after the other"):
        make_before_break(shape, [(1, 2), (2, 1)])
