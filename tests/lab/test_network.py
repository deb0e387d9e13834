"""When packets of a laboratory arrive."""

from __future__ import annotations

import pytest

from headgate_studies.lab.network import QUEUE_S, LabNetwork, PacedGate, Path


def test_a_path_sends_at_its_rate_and_delivers_after_its_delay() -> None:
    network = LabNetwork({(1, 2): Path(delay_s=0.1, rate_bytes_per_s=1000.0)})
    assert [network.send(1, 2, 100, 0.0) for _ in range(3)] == pytest.approx([0.2, 0.3, 0.4])
    assert network.send(1, 2, 100, 5.0) == pytest.approx(5.2)


def test_the_other_direction_is_a_path_of_its_own() -> None:
    network = LabNetwork({(1, 2): Path(delay_s=0.1, rate_bytes_per_s=1000.0), (2, 1): Path(delay_s=0.1)})
    network.send(1, 2, 1000, 0.0)
    assert network.send(2, 1, 1000, 0.0) == pytest.approx(0.1)


def test_packets_arrive_in_order_whatever_the_jitter() -> None:
    network = LabNetwork({(1, 2): Path(delay_s=0.1, jitter_s=0.5)}, seed=3)
    arrivals = [network.send(1, 2, 100, 0.001 * number) or 0.0 for number in range(200)]
    assert arrivals == sorted(arrivals)
    assert max(arrivals) - min(arrivals) > 0.3


def test_what_does_not_fit_the_queue_of_a_path_is_dropped() -> None:
    rate = 1e6
    network = LabNetwork({(1, 2): Path(rate_bytes_per_s=rate)})
    arrived = [network.send(1, 2, 1000, 0.0) for _ in range(1000)]
    passed = [each for each in arrived if each is not None]
    assert len(passed) == pytest.approx(QUEUE_S * rate / 1000, abs=2)
    assert network.carried[1, 2].dropped == 1000 - len(passed)
    assert network.carried[1, 2].bytes == 1000 * len(passed)


def test_loss_and_cuts() -> None:
    network = LabNetwork({(1, 2): Path(loss=0.25), (2, 1): Path(cut=True)}, seed=1)
    came = sum(network.send(1, 2, 10, 0.0) is not None for _ in range(2000))
    assert came == pytest.approx(1500, abs=80)
    assert network.send(2, 1, 10, 0.0) is None
    network.change(2, 1, Path())
    assert network.send(2, 1, 10, 0.0) == 0.0


def test_a_download_is_shared_by_all_who_send() -> None:
    network = LabNetwork({(1, 3): Path(), (2, 3): Path()}, {3: 1000.0})
    assert [network.send(sender, 3, 500, 0.0) for sender in (1, 2, 1)] == pytest.approx([0.5, 1.0, 1.5])


def test_a_host_that_nothing_leads_to_gets_nothing() -> None:
    assert LabNetwork({(1, 2): Path()}).send(1, 3, 10, 0.0) is None


def test_a_gate_without_a_rate_lets_everything_pass() -> None:
    assert PacedGate(None).passed(1 << 30, 1.0) == 1.0


def test_a_network_is_read_back_from_its_document() -> None:
    network = LabNetwork({(1, 2): Path(0.1, 0.01, 0.5, 1000.0, cut=True)}, {2: 7.0}, seed=4)
    again = LabNetwork.parse(network.document())
    assert (again.paths, again.downloads, again.seed) == (network.paths, network.downloads, network.seed)
