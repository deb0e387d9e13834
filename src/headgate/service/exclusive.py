"""One deployment holds its state directory, and nobody else can read it."""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path
from typing import Any

from headgate.errors import HeadgateError
from headgate.private import make_private, private_files
from headgate.service.state_format import check_format


@contextlib.contextmanager
def exclusive(state_dir: Path) -> Any:
    """Hold the state directory: two deployments in one would fight over its ports and checkpoints.

    Only its owner can read it, and what is written meanwhile.
    """
    make_private(state_dir)
    with private_files(), (state_dir / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise HeadgateError(
                f"a deployment is already running in {state_dir}", hint="stop it, or give another --state-dir"
            ) from error
        check_format(state_dir)
        yield
