"""A catalog file that was damaged: the row is named, and the catalog rebuilt from a snapshot is the one that was."""

import sqlite3
from pathlib import Path

import pytest

from headgate.catalog import Catalog, CatalogError
from headgate.catalog.rebuild import decode_filed, encode_filed, rebuild_catalog
from headgate.model import Deployment, Subscription
from headgate.wire.identity import Incarnation, Run
from headgate.wire.snapshot import Snapshot

DAMAGE = [
    (
        "UPDATE version SET body = replace(body, char(34), '?') WHERE kind = 'stream' AND name = 'ticks'",
        "stream 'ticks'",
    ),
    (
        "UPDATE version SET body = replace(body, 'a', 'e') WHERE kind = 'stream' AND name = 'weather'",
        "stream 'weather'",
    ),
    ("UPDATE subscription_version SET body = body || ' '", "subscription "),
    ("UPDATE subscription_version SET class_id = 1", "subscription "),
    ("UPDATE filed SET body = '{' WHERE kind = 'site' AND name = 'lyon'", "site 'lyon'"),
    ("UPDATE head SET revision = 77", "no row of revision 77"),
]


@pytest.mark.parametrize(("statement", "named"), DAMAGE)
def test_the_damaged_row_is_named(tmp_path: Path, deployment: Deployment, statement: str, named: str) -> None:
    file = tmp_path / "c.db"
    with Catalog.open(f"sqlite:///{file}") as catalog:
        catalog.apply(deployment)
        catalog.verify()
    connection = sqlite3.connect(file)
    with connection:
        connection.execute(statement)
    connection.close()
    with Catalog.open(f"sqlite:///{file}") as catalog, pytest.raises(CatalogError, match="--rebuild-catalog") as caught:
        catalog.verify()
    assert named in str(caught.value)


def test_a_page_of_garbage_is_told(tmp_path: Path, deployment: Deployment) -> None:
    file = tmp_path / "c.db"
    with Catalog.open(f"sqlite:///{file}") as catalog:
        catalog.apply(deployment)
    data = bytearray(file.read_bytes())
    data[4096:] = bytes(255 for _ in data[4096:])
    file.write_bytes(data)
    with pytest.raises(CatalogError, match="--rebuild-catalog"), Catalog.open(f"sqlite:///{file}") as catalog:
        catalog.verify()


def test_a_rebuilt_catalog_is_the_one_that_was(url: str, deployment: Deployment) -> None:
    with Catalog.open(url) as catalog:
        catalog.apply(deployment, {"ticks": Incarnation("i1", 2, "i0", "a store", 5, 1)})
        catalog.subscribe(Subscription("gone", "ticks", "lyon", where="price > 1"))
        catalog.unsubscribe("gone")
        catalog.set_context("storms", {"limit": 3.5})
        runs, filed, before = catalog.begin_run({"ticks": 7}), catalog.filed(), catalog.snapshot()
    published = Snapshot.from_bytes(before.to_bytes())
    rebuild_catalog(url, published, decode_filed(encode_filed(filed)), runs)
    with Catalog.open(url) as catalog:
        assert catalog.snapshot() == before
        assert (catalog.filed(), catalog.runs()) == (filed, runs)
        assert catalog.runs() == [Run(runs[0].id, {"ticks": 7})]
        assert catalog.apply(deployment) == before.revision  # the file is what it was: it undoes nothing
        catalog.subscribe(Subscription("new", "ticks", "lyon", where="price > 2"))
        after = catalog.snapshot()
    assert after.subscription_ids["new"] > before.identity.last_subscription
    assert after.class_ids["new"] > before.identity.last_class
