"""Problems of a deployment file: each with its place, what is wrong and how to fix it, reported all at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.errors import HeadgateError, nearest


@dataclass(frozen=True, slots=True, order=True)
class FileProblem:
    """One thing that is wrong in a file. Lines and columns count from 1.

    >>> str(FileProblem("headgate.yaml", 3, 5, "unknown key 'uplaod'", "did you mean 'upload'?"))
    "headgate.yaml:3:5: unknown key 'uplaod' (did you mean 'upload'?)"
    """

    file: str
    line: int
    column: int
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}: {self.message}"
        return f"{text} ({self.hint})" if self.hint else text


class DeploymentError(HeadgateError):
    """A deployment file that cannot be used, with every problem that was found in it, in the order of the file."""

    def __init__(self, problems: Iterable[FileProblem]) -> None:
        self.problems: tuple[FileProblem, ...] = tuple(sorted(set(problems), key=_order))
        first = self.problems[0]
        lines = [str(problem) for problem in self.problems]
        if len(lines) > 1:
            lines.insert(0, f"{first.file} has {len(lines)} problems")
        super().__init__("\n".join(lines))


def _order(problem: FileProblem) -> tuple[int, int, str]:
    return problem.line, problem.column, problem.message


def suggestion(name: str, known: Sequence[str], what: str) -> str:
    """How to fix an unknown name: the nearest valid one, else the list of them.

    >>> suggestion("oslp", ["oslo", "paris"], "sites")
    "did you mean 'oslo'?"
    >>> suggestion("x", ["oslo", "paris"], "sites")
    'sites are oslo, paris'
    """
    close = nearest(name, known)
    if close is not None:
        return f"did you mean {close!r}?"
    if not known:
        return f"there are no {what}"
    shown = ", ".join(known[:12])
    return f"{what} are {shown}" + (", ..." if len(known) > 12 else "")
