"""The database under the catalog: migrations, settings of SQLite, addresses, and two processes that write at once."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from headgate.catalog import Catalog, CatalogBusyError, CatalogError, tables
from headgate.catalog.database import open_database, writing
from headgate.model import Deployment

WRITER = """
import sys
from dataclasses import replace
from headgate.catalog import Catalog
from headgate.model import Subscription
url, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
revisions = []
with Catalog.open(url) as catalog:
    for number in range(count):
        revisions.append(catalog.subscribe(Subscription(f"{who}-{number}", "ticks", "lyon", where=f"price > {number}")))
        revisions.append(catalog.set_context("storms", {who: number}))
print(revisions)
"""


@pytest.mark.long
@pytest.mark.slow
def test_two_processes_are_serialised(url: str, deployment: Deployment) -> None:
    with Catalog.open(url) as catalog:
        catalog.apply(deployment)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, url, who, "8"], env=environment, stdout=subprocess.PIPE, text=True
            )
            for who in ("one", "two")
        ]
        outputs = [writer.communicate(timeout=60)[0] for writer in writers]
        assert [writer.returncode for writer in writers] == [0, 0]
        revisions = [revision for output in outputs for revision in json.loads(output)]
        assert sorted(revisions) == list(range(2, 34))
        snapshot = catalog.snapshot()
    assert snapshot.revision == 33
    assert len(snapshot.deployment.subscriptions) == 2 + 16
    assert len(set(snapshot.subscription_ids.values())) == 18
    # Neither writer lost the other's value: each change was made on what the one before had left.
    assert snapshot.deployment.subscriptions["storms"].context == {"limit": 12.5, "one": 7, "two": 7}
    assert all(snapshot.class_ids[f"one-{n}"] == snapshot.class_ids[f"two-{n}"] for n in range(8))


@pytest.mark.slow
def test_two_processes_may_make_the_same_new_catalog(url: str) -> None:
    program = "import sys; from headgate.catalog import Catalog; print(Catalog.open(sys.argv[1]).head())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    openers = [
        subprocess.Popen([sys.executable, "-c", program, url], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [opener.communicate(timeout=60)[0] for opener in openers] == ["0\n"] * 2


def test_the_migrations_make_the_tables_that_the_code_uses(url: str) -> None:
    engine = open_database(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []
    engine.dispose()


def test_a_catalog_of_another_version_is_refused(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'c.db'}"
    open_database(address).dispose()
    with sqlite3.connect(tmp_path / "c.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(CatalogError, match="made by another version"):
        Catalog.open(address)


def test_sqlite_is_set_up_for_several_processes(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'c.db'}")
    with engine.connect() as connection:
        values = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "foreign_keys")]
        assert values == ["wal", 1]
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 5_000
        with pytest.raises(sa.exc.IntegrityError, match="FOREIGN KEY"):
            connection.execute(
                sa.insert(tables.subscription_version).values(subscription_id=7, class_id=7, body="", crc=0, since=1)
            )
    engine.dispose()


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path, deployment: Deployment) -> None:
    address = f"sqlite:///{tmp_path / 'c.db'}"
    with Catalog.open(address) as catalog:
        catalog.apply(deployment)
        other = sqlite3.connect(tmp_path / "c.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE head SET revision = 99")
        assert catalog.snapshot().revision == 1
        other.execute("ROLLBACK")
        other.close()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nonsense", "is not a database URL"),
        ("mysql://root@localhost/x", "no catalog can live in 'mysql'"),
        ("postgresql://user:secret@127.0.0.1:1/nowhere", "failed: connection"),
    ],
)
def test_a_wrong_address_is_explained(address: str, message: str) -> None:
    with pytest.raises(CatalogError, match=message) as caught:
        Catalog.open(address)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    path.write_bytes(b"this is not a database, but long enough to look at" * 40)
    with pytest.raises(CatalogError, match="file is not a database"):
        Catalog.open(f"sqlite:///{path}")


def test_a_catalog_that_another_program_holds_is_busy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.catalog.database.BUSY_TIMEOUT_S", 0.2)
    other = open_database(url)
    with Catalog.open(url) as catalog:
        with writing(other) as connection:
            connection.execute(sa.select(tables.head.c.revision).with_for_update())
            with pytest.raises(CatalogBusyError, match=r"is busy: another program has held its lock for 0\.2 s"):
                catalog.fold_contexts({}, {"ticks": 5})
            assert catalog.head() == 0  # who reads does not wait
        assert catalog.fold_contexts({}, {"ticks": 5}) == 1
    other.dispose()
