"""What a relay measures of its links: the least latency of a window."""

import pytest

from headgate.relay.meters import LATE_S, Least, LinkMeter


def test_the_least_of_a_window_and_what_was_known_before():
    least = Least()
    for name, value in (("a", 3.0), ("a", 1.0), ("b", 2.0), ("a", 2.0)):
        least.note(name, value)
    assert least.report() == {"a": 1.0, "b": 2.0}
    least.note("a", 5.0)
    assert least.report() == {"a": 5.0, "b": 2.0}


def meter_of(*seconds: tuple[int, float]) -> LinkMeter:
    """A link that brought so many bytes in each second, in ten messages that each waited so long."""
    meter = LinkMeter()
    for second, (size, wait_s) in enumerate(seconds):
        for tenth in range(10):
            meter.note(size // 10, wait_s, second + tenth / 10)
    meter.note(0, 0.0, float(len(seconds)))
    return meter


def test_a_link_that_is_never_late_can_carry_what_it_brought_at_its_best():
    meter = meter_of((1000, 0.02), (5000, 0.02), (2000, 0.03))
    assert meter.report(3.0) == (8000, pytest.approx(2000), pytest.approx(5000))


def test_a_second_in_which_everything_was_late_shows_what_a_link_can_carry():
    """Also where it carried more before: it has become narrower."""
    meter = meter_of((5000, 0.02), (1500, 0.02 + LATE_S + 0.01), (1400, 1.0))
    assert meter.report(3.0) == (7900, pytest.approx(1400), pytest.approx(1400))


@pytest.mark.parametrize(("wait_s", "rate"), [(0.02 + LATE_S - 0.01, 5000), (0.02 + LATE_S + 0.01, 1500)])
def test_late_is_measured_from_the_quickest_message(wait_s: float, rate: float):
    assert meter_of((5000, 0.02), (1500, wait_s)).report(2.0)[2] == pytest.approx(rate)


def test_a_link_that_brings_nothing_any_more_is_not_used():
    assert meter_of((1000, 0.02)).report(100.0)[1] == 0.0
