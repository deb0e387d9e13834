"""Checksums of the catalog's rows: what a database file holds after a bad disk or a bad copy is not taken on trust."""

from __future__ import annotations

import zlib

from headgate.catalog.database import REPAIR, CatalogError


def checksum(*values: str | int) -> int:
    """The CRC-32 of what a row says.

    >>> checksum("stream", "fleet", "{}") == checksum("stream", "fleet", "{ }")
    False
    """
    return zlib.crc32("\0".join(map(str, values)).encode())


def verify(stored: int, table: str, what: str, *values: str | int) -> None:
    """Refuse a row whose checksum is not that of what it says."""
    if stored != checksum(*values):
        raise CatalogError(
            f"the catalog is damaged: the row of {what} in its table {table!r} does not match its checksum",
            hint=REPAIR,
        )
