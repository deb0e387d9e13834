"""The studies of this part run, draw and judge on small settings."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from headgate_studies.studies import load
from headgate_studies.studies.pack_network import PackFlow, fair_shares, simulate

SMALL: dict[str, dict[str, Any]] = {
    "pack-queue": {"limit": 20, "overload": 1.5, "seconds": 20},
    "pack-fairness": {"seconds": 20, "case": ["one link", "crossing"]},
}


@pytest.mark.parametrize("name", SMALL)
def test_small_runs_are_drawn_and_judged(name: str) -> None:
    study = load(name).with_parameters(SMALL[name])
    rows: list[dict[str, Any]] = []
    for case in study.cases():
        found = study.run(case, 0)
        rows += [{**case, "seed": 0, **row} for row in (found if isinstance(found, list) else [found])]
    results = pd.DataFrame(rows)
    assert len(study.chart(results).axes) >= 2
    for statement in study.statements:
        text, verdict = statement.judge(results)
        assert text
        assert verdict
    assert study.summary is not None
    assert study.summary(results)


def test_fair_shares_fill_links_progressively() -> None:
    flows = [
        PackFlow("long", 100, ("x", "y")),
        PackFlow("x", 100, ("x",)),
        PackFlow("y", 5, ("y",)),
        PackFlow("heavy", 100, ("x",), weight=2),
    ]
    shares = fair_shares(flows, {"x": 40.0, "y": 20.0})
    assert shares == {"long": 10.0, "x": 10.0, "y": 5.0, "heavy": 20.0}


def test_a_link_gives_fair_shares_to_mixed_policies() -> None:
    flows = [
        PackFlow("a", 20, ("x",)),
        PackFlow("b", 60, ("x",), {"levels": [{"random": 0.5}]}),
        PackFlow("c", 8, ("x",)),
    ]
    found = simulate(flows, {"x": 40.0}, seconds=100, limit=100, ours=True, seed=1)
    got = {name: outcome.delivered / 80 for name, outcome in found.items()}
    assert got["a"] == pytest.approx(16, rel=0.1)
    assert got["b"] == pytest.approx(16, rel=0.1)
    assert got["c"] == pytest.approx(8, rel=0.1)
