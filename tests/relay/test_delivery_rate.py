"""What a link can carry is found from its messages; the bound of its sender follows, on a simulated link."""

import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.relay.budget import Bucket
from headgate.relay.delivery_rate import LEAST_S, WINDOW_S, DeliveryRate, LeastWait, SizeSlope
from headgate.relay.link_bound import LATE_S, LinkBound, LinkPace

OFFSET_S = 1234.5  # the receiver's clock is so much ahead


@dataclass
class Wire:
    """A link with a rate and a delay: messages go one after another. What it delivers is noted by a receiver."""

    rate: float
    delay_s: float
    jitter_s: float = 0.0
    seed: int = 1
    free_s: float = 0.0
    last_s: float = 0.0
    meter: DeliveryRate = field(default_factory=DeliveryRate)
    noise: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.noise = random.Random(self.seed)

    def send(self, size: int, now: float) -> float:
        """Send a message, and return when it comes."""
        self.free_s = max(self.free_s, now) + size / self.rate
        self.last_s = max(self.last_s, self.free_s + self.delay_s + self.noise.uniform(0, self.jitter_s))
        return self.last_s

    def deliver(self, size: int, now: float) -> None:
        self.meter.note(size, now, self.send(size, now) + OFFSET_S)


RATES = st.floats(1e4, 1e8)
DELAYS = st.floats(0.0, 0.5)


@given(rate=RATES, delay_s=DELAYS, over=st.floats(1.3, 8.0), jitter_s=st.floats(0.0, 0.02), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_rate_of_a_busy_link_is_found_whatever_its_delay_and_the_clocks(
    rate: float, delay_s: float, over: float, jitter_s: float, seed: int
):
    wire = Wire(rate, delay_s, jitter_s, seed)
    for number in range(100):  # for 5 s, messages of 50 ms of the rate that its sender believes in
        wire.deliver(max(int(rate * over * 0.05 * wire.noise.uniform(0.5, 1.5)), 1), number * 0.05)
    assert wire.meter.rate_bytes_per_s == pytest.approx(rate, rel=0.1)
    assert wire.meter.queue_s > 0.1


@given(
    rate=RATES,
    delay_s=DELAYS,
    sizes=st.lists(st.floats(0.001, 0.04), min_size=20, max_size=80),
    jitter_s=st.floats(0.0, 0.01),
)
@settings(max_examples=60, deadline=None)
def test_messages_that_find_the_link_empty_never_lower_what_is_known(
    rate: float, delay_s: float, sizes: list[float], jitter_s: float
):
    wire = Wire(rate, delay_s)
    for number in range(60):
        wire.deliver(int(rate * 0.1), number * 0.05)
    known, wire.jitter_s = wire.meter.rate_bytes_per_s, jitter_s
    assert known == pytest.approx(rate, rel=0.05)
    for number, part in enumerate(sizes):
        wire.deliver(max(int(rate * part), 1), 10.0 + number * 0.1)
    assert wire.meter.rate_bytes_per_s >= 0.999 * known
    assert wire.meter.queue_s < 0.05


@given(before=RATES, change=st.sampled_from([0.1, 0.25, 4.0, 10.0]))
@settings(max_examples=30, deadline=None)
def test_a_link_that_has_changed_is_known_within_the_window(before: float, change: float):
    wire = Wire(before, 0.05)
    for number in range(80):
        wire.deliver(int(before * 0.06), number * 0.05)
    wire.rate = before * change
    number = 80
    while wire.last_s < 4.0 + WINDOW_S + 2.0:
        wire.deliver(int(max(before, wire.rate) * 0.06), number * 0.05)
        number += 1
    assert wire.meter.rate_bytes_per_s == pytest.approx(wire.rate, rel=0.15)


def test_a_receiver_that_was_held_up_does_not_make_a_link_faster():
    wire = Wire(1e6, 0.02)
    for number in range(200):
        came_s = wire.send(52_000, number * 0.05)
        wire.meter.note(52_000, number * 0.05, max(came_s, 5.0 if 4.2 < came_s < 5.0 else 0.0) + OFFSET_S)
        assert wire.meter.rate_bytes_per_s < 1.1e6


def test_the_quickest_message_counts_for_a_minute_at_most():
    least = LeastWait()
    assert least.note(0.1, 0.0) == 0.1
    assert least.note(0.5, LEAST_S) == 0.1
    assert least.note(0.5, 2 * LEAST_S) == 0.5
    assert least.note(0.7, 5 * LEAST_S) == 0.7


def closed_loop(real: float, declared: float, seconds: float, *, follow: bool = False, delay_s: float = 0.05):
    """A sender with rows enough for all the time, its bucket, the link, and reports twice a second."""
    wire, bound = Wire(real, delay_s), LinkBound()
    bucket = Bucket(declared)
    came: list[tuple[float, int]] = []
    on_link_s: list[float] = []
    pending: list[tuple[float, int, float]] = []
    limits: list[float] = []
    now = report_s = 0.0
    while now < seconds:
        if bucket.ready(now):
            size = max(int(bucket.rate_bytes_per_s * 0.05), 1)
            bucket.spend(size, now)
            bound.sent(size, now)
            pending.append((wire.send(size, now), size, now))
        while pending and pending[0][0] <= now:
            at_s, size, stored_s = pending.pop(0)
            wire.meter.note(size, stored_s, at_s + OFFSET_S)
            came.append((at_s, size))
            on_link_s.append(at_s - stored_s)
        if now - report_s >= 0.5:
            report_s = now
            used = sum(size for at_s, size in came if at_s > now - 1.0)
            bound.heard(LinkPace(wire.meter.rate_bytes_per_s, used, wire.meter.queue_s), declared, now, follow=follow)
            limit = bound.limit(declared, follow=follow)
            if limit != bucket.rate_bytes_per_s:
                level, bucket = bucket.level, Bucket(limit)
                bucket.level, bucket.updated_s = min(level, bucket.level), now
            limits.append(limit)
        now += 0.01
    return came, on_link_s, limits


@pytest.mark.parametrize("delay_s", [0.005, 0.1])
def test_a_bandwidth_that_is_declared_four_times_too_high_is_followed_within_seconds(delay_s: float):
    came, on_link_s, limits = closed_loop(1e6, 4e6, 20.0, delay_s=delay_s)
    assert min(limits[:8]) < 1.1e6  # within 4 s
    late = [size for at_s, size in came if at_s > 10.0]
    assert sum(late) / 10 > 0.9e6  # and the link stays busy
    assert max(on_link_s[-50:]) < LATE_S + 0.5 + delay_s


def test_a_bandwidth_that_is_declared_too_low_is_kept_to_unless_the_measured_one_counts():
    came, _, _ = closed_loop(4e6, 1e6, 20.0)
    assert sum(size for at_s, size in came if at_s > 10.0) / 10 < 1.1e6
    came, on_link_s, limits = closed_loop(4e6, 1e6, 20.0, follow=True)
    assert max(limits[:16]) > 3e6  # within 8 s
    assert sum(size for at_s, size in came if at_s > 10.0) / 10 > 3.6e6
    assert max(on_link_s[-50:]) < LATE_S + 1.0


def test_a_link_that_carries_what_is_declared_is_hardly_held_back():
    came, _, _ = closed_loop(1e6, 1.04e6, 30.0)  # headers of TCP and TLS are not counted as declared
    assert sum(size for at_s, size in came if at_s > 10.0) / 20 > 0.95e6


def test_a_bound_ends_at_what_is_declared():
    bound = LinkBound()
    bound.sent(100, 0.0)
    bound.heard(LinkPace(100.0, 100.0, 1.0), 400.0, 0.5)
    assert bound.limit(400.0) < 100.0
    for number in range(20):
        bound.heard(LinkPace(100.0, bound.limit(400.0), 0.0), 400.0, number / 2)
    assert bound.limit(400.0) == 400.0
    assert bound.rate_bytes_per_s == math.inf


@given(rate=st.floats(1e5, 2e6), delay_s=DELAYS, seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_how_much_faster_a_link_is_than_what_is_sent_shows_in_messages_of_different_sizes(
    rate: float, delay_s: float, seed: int
):
    """A quarter of what the link carries is sent, one of eight messages smaller; some come late by any other reason."""
    noise, slope = random.Random(seed), SizeSlope()
    for number in range(100):
        size = int(rate / 4 * 0.05 / (4 if number % 8 == 0 else 1))
        late_s = noise.choice([0.0, 0.0002, 0.0005, 0.1])
        slope.note(size, OFFSET_S + delay_s + size / rate + late_s, number * 0.05)
    if rate * 0.0125 >= 4096:
        assert slope.rate(5.0) == pytest.approx(rate, rel=0.25)
    else:
        assert slope.rate(5.0) == 0.0


def test_messages_of_one_size_tell_nothing():
    slope = SizeSlope()
    for number in range(100):
        slope.note(10_000, 0.05, number * 0.05)
    assert slope.rate(5.0) == 0.0
