"""Sites as hosts in a laboratory: rows take the links of the plan and no other path."""

from __future__ import annotations

import pytest

from headgate_studies.bench import hosts
from headgate_studies.lab import unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no laboratory here: {unavailable()}")


@pytest.mark.long
@pytest.mark.live
def test_rows_travel_over_the_links_of_the_plan_alone() -> None:
    found = hosts.run(hosts=4, rows=200, seconds=3.0)
    assert found["rows"] > 4 * 200 * 6  # everything at each site, and beside it what is fast
    assert found["root_bytes"] < found["copies_bytes"]
    assert found["difference"] == 0
    assert found["off_plan_bytes"] == 0  # as the network counts, not we
    # A parent of a busy machine may seem dead: its child then connects to a standby, and gets no rows there.
    assert found["standby_bytes"] < min(each["ours"] for each in found["links"].values()) / 2
    assert set(found["links"]) == {"root->site1", "site1->site2", "site1->site3", "site2->site4"}
    # Little traffic, so that what surrounds each message weighs: at least what we count, and not twice as much.
    below = [each["ratio"] for name, each in found["links"].items() if not name.startswith("root->")]
    assert 1.0 <= min(below) <= max(below) < 2.0
