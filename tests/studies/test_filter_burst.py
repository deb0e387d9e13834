"""The burst study at small size: every method on the real index, the chart and the verdicts."""

import pandas as pd
import pytest

from headgate_studies.studies import filter_burst_run, load


@pytest.mark.slow
def test_methods_differ_as_they_should_on_the_real_index(monkeypatch):
    monkeypatch.setattr(filter_burst_run, "COMPRESS", 2000.0)
    study = load("filter-burst")
    cases = [
        {**case, "profiles": 400}
        for case in study.cases()
        if case["rates"] == "overload" and case["burst"] == "combined" and case["bound_s"] == 5.0
    ]
    chosen = [c for c in cases if c["method"] in ("traditional eager", "shed messages", "batching (arrival)", "hybrid")]
    rows = [{**case, **row} for case in chosen for row in filter_burst_run.run(case, 1)]
    found = pd.DataFrame(rows).groupby("method")[["false_positives", "false_negatives", "shed", "messages"]].sum()
    assert found.loc["traditional eager", "false_negatives"] == found.loc["batching (arrival)", "false_negatives"] == 0
    assert found.loc["shed messages", "false_positives"] == 0
    assert found.loc["shed messages", "shed"] > 0
    assert found["messages"].nunique() == 1
