"""What a relay measures of its links: the least latency of a window."""

import pytest

from headgate.relay.meters import Least, LinkMeter


def test_the_least_of_a_window_and_what_was_known_before():
    least = Least()
    for name, value in (("a", 3.0), ("a", 1.0), ("b", 2.0), ("a", 2.0)):
        least.note(name, value)
    assert least.report() == {"a": 1.0, "b": 2.0}
    least.note("a", 5.0)
    assert least.report() == {"a": 5.0, "b": 2.0}


def meter_of(*seconds: tuple[int, float]) -> LinkMeter:
    """A link that brought so many bytes in each second, in ten messages that each were on their way so long."""
    meter = LinkMeter()
    for second, (size, wait_s) in enumerate(seconds):
        for tenth in range(10):
            now = second + tenth / 10
            meter.note(size // 10, now - wait_s, now, now)
    meter.note(0, len(seconds) - 0.02, float(len(seconds)), float(len(seconds)))
    return meter


def test_a_link_that_is_never_late_can_carry_what_it_brought_at_its_best():
    said = meter_of((1000, 0.02), (5000, 0.02), (2000, 0.03)).report(3.0)
    assert (said.bytes, said.used_bytes_per_s) == (8000, pytest.approx(2000))
    assert (said.rate_bytes_per_s, said.busy) == (pytest.approx(5000), False)


def test_a_second_in_which_everything_waited_shows_what_a_link_can_carry():
    """Also where it carried more before: it has become narrower."""
    said = meter_of((5000, 0.02), (1500, 0.5), (1400, 1.0)).report(3.0)
    assert (said.bytes, said.rate_bytes_per_s, said.busy) == (7900, pytest.approx(1450, rel=0.1), True)


def test_a_link_that_brings_nothing_any_more_is_not_used():
    assert meter_of((1000, 0.02)).report(100.0).used_bytes_per_s == 0.0
