"""Control of micro-batches: requirements, which context updates are applied, shed or deferred, and estimates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.matching import MatchingError
from headgate.matching.admission import (
    LEVELS,
    PRESETS,
    BatchGate,
    Expected,
    UpdateVictims,
    estimate_crossed,
    levels_of,
    plan_updates,
)


def gate(method, **options):
    return BatchGate.of(method, 1.0, options)


def waiting(count, size=10):
    return np.arange(1, count + 1) * 3, np.full(count, size)


def test_methods_do_to_updates_what_they_may():
    places, sizes = waiting(20)
    much = Expected(rows=100, age_s=0.2, row_cost_s=0.001, update_cost_s=0.01)
    for method in ("traditional", "shed", "batch"):
        assert plan_updates(gate(method), 4, places, sizes, much).upto == 60
        assert not plan_updates(gate(method), 4, places, sizes, much).shed
    # 0.1 s of matching and 2 s of updates against 0.8 s: what stays is at most nine tenths of that.
    shed = plan_updates(gate("shed updates"), 4, places, sizes, much)
    assert (shed.upto, shed.shed_changes) == (60, 138)
    assert sum(shed.shed.has(place, k) for place in places.tolist() for k in range(10)) == 138
    assert len(shed.shed.partly) > 0
    assert not shed.shed.has(60, 9)
    assert shed == plan_updates(gate("shed updates"), 4, places, sizes, much)
    assert shed != plan_updates(gate("shed updates"), 5, places, sizes, much)
    half = plan_updates(gate("shed both", messages_share=0.0), 4, places, sizes, much)
    assert half.shed_changes == 138
    # Rows give what they can, 0.1 s; updates the rest.
    assert plan_updates(gate("shed both", messages_share=1.0), 4, places, sizes, much).shed_changes == 128
    late = plan_updates(gate("hybrid"), 4, places, sizes, much)
    assert (late.upto, bool(late.shed)) == (6, False)
    assert plan_updates(gate("hybrid"), 4, places, sizes, Expected(update_cost_s=1.0)).upto == 3
    for method in ("shed updates", "shed both", "hybrid"):
        assert plan_updates(gate(method), 4, places, sizes, Expected(100, 0.2, 0.001, 0.001)).upto == 60


def test_a_requirement_chooses_the_gate_and_presets_are_the_paper_s_scenarios():
    def chosen(**need):
        return BatchGate.of("traditional", None, {}, need)

    assert {name: chosen(preset=name).method for name in PRESETS} == {
        "e-science": "traditional",
        "sports results": "shed",
        "location based service": "hybrid",
        "load balancing": "shed both",
    }
    assert chosen(preset="load balancing").messages_share == 0.0
    assert chosen(preset="location based service", bound=2.0, state="messages first").order == "messages first"
    assert (chosen(bound=3.0).method, chosen(bound=3.0).order) == ("batch", "arrival")
    with pytest.raises(MatchingError, match="no scenario 'sport'"):
        chosen(preset="sport")


def test_rows_that_an_expression_names_are_shed_first():
    first = np.arange(100) < 60
    some = gate("shed").admit(3, 100, 0.5, 0.01, first)
    assert some.shed == 55
    assert some.keep[first].sum() == 5
    assert some.keep[~first].all()
    more = gate("shed").admit(3, 100, 0.75, 0.01, first)
    assert not more.keep[first].any()
    assert more.keep.sum() == 22
    assert gate("shed").admit(3, 100, 5.0, 0.01, first).keep.sum() == 1


def test_updates_that_an_expression_names_are_shed_first_and_spared_ones_never():
    places, sizes = waiting(20)
    much = Expected(rows=100, age_s=0.2, row_cost_s=0.001, update_cost_s=0.01)
    changes = [(f"s{k % 10}", {"x": 1.0}, {"x": 1.0 + k % 10}) for k in range(200)]
    near = UpdateVictims.parse("x BETWEEN was_x - 3 AND was_x + 3", [{"x": 1.0}]).first(changes)
    assert near.tolist() == [k % 10 <= 3 for k in range(200)]
    strict = np.arange(200) % 10 == 9
    plan = plan_updates(gate("shed updates"), 4, places, sizes, much, near, strict)
    gone = np.array([plan.shed.has(place, k) for place in places.tolist() for k in range(10)])
    assert plan.shed_changes == gone.sum() == 138
    assert gone[near].all()
    assert not gone[strict].any()
    # Where all but the spared ones do not suffice, the rest is late.
    assert plan_updates(gate("shed updates"), 4, places, sizes, much, near, ~near).shed_changes == near.sum()
    mine = UpdateVictims.parse("subscriber = 's3' OR x > 9.5", [{"x": 1}, {"x": 2.5, "y": "text"}])
    assert mine.first(changes).tolist() == [k % 10 in (3, 9) for k in range(200)]
    assert mine.first([("a", {}, {"x": "text"})]).tolist() == [False]
    with pytest.raises(MatchingError, match=r"update_victims: unknown column 'z'.*subscriber, x, was_x"):
        UpdateVictims.parse("z > 1", [{"x": 1.0}])
    with pytest.raises(
        MatchingError, match=r"update_victims: admission by 'hybrid' sheds no updates \(methods that do"
    ):
        gate("hybrid", update_victims="x > 1")


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=12),
    st.integers(1, 400),
    st.floats(0, 2),
    st.booleans(),
)
def test_no_group_misses_more_than_it_tolerates_and_the_most_tolerant_go_first(tolerances, rows, age_s, expression):
    levels = levels_of(tolerances)
    first = np.arange(rows) % 3 == 0 if expression else None
    gated = gate("shed").admit(2, rows, age_s, 0.01, first, levels)
    assert gated.depth.max(initial=0) <= len(levels)
    assert gated.shed + gated.partly + int(gated.keep.sum()) == rows
    saved = 0.0
    for k, (level, count) in enumerate(zip(levels, gated.withheld, strict=True)):
        assert count <= level.tolerance * rows + 1e-6
        saved += count * level.weight
        # A stricter group misses rows only once the more tolerant ones miss all that they may.
        if count and k:
            assert gated.withheld[k - 1] == min(int(levels[k - 1].tolerance * rows + 1e-9), rows - 1)
    work, remaining = rows * 0.01, max(0.0, 1 - age_s)
    if work <= remaining:
        assert saved == 0
    elif not gated.late:
        assert (rows - saved) * 0.01 <= max(0.9 * remaining, 0.01) + 1e-6
    else:
        assert gated.withheld == tuple(min(int(each.tolerance * rows + 1e-9), rows - 1) for each in levels)
    if first is not None and gated.depth.any():
        assert gated.depth[first].min() >= gated.depth[~first].max(initial=0) or not (gated.depth[~first] > 0).any()


def test_estimates_over_classes_and_rows_cover_the_truth():
    rng = np.random.default_rng(8)
    errors = rng.random((300, 400)) < rng.random((300, 1)) * rng.random((1, 400)) * 0.2
    inside = 0
    for _ in range(200):
        lines, columns = rng.choice(300, 64, replace=False), rng.choice(400, 64, replace=False)
        found = estimate_crossed(errors[np.ix_(lines, columns)], 300, 400)
        inside += found.low <= errors.sum() <= found.high
    assert inside >= 185
    assert estimate_crossed(errors, 300, 400).errors == pytest.approx(errors.sum())
