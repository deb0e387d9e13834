"""The upper bound of what any plan could serve: right where it can be worked out by hand, and never below a run."""

from __future__ import annotations

import numpy as np
import pytest

from headgate_studies.models.serving import fill
from headgate_studies.models.serving_bound import most_served
from headgate_studies.workloads.serving import STEPS, HotSpot


def test_one_box_wanted_by_all_costs_its_copies():
    """All of `count` queries want one box of one site: an excess of E needs E / count cells elsewhere."""
    count, times, sites = 100, 25.0, 16
    found = times * most_served([[0, 0, 0, 0]] * count, [[128, 128, STEPS, STEPS]] * count, 4, times)
    asked = count * (128 / STEPS) ** 2
    scale = found / asked
    assert found + (asked - times / sites / scale) / count == pytest.approx(times)


def test_an_even_load_needs_no_copies():
    corners = [[x, y, 0, 0] for x in range(0, STEPS, 256) for y in range(0, STEPS, 256)]
    assert most_served(corners, [[x + 256, y + 256, 512, 512] for x, y, _, _ in corners], 4, 25) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_finer_cells_lower_the_bound_and_never_below_what_was_served(exponent):
    boxes = HotSpot(exponent, most=0.1).boxes(np.random.default_rng(3))
    low, high = zip(*(next(boxes) for _ in range(200)), strict=True)
    coarse = most_served(low, high, 2, 4)
    finer = most_served(low, high, 2, 4, borders=[np.arange(0, STEPS, 32)] * 4)
    assert finer <= coarse < 1.0
    run = fill(dimensions=4, digits=8, exponent=exponent, seed=3, side=2, times=4, most=0.1, paper=False)
    assert run.refused
    assert 0.5 < run.end.client_load <= run.bound < 1.0
