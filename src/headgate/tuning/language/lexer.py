"""Words, numbers and signs of an objective, each with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headgate.tuning.language.errors import ObjectiveError

MAX_LENGTH = 4000
_TOKEN = re.compile(
    r"\s*(?:"
    r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*(?:/s\b)?)"
    r"|(?P<sign><=|>=|!=|==|<|>|≤|≥|≠|[-+*/\u00d7(),=%;])"
    r")"
)
_SPELLINGS = {"≤": "<=", "≥": ">=", "≠": "!=", "\u00d7": "*", ";": ","}


@dataclass(frozen=True, slots=True)
class ObjectiveToken:
    """One word, number or sign; the last one of a text has kind `end`."""

    kind: str
    text: str
    position: int


def tokens(text: str) -> list[ObjectiveToken]:
    """Cut a text into tokens, refusing what no objective contains.

    >>> [token.text for token in tokens("fanout <= 6")]
    ['fanout', '<=', '6', '']
    """
    if len(text) > MAX_LENGTH:
        raise ObjectiveError(
            f"an objective of {len(text)} characters is too long",
            text=text,
            position=MAX_LENGTH,
            hint=f"at most {MAX_LENGTH} characters",
        )
    found: list[ObjectiveToken] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            position += len(text[position:]) - len(text[position:].lstrip())
            raise ObjectiveError(
                f"unexpected character {text[position]!r}",
                text=text,
                position=position,
                hint="expected a name, a number, an operator or a bracket",
            )
        kind = match.lastgroup or ""
        word = match.group(kind)
        found.append(ObjectiveToken(kind, _SPELLINGS.get(word, word), match.start(kind)))
        position = match.end()
    found.append(ObjectiveToken("end", "", len(text.rstrip())))
    return found
