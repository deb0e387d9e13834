"""A small deployment, and an empty catalog for every test, on every database that there is."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.catalog.postgres import programs, server

from headgate.catalog import Catalog, load_deployment
from headgate.catalog.database import parse_url
from headgate.model import Deployment

GIVEN = os.environ.get("HEADGATE_TEST_POSTGRES")
PROGRAMS = programs()
FILE = Path(__file__).parents[1] / "data" / "headgate.yaml"


@pytest.fixture
def deployment() -> Deployment:
    return load_deployment(FILE)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The database that HEADGATE_TEST_POSTGRES names, else one of a server of this machine's own programs."""
    if GIVEN is not None:
        yield GIVEN
        return
    assert PROGRAMS is not None
    with server(PROGRAMS) as url:
        yield url


@pytest.fixture(params=["sqlite", *([pytest.param("postgresql", marks=pytest.mark.slow)] if GIVEN or PROGRAMS else [])])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh SQLite file, and where there is PostgreSQL an emptied database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'a state dir' / 'catalog.db'}"
    given: str = request.getfixturevalue("postgres")
    engine = sa.create_engine(parse_url(given))
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
    return given


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    with Catalog.open(url) as opened:
        yield opened
