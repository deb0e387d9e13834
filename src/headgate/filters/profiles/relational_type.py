"""The relational type: the filter language itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

from headgate.filters.algebra.relate import covers, merge
from headgate.filters.filter import Filter, parse_filter
from headgate.filters.profiles.base import DefaultProfileType, Profile
from headgate.model import Schema


class Relational(DefaultProfileType):
    """SQL conditions; its index over boxes is `headgate.matching`.

    >>> PROFILE.compile("n > 1", Schema.of({"n": "int"}), {}).text
    'n > 1'
    """

    name: ClassVar[str] = "relational"

    def compile(self, where: str, schema: Schema, context: Mapping[str, pa.DataType]) -> Filter:
        """The filter."""
        return parse_filter(where, schema, context)

    def covers(self, one: Profile, other: Profile) -> bool:
        """The algebra's answer."""
        return isinstance(one, Filter) and isinstance(other, Filter) and covers(one, other)

    def merge(self, one: Profile, other: Profile) -> Profile:
        """The exact union."""
        assert isinstance(one, Filter)
        assert isinstance(other, Filter)
        return merge([one, other])


PROFILE = Relational()
