"""The simulated logs and a real nats-server: one contract, and the same answers to random operations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.fabric import EmbeddedServer
from headgate.virtual.server import SimulatedServer
from headgate_studies.testing.log_contract import LogContract
from headgate_studies.testing.log_operations import compare_seed
from headgate_studies.testing.log_stores import LogStore, NatsStore, SimulatedStore


def simulated() -> SimulatedStore:
    return SimulatedStore(SimulatedServer(sync_always=False))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsStore]:
    """A server of this module's own: its tests stop it and damage its files."""
    with EmbeddedServer(tmp_path_factory.mktemp("contract"), sync_always=False) as server:
        store = NatsStore(server)
        yield store
        store.close()


class TestSimulated(LogContract):
    @pytest.fixture
    def store(self) -> LogStore:
        return simulated()


@pytest.mark.nats
class TestNats(LogContract):
    @pytest.fixture
    def store(self, real: NatsStore) -> LogStore:
        return real


@pytest.mark.nats
@pytest.mark.parametrize("seed", range(8))
def test_both_answer_the_same(real: NatsStore, seed: int) -> None:
    compare_seed(simulated(), real, seed, 150)


@pytest.mark.nats
def test_both_answer_the_same_over_restarts(real: NatsStore) -> None:
    compare_seed(simulated(), real, 1000, 150, restarts=True)


class Forgetful(SimulatedStore):
    """A simulated server that does not obey fences."""

    def publish(
        self, subject: str, data: bytes, expect: int | None = None, replace: bool = False, message_id: str | None = None
    ) -> int:
        return super().publish(subject, data, None, replace, message_id)


def test_a_difference_is_found_and_shrunk() -> None:
    with pytest.raises(AssertionError, match="seed 5, limits") as caught:
        compare_seed(simulated(), Forgetful(SimulatedServer()), 5, 150)
    _, listed = str(caught.value).split("\nafter\n")
    assert len(listed.splitlines()) <= 2
