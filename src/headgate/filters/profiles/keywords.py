"""The type for texts: words that must, may or must not occur.

`title, body: storm (hail OR "heavy rain") -drill flood*` matches rows whose columns, taken together, have the word
storm, hail or the phrase, no drill, and a word that begins with flood. Words are compared without regard to case and
end where no letter, digit or underscore follows. Words side by side must all occur; `OR`, `AND`, `NOT` (or `-`) and
parentheses do the rest. A missing text has no words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

from headgate.filters import build, functions
from headgate.filters.algebra.relate import covers, merge
from headgate.filters.errors import FilterError
from headgate.filters.expr import ColumnRef, Expr, Literal, Rlike
from headgate.filters.filter import Filter
from headgate.filters.kernels.patterns import word_regex
from headgate.filters.profiles.base import DefaultProfileType, Profile, relational
from headgate.filters.profiles.translated import Translated, text_columns
from headgate.filters.profiles.words import Worded, WordIndex
from headgate.filters.types import STRING
from headgate.model import Schema

_TOKEN = re.compile(r'\s*(?:(?P<mark>[()\-])|"(?P<phrase>[^"]*)"|(?P<word>\w+)(?P<star>\*?))', re.UNICODE)
_DEPTH = 40
_PHRASE = 16
_TERMS = 512

# A condition, its text, and words of which a plain text that meets the condition has at least one; None if unknown.
_Parsed = tuple[Expr, str, frozenset[str] | None]


class _Parser:
    """Keywords to a condition; one pass, bounded depth."""

    def __init__(self, where: str, start: int, columns: tuple[str, ...]) -> None:
        self.where, self.position = where, start
        self.terms = [functions.call("coalesce", (ColumnRef(STRING, name), Literal(STRING, ""))) for name in columns]
        self.depth = self.count = 0

    def parse(self) -> _Parsed:
        parsed = self._any()
        if self._peek() is not None or self.where[self.position :].strip():
            raise self._error("a word was expected")
        return parsed

    def _error(self, message: str) -> FilterError:
        rest = self.where[self.position :]
        at = self.position + len(rest) - len(rest.lstrip())
        return FilterError(message, self.where, at, hint='words, "phrases", word*, AND, OR, NOT, - and parentheses')

    def _peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self.where, self.position)

    def _take(self, *words: str) -> bool:
        token = self._peek()
        if token is not None and (token["mark"] or token["word"]) in words:
            self.position = token.end()
            return True
        return False

    def _any(self) -> _Parsed:
        parts = [self._all()]
        while self._take("OR"):
            parts.append(self._all())
        if len(parts) == 1:
            return parts[0]
        words = [part[2] for part in parts]
        known = None if None in words else frozenset().union(*(each for each in words if each is not None))
        return build.disjunction(part[0] for part in parts), " OR ".join(part[1] for part in parts), known

    def _all(self) -> _Parsed:
        parts = [self._one()]
        while True:
            self._take("AND")
            token = self._peek()
            if token is None or token["mark"] == ")" or token["word"] == "OR":
                break
            parts.append(self._one())
        known = min((part[2] for part in parts if part[2] is not None), key=len, default=None)
        return build.conjunction(part[0] for part in parts), " ".join(part[1] for part in parts), known

    def _one(self) -> _Parsed:
        token = self._peek()
        if token is None or token["word"] in ("AND", "OR") or token["mark"] == ")":
            raise self._error("a word was expected")
        self.depth += 1
        if self.depth > _DEPTH:
            raise self._error(f"words are nested more than {_DEPTH} deep")
        if self._take("-", "NOT"):
            condition, text, _ = self._one()
            found: _Parsed = build.negation(condition), f"-{text}", None
        elif self._take("("):
            condition, text, known = self._any()
            if not self._take(")"):
                raise self._error("a closing parenthesis was expected")
            found = condition, f"({text})", known
        else:
            self.position = token.end()
            found = self._term(token)
        self.depth -= 1
        return found

    def _term(self, token: re.Match[str]) -> _Parsed:
        words = re.findall(r"\w+", token["phrase"]) if token["phrase"] is not None else [token["word"]]
        if not words:
            raise self._error("a phrase has no words")
        self.count += len(self.terms)
        if self.count > _TERMS:
            raise self._error(f"there are more than {_TERMS} words and phrases, counted for each column")
        if len(words) > _PHRASE:
            raise self._error(f"a phrase has {len(words):,} words, at most {_PHRASE} are accepted")
        words = [word.lower() for word in words]
        regex = word_regex(words, prefix=bool(token["star"]))
        found = build.disjunction(Rlike(term, regex) for term in self.terms)
        shown = f'"{" ".join(words)}"' if len(words) > 1 else words[0]
        whole = [word for word in (words[:-1] if token["star"] else words) if word.isascii()]
        known = frozenset([max(whole, key=len)]) if whole and all(word.isascii() for word in words) else None
        return found, shown + (token["star"] or ""), known


class Keywords(DefaultProfileType):
    """Words in texts.

    >>> PROFILE.compile("Storm -DRILL", Schema.of({"body": "string"}), {}).text
    'body: storm -drill'
    """

    name: ClassVar[str] = "keywords"

    def compile(self, where: str, schema: Schema, context: Mapping[str, pa.DataType]) -> Worded:
        """The profile."""
        del context
        columns, _, start = text_columns(where, schema, "text")
        condition, text, words = _Parser(where, start, columns).parse()
        return Worded(f"{', '.join(columns)}: {text}", Filter.of(condition), columns, words)

    def index(self) -> WordIndex:
        """An index by words."""
        return WordIndex()

    def covers(self, one: Profile, other: Profile) -> bool:
        """The algebra's answer on the equivalent filters."""
        first, second = relational(one), relational(other)
        return first is not None and second is not None and covers(first, second)

    def merge(self, one: Profile, other: Profile) -> Profile:
        """The disjunction, as one equivalent filter."""
        first, second = relational(one), relational(other)
        assert first is not None
        assert second is not None
        if self.covers(one, other):
            return one
        return (
            other if self.covers(other, one) else Translated(f"({one.text}) OR ({other.text})", merge([first, second]))
        )


PROFILE = Keywords()
