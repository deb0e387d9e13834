"""Grants: which rows and columns of a stream a user may have, and what became of a subscription under one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Grant:
    """What a user may have of one stream: rows for which `where` (a relational filter) is true, and some columns.

    `columns` None means every column.
    """

    where: str = "true"
    columns: tuple[str, ...] | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing is kept back."""
        return self.columns is None and self.where == "true"

    def shows(self, column: str) -> bool:
        """Whether the user may know of a column."""
        return self.columns is None or column in self.columns


EVERYTHING: Final = Grant()
NOTHING: Final = Grant("false", ())
"""The grant of somebody who may not subscribe to a stream: no rows, and no columns to know of."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Why a subscription is not as its owner asked for it: the grant, and the values asked for that it replaced.

    `asked` has them under the names of the fields of `headgate.model.Subscription`.
    """

    grant: Grant = EVERYTHING
    asked: Mapping[str, Any] = field(default_factory=dict)
