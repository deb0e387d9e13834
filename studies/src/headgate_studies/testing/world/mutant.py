"""A planted fault of the protocol."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: in a module of `headgate`, some text of a function (found exactly once) and its replacement."""

    name: str
    module: str
    before: str
    after: str
