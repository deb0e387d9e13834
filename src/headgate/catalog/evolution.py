"""Changes of a stream's columns while it runs: columns that come, that get a wider type, and that go.

Every commit names the version of the catalog that it was made under, and whoever reads it uses the columns of that
version. So a change needs no restart of anybody; it only has to be one that leaves what was said before true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from headgate.catalog.checks import check_subscription
from headgate.errors import HeadgateError
from headgate.model import Deployment, Stream, type_name

_WHOLE: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_EXACT: Final = {"float": 24, "double": 53}
"""Bits of a whole number that every value of a type can hold exactly."""


class SchemaChangeError(HeadgateError):
    """A change of columns that would make rows or subscriptions mean something else."""


def widens(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether every value of a type is the same value in another.

    >>> widens(pa.int32(), pa.int64()), widens(pa.int64(), pa.float64()), widens(pa.int32(), pa.float64())
    (True, False, True)
    """
    if before.equals(after):
        return True
    one, other = type_name(before), type_name(after)
    if one in _WHOLE and other in _WHOLE:
        return _WHOLE[one] <= _WHOLE[other]
    if one in _WHOLE and other in _EXACT:
        return _WHOLE[one] <= _EXACT[other]
    if pa.types.is_decimal(after) and one in _WHOLE:
        return bool(after.precision - after.scale >= len(str(1 << (_WHOLE[one] - 1))))
    if pa.types.is_decimal(before) and pa.types.is_decimal(after):
        return bool(after.scale >= before.scale and after.precision - after.scale >= before.precision - before.scale)
    return (one, other) == ("float", "double")


def check_evolution(before: Deployment, after: Deployment) -> None:
    """Refuse changes of columns that cannot be made while a stream runs: all are listed, each with what to do."""
    refused = [
        text
        for name in before.streams.keys() & after.streams.keys()
        for text in sorted(_refused(before.streams[name], after.streams[name], after))
    ]
    if refused:
        raise SchemaChangeError("; ".join(refused))


def _refused(old: Stream, new: Stream, after: Deployment) -> Iterator[str]:
    if old.schema == new.schema:
        return
    kinds = {column.name: column.type for column in new.schema.columns}
    for column in old.schema.columns:
        what = f"column {column.name!r} of stream {old.name!r}"
        if column.name in kinds:
            if not widens(column.type, kinds[column.name]):
                yield (
                    f"{what} cannot become {type_name(kinds[column.name])}: not every {type_name(column.type)} is one "
                    f"(add a column of the new type under another name, fill both, and retire {column.name!r} when "
                    "nobody uses it)"
                )
            continue
        users = _users(column.name, old, new, after)
        if users:
            said = ", ".join(f"{name!r} ({', '.join(parts)})" for name, parts in sorted(users.items())[:5])
            more = f" and {len(users) - 5} more" if len(users) > 5 else ""
            yield f"{what} is still used by {said}{more} (change or end these first, then retire the column)"


def _users(column: str, old: Stream, new: Stream, after: Deployment) -> Mapping[str, list[str]]:
    """The subscriptions that cannot be served without a column, and the keys in which they name it."""
    found: dict[str, list[str]] = {}
    for name, each in after.subscriptions.items():
        if each.stream != old.name:
            continue
        now = [
            finding
            for finding in check_subscription(each, {new.name: new}, (each.site,))
            if repr(column) in finding.message
        ]
        if now:
            was = {finding.path[:1] for finding in check_subscription(each, {old.name: old}, (each.site,))}
            parts = dict.fromkeys(
                str(finding.path[0]) for finding in now if finding.path and finding.path[:1] not in was
            )
            found |= {name: list(parts)} if parts else {}
    return found
