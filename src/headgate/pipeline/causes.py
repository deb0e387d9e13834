"""Why a query failed, in one line, out of what Spark says about it.

Spark wraps an error of a foreachBatch function, a Python task or a Python source in several of its own, with the Python
traceback somewhere inside. A user wants the innermost message: first the cause, then the hint.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 1000
"""Characters of a cause that are kept."""

_PYTHON: Final = re.compile(r"^((?:\w+\.)*)(\w*(?:Error|Exception|Interrupt|Exit|Warning)): (.+)$", re.MULTILINE)
_JAVA: Final = (
    re.compile(r"^Caused by: (.+)$", re.MULTILINE),
    re.compile(r"most recent failure: Lost task .*?\): (.+)$", re.MULTILINE),
    re.compile(r"^An error occurred while calling .*\n: (.+)$", re.MULTILINE),
)
"""Where the innermost Java error stands, the first that is found; of several the last one caused the others."""
_STREAM: Final = re.compile(r"terminated with exception: (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)


def cause_of(error: object) -> str:
    """The cause of a failed query.

    >>> cause_of("[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: batch 8 is gone SQLSTATE: XXKST")
    'batch 8 is gone'
    """
    text = str(error).strip()
    found = [each for each in _PYTHON.finditer(text) if not each[1].startswith(("java.", "org.", "py4j."))]
    ours = [each for each in found if each[1].startswith("headgate.")]
    if ours:
        return ours[-1][3].strip()[:LONGEST]
    if found:
        return f"{found[-1][2]}: {found[-1][3].strip()}"[:LONGEST]
    for pattern in (*_JAVA, _STREAM):
        if causes := pattern.findall(text):
            return str(causes[-1]).strip()[:LONGEST]
    return text.split("\n", 1)[0][:LONGEST]
