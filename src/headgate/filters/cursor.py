"""A place in the tokens of a filter, and the refusals that name it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from headgate.filters.errors import FilterError
from headgate.filters.lexer import END, SYMBOL, WORD, Token


class Cursor:
    """Goes through tokens from the first to the END token, and never past it."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.index = 0

    @property
    def _peek(self) -> Token:
        return self.tokens[self.index]

    def _ahead(self, count: int) -> Token:
        return self.tokens[min(self.index + count, len(self.tokens) - 1)]

    def _next(self) -> Token:
        token = self.tokens[self.index]
        self.index = min(self.index + 1, len(self.tokens) - 1)
        return token

    def _at(self, *texts: str) -> bool:
        token = self.tokens[self.index]
        return token.text in texts and (token.kind == SYMBOL or token.kind == WORD)

    def _take(self, *texts: str) -> Token | None:
        return self._next() if self._at(*texts) else None

    def _expect(self, text: str) -> Token:
        return self._take(text) or self._unexpected(repr(text))

    def _fail(self, message: str, token: Token, hint: str | None = None) -> NoReturn:
        raise FilterError(message, self.text, token.start, hint=hint)

    def _unexpected(self, expected: str) -> NoReturn:
        token = self._peek
        found = "the filter ends" if token.kind == END else f"found {self.text[token.start : token.end]!r}"
        self._fail(f"{found} where {expected} was expected", token)
