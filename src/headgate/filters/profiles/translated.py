"""Profiles of other types that have an exact equivalent in the filter language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.errors import nearest
from headgate.filters.errors import FilterError
from headgate.filters.filter import Filter
from headgate.filters.limits import check_text
from headgate.filters.types import STRING
from headgate.filters.vector import Mask
from headgate.model import Schema


@dataclass(frozen=True, slots=True)
class Translated:
    """A profile by its own canonical text and the filter that matches exactly its rows."""

    text: str
    filter: Filter

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""
        return self.filter.columns

    @property
    def parameters(self) -> frozenset[str]:
        """It reads no context."""
        return self.filter.parameters

    def evaluate(self, batch: pa.RecordBatch, context: Mapping[str, Any] | None = None) -> Mask:
        """For each row whether it matches."""
        return self.filter.evaluate(batch, context)


def text_columns(where: str, schema: Schema, default: str) -> tuple[tuple[str, ...], str, int]:
    """The columns that a text `column, column: rest` names, the rest, and where the rest begins.

    Without a colon the column is the one of the default name, or the only string column there is.
    """
    check_text(where)
    head, colon, _ = where.partition(":")
    texts = [column.name for column in schema.columns if column.type == STRING]
    if not colon:
        names = [default] if default in texts else texts[:1] if len(texts) == 1 else []
        if not names:
            raise FilterError(
                "it is not said which column is meant",
                where,
                0,
                hint=f"write `column: ...`; text is in {', '.join(texts)}",
            )
        return tuple(names), where, 0
    found, position = [], 0
    for part in head.split(","):
        name = part.strip()
        if name not in texts:
            close = nearest(name, texts)
            hint = f"did you mean {close!r}?" if close else "columns of text are " + ", ".join(texts)
            at = position + len(part) - len(part.lstrip())
            raise FilterError(f"{name!r} is not a column of text", where, at, hint=hint)
        found.append(name)
        position += len(part) + 1
    return tuple(dict.fromkeys(found)), where[len(head) + 1 :], len(head) + 1
