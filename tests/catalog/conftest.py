"""A small deployment, and an empty catalog for every test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from headgate.catalog import Catalog, load_deployment
from headgate.catalog.database import _url
from headgate.model import Deployment

FILE = Path(__file__).parents[1] / "data" / "headgate.yaml"


@pytest.fixture
def deployment() -> Deployment:
    return load_deployment(FILE)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A fresh SQLite file, or the PostgreSQL database that HEADGATE_TEST_POSTGRES names, emptied."""
    given = os.environ.get("HEADGATE_TEST_POSTGRES")
    if given is None:
        yield f"sqlite:///{tmp_path / 'a state dir' / 'catalog.db'}"
        return
    engine = sa.create_engine(_url(given))
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
    yield given


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    with Catalog.open(url) as opened:
        yield opened
