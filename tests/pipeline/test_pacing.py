"""How long queries rest between micro-batches: by what they take, by the share of the cores, never past the trigger."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.pipeline.pacing import HALF, QueryPace


@given(st.floats(0.001, 5.0), st.integers(1, 40), st.integers(1, 64), st.floats(0.01, 10.0))
def test_the_cores_are_busy_for_their_share_unless_the_trigger_is_shorter(took_s, queries, cores, longest_s):
    pace = QueryPace(longest_s, cores)
    rest_s = pace.rest_s(took_s, queries)
    assert rest_s >= 0.0
    interval_s = took_s + rest_s
    assert interval_s <= max(longest_s, took_s) + 1e-9
    busy = queries * took_s / interval_s
    if took_s < interval_s < longest_s - 1e-9:  # neither bound holds, so the share does
        assert busy <= cores * pace.share * (1 + 1e-6)
        assert took_s <= interval_s / HALF * (1 + 1e-6)
        assert abs(busy - min(cores * pace.share, queries / HALF)) < 1e-6 * busy


def test_one_stream_alone_rests_for_half_of_the_time_and_a_slow_machine_keeps_the_interval():
    pace = QueryPace(longest_s=1.0, cores=2)
    assert pace.rest_s(0.3, queries=1) == 0.3
    assert pace.rest_s(0.6, queries=3) == 0.4  # the interval of a fixed trigger
    assert pace.rest_s(1.4, queries=3) == 0.0
