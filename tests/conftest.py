"""Fixtures that the whole suite shares. One test session starts Spark once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

# How long an example takes says something about the machine, not about the code.
settings.register_profile("headgate", deadline=None, derandomize=True)
settings.load_profile("headgate")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """The suite's Spark session, with its state in a path that has a space in it."""
    from headgate.pipeline.session import make_session

    session = make_session(
        "headgate-tests",
        master="local[2]",
        options={"spark.driver.memory": "1g"},
        state_dir=tmp_path_factory.mktemp("spark state"),
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The suite's NATS server; tests use names or namespaces of their own."""
    from headgate.fabric import EmbeddedServer

    with EmbeddedServer(tmp_path_factory.mktemp("nats state"), sync_always=False) as server:
        yield server.url
