"""Another version of the product beside this one: its sources, and a run of a benchmark on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headgate.errors import HeadgateError

_STUDIES: Final = str(Path(__file__).parents[2])


def check_version(place: str) -> None:
    """Refuse a folder that holds no version of the product."""
    if not (Path(place) / "headgate").is_dir():
        raise HeadgateError(
            f"there is no version of headgate in {place!r}",
            hint="name the folder that holds it, for example `git worktree add ../old REVISION` and ../old/src",
        )


def figures_of(
    code: str, place: str = "", environment: Mapping[str, str] | None = None, timeout_s: float = 1800.0
) -> dict[str, Any]:
    """What a piece of Python prints as its last line, as JSON; `place` has the sources that it runs on.

    The benchmark itself is this version's in both cases.
    """
    given = {**os.environ, **(environment or {})}
    if place:
        given["PYTHONPATH"] = os.pathsep.join([place, _STUDIES])
    done = subprocess.run(
        [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    if done.returncode:
        raise HeadgateError(f"the run failed on {place or 'this version'}: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
