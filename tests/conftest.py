"""What the whole suite shares: its fixtures, and how two workers divide it. One run starts Spark once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# How long an example takes says something about the machine, not about the code.
settings.register_profile("headgate", deadline=None, derandomize=True)
settings.load_profile("headgate")


ROOT = Path(__file__).parents[1]
_WITH_SPARK = re.compile(r"^(?:async )?def \w+\([^)]*\bspark\b", re.MULTILINE)


@cache
def unit(file: str) -> str:
    """What one worker runs without a break: the files that need Spark, which is started once, or one other file."""
    return "spark" if _WITH_SPARK.search((ROOT / file).read_text()) else file


class Halves(LoadScopeScheduling):
    """Divides the suite between workers by `unit`."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Halves:
    return Halves(config, log)


# A fixture that starts something outside of the process, and the mark of every test that asks for it.
STARTS = {"spark": "spark", "nats_url": "nats"}


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks for what starts servers, so that `make test-fast` leaves it out; then the longest units first."""
    for item in items:
        for fixture in STARTS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(STARTS[fixture])

    def rank(item: pytest.Item) -> int:
        live = item.get_closest_marker("live") is not None
        return 0 if unit(item.nodeid.partition("::")[0]) == "spark" else 1 if live else 2

    items.sort(key=rank)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """The suite's Spark session, with its state in a path that has a space in it."""
    from headgate_studies.session import make_session

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
