"""Opens the catalog's database: SQLite or PostgreSQL, with the schema brought up to date first.

SQLite runs in write-ahead mode, so that readers never wait for a writer, and every writing transaction takes the write
lock when it begins, so that two processes cannot both act on what they have read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError

from headgate.errors import HeadgateError

BUSY_TIMEOUT_S = 5.0
"""How long a change waits for another program's lock; shorter than a client waits for its answer."""
_MIGRATIONS = Path(__file__).parent / "migrations"
# Any number of our own: writers of the schema wait for each other on it.
_ADVISORY_LOCK = 0x68656164
# What SQLite and PostgreSQL say when a lock was not given in time.
_LOCKED = ("database is locked", "lock timeout")
REPAIR = "restore the catalog from a backup, or rebuild it from NATS with `headgate up --rebuild-catalog`"


class CatalogError(HeadgateError):
    """A change that the catalog refuses, or a catalog that cannot be reached."""


class CatalogBusyError(CatalogError):
    """Another program has held the catalog's lock for too long; nothing was changed."""

    usual_kind = "busy"


def open_database(address: str) -> sa.Engine:
    """An engine for a database whose schema is current."""
    url = parse_url(address)
    if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        Path(str(url.database)).expanduser().parent.mkdir(parents=True, exist_ok=True)
    with reported(url):
        try:
            engine = sa.create_engine(url, **_options(url))
        except ImportError as error:
            hint = "install it with `pip install 'headgate[postgres]'`"
            raise CatalogError(f"the database driver {error.name!r} is not installed", hint=hint) from None
        if url.get_backend_name() == "sqlite":
            sa.event.listen(engine, "connect", _prepare)
            sa.event.listen(engine, "begin", _begin)
        try:
            with writing(engine) as connection:
                _migrate(connection)
        except BaseException:
            engine.dispose()
            raise
    return engine


def parse_url(address: str) -> sa.URL:
    """A database address as a URL that names its driver; others than SQLite and PostgreSQL are refused."""
    try:
        url = sa.make_url(address)
    except sa.exc.ArgumentError:
        hint = "write for example sqlite:///state/catalog.db or postgresql://user@host/database"
        raise CatalogError(f"{address!r} is not a database URL", hint=hint) from None
    backend = url.get_backend_name()
    if backend not in ("sqlite", "postgresql"):
        raise CatalogError(f"no catalog can live in {backend!r}", hint="use sqlite:///FILE or postgresql://...")
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def shown(address: str) -> str:
    """A database address as messages show it: without its password.

    >>> shown("postgresql://me:secret@host/catalog")
    'postgresql+psycopg://me:***@host/catalog'
    """
    return parse_url(address).render_as_string(hide_password=True)


def _options(url: sa.URL) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": BUSY_TIMEOUT_S}}
    return {"pool_pre_ping": True, "connect_args": {"options": f"-c lock_timeout={int(BUSY_TIMEOUT_S * 1000)}"}}


@contextmanager
def reported(url: sa.URL) -> Iterator[None]:
    """Turns a failure of the database into a `CatalogError` that names it without its password."""
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        what = str(cause).strip().splitlines()[0]
        where = url.render_as_string(hide_password=True)
        if isinstance(error, sa.exc.OperationalError) and any(word in what for word in _LOCKED):
            raise CatalogBusyError(
                f"the catalog at {where} is busy: another program has held its lock for {BUSY_TIMEOUT_S:g} s, "
                "so nothing was changed",
                hint="try again in a moment; if it stays so, find out who has it open",
            ) from error
        damaged = any(word in what for word in ("malformed", "not a database", "corrupt"))
        hint = REPAIR if damaged else "check that it exists and can be written"
        raise CatalogError(f"the catalog at {where} failed: {what}", hint=hint) from error


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A writing transaction: committed at the end, undone by an exception."""
    with engine.connect().execution_options(headgate_write=True) as connection, connection.begin():
        yield connection


def _prepare(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where `_begin` says, not where the driver guesses
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
    connection.execute("PRAGMA foreign_keys = ON")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete":
        connection.execute("PRAGMA journal_mode = WAL")


def _begin(connection: sa.Connection) -> None:
    write = connection.get_execution_options().get("headgate_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _migrate(connection: sa.Connection) -> None:
    """Bring the schema up to date inside the transaction of `connection`."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    scripts = ScriptDirectory(str(_MIGRATIONS))

    def steps(current: Any, _context: MigrationContext) -> Any:
        # The recipe of Alembic's documentation for running without an env.py, which pytest could not import.
        return scripts._upgrade_revs("head", current)  # noqa: SLF001

    context = MigrationContext.configure(connection, opts={"fn": steps, "transactional_ddl": True})
    try:
        with Operations.context(context):
            context.run_migrations()
    except CommandError:
        hint = "use the version that made it, or give another catalog"
        raise CatalogError("the catalog was made by another version of Headgate", hint=hint) from None
