"""Subscriptions in a file, for making thousands of them in one change: Parquet, CSV, or one JSON object a line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from headgate.client.errors import ClientError

FORMATS: Final = (".parquet", ".csv", ".jsonl")
_TEXTS: Final = frozenset(("name", "stream", "site", "where", "profile", "format", "start", "expires", "owner"))
"""Keys whose values are texts as they stand; in a CSV file every other value is JSON where it can be read so."""


def read_subscriptions(file: Path) -> dict[str, dict[str, Any]]:
    """The subscriptions of a file by name. A cell without a value leaves its key out.

    Raises:
        ClientError: The file cannot be read, a row has no name, or a name comes twice.
    """
    kind = file.suffix.lower()
    if kind not in FORMATS:
        raise ClientError(f"{file} is no file of subscriptions", hint=f"its name ends in {', '.join(FORMATS)}")
    try:
        rows = list(_jsonl(file) if kind == ".jsonl" else _csv(file) if kind == ".csv" else _parquet(file))
    except (OSError, ValueError, csv.Error) as error:  # Arrow's errors are among them
        raise ClientError(f"{file} cannot be read: {error}") from error
    found: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(rows, 1):
        keys = read_keys(row)
        name = keys.pop("name", None)
        if not isinstance(name, str):
            raise ClientError(f"subscription {number} of {file} has no name", hint="give it a column or key `name`")
        if name in found:
            raise ClientError(f"{file} has {name!r} twice, the second time as subscription {number}")
        found[name] = keys
    return found


def read_keys(row: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a subscription that have values; columns may be given as one text.

    >>> read_keys({"site": "oslo", "where": None, "select": "a, b"})
    {'site': 'oslo', 'select': ['a', 'b']}
    """
    found = {key: value for key, value in row.items() if value is not None and value != ""}
    if isinstance(found.get("select"), str):
        found["select"] = [column.strip() for column in found["select"].split(",")]
    return found


def _jsonl(file: Path) -> Iterable[dict[str, Any]]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is no JSON object")
            yield row


def _csv(file: Path) -> Iterable[dict[str, Any]]:
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines, strict=True):
            if None in row:
                raise ValueError(f"a row has more values than the first line has names: {row[None]}")
            yield {key: value if key in _TEXTS else _value(value) for key, value in row.items()}


def _value(text: str | None) -> Any:
    """A cell as JSON, as in `{"limit": 20}` or `2.5`, else as the text that it is."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def _parquet(file: Path) -> Iterable[dict[str, Any]]:
    import pyarrow.parquet

    for row in pyarrow.parquet.read_table(file).to_pylist():
        yield {key: _plain(value) for key, value in row.items()}


def _plain(value: Any) -> Any:
    """A value without the keys of structs that this row does not have."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return value
