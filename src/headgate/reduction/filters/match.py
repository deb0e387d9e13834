"""MATCH: a condition that a regular expression is found in the attribute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc

from headgate.reduction.errors import PolicyError
from headgate.reduction.filters.predicate import Predicate
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, mask_of


@dataclass(frozen=True, slots=True)
class Match(Predicate):
    """The pattern (RE2 syntax, so that no pattern can take more than linear time) is found in the text."""

    pattern: str
    name: ClassVar[str] = "match"
    main: ClassVar[str | None] = "pattern"
    about: ClassVar[str] = "a regular expression is found in the attribute"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Attribute and pattern."""
        from headgate.filters.build import check_regex  # only a policy with a pattern needs the language
        from headgate.filters.errors import RefusedError

        attribute = reader.attribute("text")
        pattern = str(reader.raw("pattern", required="a regular expression"))
        try:
            check_regex(pattern)
        except RefusedError as error:
            raise PolicyError(error.message, where=reader.at("pattern"), hint=error.hint) from error
        return cls(attribute, reader.raw("drop", True), pattern)

    def true(self, values: pa.Array) -> Bools:
        """Where the pattern is found."""
        return mask_of(pc.match_substring_regex(values, self.pattern))
