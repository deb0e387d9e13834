"""Control of micro-batches: requirements, which context updates are applied, shed or deferred, and estimates."""

import numpy as np
import pytest

from headgate.matching import MatchingError
from headgate.matching.admission import PRESETS, BatchGate, Expected, estimate_crossed, plan_updates


def gate(method, **options):
    return BatchGate.of(method, 1.0, options)


def waiting(count, size=10):
    return np.arange(1, count + 1) * 3, np.full(count, size)


def test_methods_do_to_updates_what_they_may():
    places, sizes = waiting(20)
    much = Expected(rows=100, age_s=0.2, row_cost_s=0.001, update_cost_s=0.01)
    for method in ("traditional", "shed", "batch"):
        assert plan_updates(gate(method), 4, places, sizes, much).upto == 60
        assert plan_updates(gate(method), 4, places, sizes, much).shed == ()
    # 0.1 s of matching and 2 s of updates against 0.8 s: what stays is at most nine tenths of that.
    shed = plan_updates(gate("shed updates"), 4, places, sizes, much)
    assert (shed.upto, shed.shed_changes) == (60, 140)
    assert len(shed.shed) == 14
    assert set(shed.shed) < set(places[:-1].tolist())
    assert shed == plan_updates(gate("shed updates"), 4, places, sizes, much)
    assert shed != plan_updates(gate("shed updates"), 5, places, sizes, much)
    half = plan_updates(gate("shed both", messages_share=0.0), 4, places, sizes, much)
    assert half.shed_changes == 140
    # Rows give what they can, 0.1 s; updates the rest.
    assert plan_updates(gate("shed both", messages_share=1.0), 4, places, sizes, much).shed_changes == 130
    late = plan_updates(gate("hybrid"), 4, places, sizes, much)
    assert (late.upto, late.shed) == (6, ())
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
