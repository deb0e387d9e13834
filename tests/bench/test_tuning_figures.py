"""`headgate bench tuning` at a small size: every figure it promises, and what it must show."""

from __future__ import annotations

import pytest

from headgate_studies.bench.tuning import run


@pytest.mark.long
@pytest.mark.slow
def test_a_small_run_shows_what_it_must(capsys):
    figures = run(
        trees=2,
        sites=10,
        seeds=1,
        steps=False,
        constrained_sites=12,
        priced_sites=50,
        traffic_sites=(10, 30),
        approximate_sites=10,
        stream_sites=8,
        streams=2,
        processes=1,
    )
    assert figures["trees"] == 2
    assert figures["combinations"] >= 2 * 90 * 5
    assert figures["max_error"] < 1e-9
    assert figures["star_reached"] == figures["superfluous_zero"] == 1.0
    assert figures["constraint_violations"] == figures["relief_passed_over"] == 0
    assert figures["constraint_runs_missed_at_the_start"] > 0
    assert figures["bytes_per_site_30"] < 1.5 * figures["bytes_per_site_10"]
    assert figures["approximation_saved_p1"] > 0
    assert figures["streams_cost_after"] < figures["streams_cost_before"]
    assert figures["streams_violations"] == 0
    assert figures["streams_max_error"] < 1e-9
    assert "the root apart" in capsys.readouterr().out
