"""Subjects with NATS wildcards: `*` stands for one token, `>` for one or more tokens at the end."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=65_536)
def matches(pattern: str, subject: str) -> bool:
    """Whether a pattern takes a subject.

    >>> matches("a.*", "a.b"), matches("a.*", "a.b.c"), matches("a.>", "a.b.c"), matches("a.>", "a")
    (True, False, True, False)
    """
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
    elif len(tokens) != len(wanted):
        return False
    return all(want in ("*", token) for want, token in zip(wanted, tokens, strict=False))


def overlap(one: str, other: str) -> bool:
    """Whether two patterns have a subject in common.

    >>> overlap("a.*.c", "a.b.>"), overlap("a.*", "a.b.c"), overlap(">", "a"), overlap("a.>", "a")
    (True, False, True, False)
    """
    left, right = one.split("."), other.split(".")
    for position in range(max(len(left), len(right))):
        if position >= len(left) or position >= len(right):
            return False
        first, second = left[position], right[position]
        if ">" in (first, second):
            return True
        if first != second and "*" not in (first, second):
            return False
    return True


def is_literal(pattern: str) -> bool:
    """Whether a pattern is one subject.

    >>> is_literal("a.b"), is_literal("a.*"), is_literal(">")
    (True, False, False)
    """
    return not (pattern.endswith(">") or "*" in pattern)
