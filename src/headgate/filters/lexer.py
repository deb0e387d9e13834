"""Tokens of a filter: sqlglot's Spark tokenizer decides what is a token, this module what a literal's value is.

sqlglot merges adjacent strings, splits number suffixes and undoes escapes its own way, so the values of strings and
numbers are read again from the text at the token's place, by Spark's rules.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from headgate.filters.errors import FilterError
from headgate.filters.limits import DEFAULT_LIMITS, Limits
from headgate.filters.types import BIGINT, DOUBLE, FLOAT, INT, MAX_PRECISION

# Words that are never a column's name, and words that a column's name is quoted for because they start a literal.
RESERVED = frozenset(
    {"and", "or", "not", "between", "in", "like", "rlike", "regexp", "is", "null", "true", "false", "div"}
    | {"escape", "distinct", "from"}
)
QUOTED = frozenset({"interval", "date", "timestamp", "timestamp_ltz"})
WORD, NAME, NUMBER, TEXT, BYTES, SYMBOL, END = "word", "name", "number", "text", "bytes", "symbol", "end"

_NUMBER = re.compile(r"(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?(BD|[LSYDF])?", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[01][0-7]{2}|.)", re.DOTALL)
_SIMPLE = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_SUFFIX = {"L": BIGINT, "S": pa.int16(), "Y": pa.int8()}
_MAX_FLOAT, _MAX_DOUBLE = 3.4028234663852886e38, 1.7976931348623157e308
_INT_DIGITS = 10  # a whole number with fewer digits is an int
_WORD = re.compile(r"[^\W\d]\w*")


class Token(NamedTuple):
    """A token: its kind, its text (words in lower case), the value of a literal, and where it starts and ends."""

    kind: str
    text: str
    start: int
    end: int
    value: Any = None
    type: pa.DataType | None = None


def tokenize(text: str, limits: Limits = DEFAULT_LIMITS) -> list[Token]:
    """The tokens of a text that is within limits, closed by an END token; strings side by side are one.

    >>> [token.text for token in tokenize("Temp >= 21.5")]
    ['temp', '>=', '21.5', '']
    """
    from sqlglot.dialects.spark import Spark  # a third of the client's import, which few of its policies need
    from sqlglot.errors import TokenError

    try:
        raw = Spark().tokenize(text)
    except TokenError as error:
        at = getattr(error, "start", None) or 0
        raise FilterError("a quote is not closed, or a literal is malformed", text, at, hint="close it") from None
    tokens: list[Token] = []
    done = -1
    for found in raw:
        if found.start <= done:  # the parts of a number's suffix
            continue
        done = found.end
        piece = text[found.start : found.end + 1]
        token = _token(text, piece, found.start, found.end + 1, found.token_type.name)
        _append(tokens, token, text, limits)
    tokens.append(Token(END, "", len(text), len(text)))
    return tokens


def _token(text: str, piece: str, start: int, end: int, kind: str) -> Token:
    if kind == "STRING":
        return Token(TEXT, piece, start, end, _unescape(text, piece[1:-1], start))
    if kind == "RAW_STRING":
        return Token(TEXT, piece, start, end, piece[2:-1])
    if kind == "HEX_STRING":
        digits = piece[2:-1]
        if len(digits) % 2:
            digits = "0" + digits
        return Token(BYTES, piece, start, end, bytes.fromhex(digits))
    if kind == "NUMBER":
        if len(piece) < _INT_DIGITS and piece.isascii() and piece.isdigit():
            return Token(NUMBER, piece, start, end, int(piece), INT)
        return _number(text, piece, start, end)
    if kind == "IDENTIFIER":
        return Token(NAME, piece, start, end, piece[1:-1].replace("``", "`"))
    if _WORD.fullmatch(piece):
        return Token(WORD, piece.lower(), start, end, piece)
    return Token(SYMBOL, piece, start, end)


def _append(tokens: list[Token], token: Token, text: str, limits: Limits) -> None:
    """Add a token, joining strings that follow one another and a point with the digits after it."""
    last = tokens[-1] if tokens else None
    if last and token.kind == TEXT and last.kind == TEXT:
        quote = token.text[0]
        doubled = last.end == token.start and last.text[-1] == quote and quote in "'\""
        joined = last.value + (quote if doubled else "") + token.value
        if len(joined) > limits.literal:
            what = f"strings side by side are one of {len(joined):,} characters or more"
            most = f"at most {limits.literal:,} are accepted"
            raise FilterError(f"{what}, {most}", text, last.start, hint="compare with a shorter one")
        tokens[-1] = Token(TEXT, text[last.start : token.end], last.start, token.end, joined)
    elif last and token.kind == NUMBER and last.text == "." and last.end == token.start and not _dotted(tokens):
        tokens[-1] = _number(text, "." + token.text, last.start, token.end)
    else:
        tokens.append(token)


def _dotted(tokens: list[Token]) -> bool:
    """Whether the point at the end belongs to what stands before it, as in `a.b`."""
    return len(tokens) > 1 and tokens[-2].end == tokens[-1].start and tokens[-2].text not in {"(", ",", "["}


def _number(text: str, piece: str, start: int, end: int) -> Token:
    match = _NUMBER.fullmatch(piece)
    if match is None:
        raise FilterError(f"{piece!r} is not a number", text, start, hint="names that start with a digit need `quotes`")
    suffix = (match[4] or "").upper()
    digits = piece[: len(piece) - len(suffix)]
    value: Any
    if suffix in ("D", "F") or (match[3] is not None and not suffix):
        value, kind = float(digits), FLOAT if suffix == "F" else DOUBLE
        if value > (_MAX_FLOAT if suffix == "F" else _MAX_DOUBLE):
            raise FilterError(f"{piece} is beyond the range of its type", text, start)
    elif suffix in _SUFFIX:
        kind = _SUFFIX[suffix]
        if not digits.isdigit():
            raise FilterError(f"{piece} is not a whole number", text, start)
        value = int(digits)
        if value > 1 << (kind.bit_width - 1):
            raise FilterError(f"{piece} is beyond the range of its type", text, start)
    elif digits.isdigit() and not suffix:
        value = int(digits)
        kind = INT if value <= 2**31 else BIGINT if value <= 2**63 else _decimal(text, piece, start, Decimal(digits))
    else:
        try:
            exact = Decimal(digits)
        except ArithmeticError:
            raise FilterError(f"{piece} is beyond the range of its type", text, start) from None
        kind = _decimal(text, piece, start, exact)
        value = unscaled(exact, kind.scale)
    return Token(NUMBER, piece, start, end, value, kind)


def unscaled(exact: Decimal, scale: int) -> int:
    """The integer that a decimal is at a scale that holds it.

    >>> unscaled(Decimal("1.5"), 2)
    150
    """
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    magnitude: int = int("".join(map(str, digits))) * 10 ** (scale + exponent)
    return -magnitude if sign else magnitude


def _decimal(text: str, piece: str, start: int, exact: Decimal) -> pa.DataType:
    _, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > MAX_PRECISION:
        raise FilterError(f"{piece} has more than {MAX_PRECISION} digits", text, start, hint="write a double: 1.5e0")
    return pa.decimal128(precision, scale)


def _unescape(text: str, inner: str, start: int) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 1:
            return _SIMPLE.get(code, code)
        point = int(code[1:], 16) if code[0] in "uU" else int(code, 8)
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            raise FilterError(f"\\{code} is not a character", text, start + 1 + match.start())
        return chr(point)

    return _ESCAPE.sub(replace, inner)
