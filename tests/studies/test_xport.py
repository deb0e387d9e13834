"""The `xport-*` studies run on a small scale, draw, and judge."""

from __future__ import annotations

import pandas as pd
import pytest

from headgate_studies.studies import STUDIES, charts, load

SMALL = {
    "feeds-load": [
        {"sites": 8, "clients": 10, "feeds": 30, "per_client": 2, "client_min": 30, "root_min": minutes}
        for minutes in (5, 30)
    ],
    "xport-convergence": [{"sites": 8, "noise": 0.0}, {"sites": 8, "noise": 0.4}],
    "xport-superfluous": [
        {"sites": 10, "rules": rules} for rules in ("all", "no subtree promotion", "no promotion at all")
    ],
    "xport-adaptivity": [{"sites": 8, "match_ms": 5}],
    "xport-constraints": [
        {"sites": 8, "objective": objective, "limit": limit}
        for objective in ("bottleneck bandwidth", "path latency", "redundant data", "outgoing bandwidth")
        for limit in ("fanout <= 2", "none")
    ],
    "xport-traffic": [
        {"type": kind, "sites": sites} for kind in ("I", "II", "III", "IV", "V", "VI") for sites in (5, 10)
    ],
    "xport-statistics": [{"sites": 8, "periods": 2, "p": p} for p in (0, 1, 2)],
    "xport-modes": [
        {"sites": 8, "objective": objective, "mode": mode, "apply": apply}
        for objective in ("sum of latency", "largest latency", "smallest bandwidth")
        for mode in ("bottleneck", "opportunistic")
        for apply in ("serial", "concurrent")
    ],
    "xport-scope": [{"sites": 8, "levels": levels, "objective": "minimise sum(path_latency)"} for levels in (3, 4, 5)],
}


def test_every_study_of_the_tuner_is_tried():
    assert set(SMALL) == {name for name in STUDIES if name.startswith(("xport-", "feeds-"))}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_small_run(name):
    study = load(name)
    rows = []
    for case in SMALL[name]:
        assert set(case) == set(study.cases()[0])
        for seed in range(2):
            found = study.run(case, seed)
            rows += [{**case, "seed": seed, **row} for row in ([found] if isinstance(found, dict) else found)]
    frame = pd.DataFrame(rows)
    for claim, judge in study.statements:
        told, verdict = judge(frame)
        assert told, claim
        assert verdict in ("reproduces", "in part", "does not reproduce")
    assert study.summary(frame)
    with charts.styled():
        assert study.chart(frame).axes
