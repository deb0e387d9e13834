"""What a relay measures of its links: the least latency of a window."""

from headgate.relay.meters import Least


def test_the_least_of_a_window_and_what_was_known_before():
    least = Least()
    for name, value in (("a", 3.0), ("a", 1.0), ("b", 2.0), ("a", 2.0)):
        least.note(name, value)
    assert least.report() == {"a": 1.0, "b": 2.0}
    least.note("a", 5.0)
    assert least.report() == {"a": 5.0, "b": 2.0}
