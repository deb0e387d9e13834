"""Holds a state directory: two deployments in one would fight over its ports and checkpoints."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.errors import HeadgateError
from headgate.private import make_private, private_files
from headgate.service.state_format import check_format


class RunsAlreadyError(HeadgateError):
    """A deployment is running in a state directory."""


@contextmanager
def exclusive(state_dir: Path) -> Iterator[None]:
    """Hold the state directory. Only its owner can read it, and what is written meanwhile."""
    make_private(state_dir)
    with private_files(), (state_dir / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunsAlreadyError(
                f"a deployment is already running in {state_dir}", hint="stop it, or give another --state-dir"
            ) from error
        check_format(state_dir)
        yield
