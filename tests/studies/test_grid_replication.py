"""The judgements of `grid-replication` on made-up results: what they compare, and where runs that ended early count."""

from __future__ import annotations

import pandas as pd
import pytest

from headgate_studies.studies.grid_replication import STUDY
from headgate_studies.studies.report import judge
from headgate_studies.studies.study import FAILS, REPRODUCES


def results(saving: float = 0.8, reached: tuple[float, ...] = (0.4, 0.6, 0.8, 1.0)) -> pd.DataFrame:
    """Four dimensions need `saving` less than two at every level; deeper indexes need less, and more connections."""
    rows = []
    for case in STUDY.cases():
        dimensions, digits = case["dimensions"], case["digits"]
        replication = (1 - saving) ** ((dimensions - 2) / 2) / 10 - digits * 1e-6
        figures = {"replication": replication, "connections": digits, "messages": digits * 100.0}
        if case["hot_spot"] == "identical":
            rows.append({**case, **figures, "level": 1.0, "client_load": 0.1, "answered": 1.0, "sites": 2})
            continue
        small = 2 if case["hot_spot"] == "small" else 1
        figures = {**figures, "connections": digits * small, "messages": digits * 100 * small}
        rows += [
            {**case, **figures, "level": level, "client_load": 0.95 * level, "of_bound": 0.96 * level}
            for level in reached
        ]
    return pd.DataFrame(rows)


def test_every_statement_holds_where_it_was_made_to():
    assert {claim: verdict for claim, _, verdict in judge(STUDY, results())} == {
        claim: REPRODUCES for claim, _ in STUDY.statements
    }
    texts = [text for _, text, _ in judge(STUDY, results(saving=0.75))]
    assert texts[0] == "8 digits: 75% at 40% client load, 75% at 60% client load, 75% at 80% client load"
    assert "75% (large, 2 each), 75% (large, 3 each), 75% (small, 2 each)" in texts[2]


@pytest.mark.parametrize("reached", [(0.4, 1.0), (1.0,)])
def test_levels_that_no_run_reached_are_no_evidence(reached):
    found = judge(STUDY, results(reached=reached))
    assert found[1][1:] == ("at 60 % client load: not reached", FAILS)
    assert found[2][1:] == ("at 60 % client load: not reached", FAILS)
    assert [verdict for _, _, verdict in found[4:6]] == [FAILS, FAILS]
    assert STUDY.chart(results(reached=reached)).axes


def test_no_saving_is_no_success():
    verdicts = [verdict for _, _, verdict in judge(STUDY, results(saving=0.1))]
    assert verdicts[:3] == [FAILS] * 3
